// Every matrix as a table of numbers, for screen readers and for reading values.

import { named } from "./axes.ts";
import { make } from "./dom.ts";
import { places } from "./places.ts";
import { at, isMasked, type Shown, written } from "./shown.ts";

/** The table is built when it is opened, and again when another matrix is shown. */
export class NumberTable {
  private box = make("div", { class: "scroll" });
  readonly element = make("details", { class: "numbers" }, make("summary", {}, "Show as table"), this.box);
  private drawn: Shown | null = null;

  constructor(private readonly shown: () => Shown) {
    this.element.addEventListener("toggle", () => this.update());
  }

  update(): void {
    const shown = this.shown();
    if (!this.element.open || shown === this.drawn) return;
    this.drawn = shown;
    const { part } = shown, rows = places(shown, "rows"), columns = places(shown, "columns");
    const value = (i: number, j: number): string => (isMasked(shown, i, j) ? "may not look" : written(shown, at(shown, i, j)));
    const head = make("tr", {}, make("th", { scope: "col" }, "looks at →"), ...columns.map((j) => make("th", { scope: "col" }, named(part, "columns", j))));
    const body = rows.map((i) => make("tr", {}, make("th", { scope: "row" }, named(part, "rows", i)), ...columns.map((j) => make("td", {}, value(i, j)))));
    const caption = make("caption", {}, `${shown.label}: ${part.captions[0]}`);
    this.box.replaceChildren(make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...body)));
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", "The weights as a table");
  }
}
