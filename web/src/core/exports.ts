// What can be taken from a page: files of the shown figure, and the code that makes it again.

import type { Context } from "../views/view.ts";
import { csv } from "./csv.ts";
import { button, make, offer } from "./dom.ts";
import { npz, numbers, texts } from "./npz.ts";
import { linesPicture, matrixPicture, png, svgText } from "./picture.ts";
import { places } from "./places.ts";
import { command, python } from "./python.ts";
import { at, type Shown, written } from "./shown.ts";

const fileName = (shown: Shown, ending: string): string => `${shown.label.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "").toLowerCase() || "attention"}.${ending}`;

/** The shown matrix and its axes; the numbers are those of the tips. */
export function arrays(shown: Shown): Uint8Array {
  const rows = places(shown, "rows"), columns = places(shown, "columns");
  const values = rows.flatMap((i) => columns.map((j) => Number(written(shown, at(shown, i, j)))));
  const names = (axis: "rows" | "columns", there: number[]): Uint8Array => texts(there.map((place) => shown.part[axis][place]));
  return npz({ weights: numbers(values, rows.length, columns.length), rows: names("rows", rows), columns: names("columns", columns) });
}

export function exportBar(context: Context): HTMLElement {
  const code = make("pre", { class: "code", tabindex: 0, hidden: true });
  const bar = make("div", { class: "exports" });
  const picture = (): SVGSVGElement => {
    const shown = context.shown(), lines = bar.closest("[data-figure]")?.querySelector<SVGSVGElement>("svg.lines");
    return context.store.state.view === "lines" && lines ? linesPicture(lines, shown) : matrixPicture(shown);
  };
  const save = (ending: string, make: () => BlobPart | Promise<Blob>, type: string) => async (): Promise<void> => {
    try {
      offer(fileName(context.shown(), ending), new Blob([await make()], { type }));
      context.announce(`${ending.toUpperCase()} is saved`);
    } catch (error) {
      context.announce(error instanceof Error ? error.message : String(error));
    }
  };
  const files: [string, () => Promise<void>][] = [
    ["PNG", save("png", () => png(picture()), "image/png")],
    ["SVG", save("svg", () => svgText(picture()), "image/svg+xml")],
    ["CSV", save("csv", () => `\ufeff${csv(context.shown())}`, "text/csv")],
    ["NPZ", save("npz", () => arrays(context.shown()) as Uint8Array<ArrayBuffer>, "application/octet-stream")],
  ];
  bar.append(make("span", {}, "Save"), ...files.map(([name, act]) => button(name, () => void act())));
  const { origin } = context.page;
  if (origin) {
    const copy = (write: typeof python) => (): void => {
      code.textContent = write(origin.run, context.session.whole(context.store.state.ask), context.shown(), context.store.state);
      code.hidden = false;
      void navigator.clipboard?.writeText(code.textContent).then(() => context.announce("copied"), () => code.focus());
    };
    bar.append(make("span", {}, "Copy as"), button("Python", copy(python)), button("Command", copy(command)));
  }
  bar.append(code);
  return bar;
}
