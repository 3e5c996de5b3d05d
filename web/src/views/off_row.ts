// The weights of one row as bars that can be dragged, or set with keys.

import { looks, named } from "../core/axes.ts";
import { rebalanced } from "../core/changes.ts";
import { make } from "../core/dom.ts";
import { formatNumber } from "../core/scale.ts";
import type { Part } from "../data.ts";

const HEIGHT = 90; // pixels of the weight 1
const STEPS: Record<string, number> = { ArrowUp: 0.05, ArrowDown: -0.05, PageUp: 0.2, PageDown: -0.2 };

export interface Row {
  part: Part;
  row: number;
  weights: number[];
  /** Which keys the row may look at. */
  seen: boolean[];
}

/** `set` gets the new weights; `done` is false while a bar is being dragged. */
export class RowBars {
  readonly list = make("ol", { class: "bars drag" });
  private readonly keep = make("input", { type: "checkbox", checked: true });
  private readonly sum = make("span", { class: "quiet sum" });
  readonly below = make("p", { class: "quiet" }, make("label", { class: "tick" }, this.keep, " keep the sum at 1: the other weights are scaled"), " ", this.sum);
  private shown: Row | null = null;
  private drag: { at: number; from: number[]; last: number[] } | null = null;
  private focus = 0;

  constructor(private readonly set: (weights: number[], done: boolean) => void) {
    this.list.addEventListener("pointerdown", (event) => this.press(event));
    this.list.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"] as const) this.list.addEventListener(end, () => this.release());
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("focusin", ({ target }) => {
      const at = target instanceof Element ? this.sliders.indexOf(target as HTMLElement) : -1;
      if (at >= 0) this.rove(at);
    });
  }

  draw(row: Row): void {
    const same = this.shown?.part === row.part || (this.shown?.part.columns.join("\n") === row.part.columns.join("\n"));
    this.shown = row;
    if (!same || this.list.children.length !== row.weights.length) this.build(row);
    this.focus = Math.min(this.focus, row.weights.length - 1);
    this.list.setAttribute("aria-label", `Weights: ${looks(row.part, row.row)} each token`);
    row.weights.forEach((weight, j) => this.paint(j, weight, row));
    const total = row.weights.reduce((sum, one) => sum + one, 0);
    this.sum.textContent = `Sum: ${formatNumber(Number(total.toFixed(3)))}.`;
  }

  private get sliders(): HTMLElement[] {
    return [...this.list.querySelectorAll<HTMLElement>(".room")];
  }

  private build({ part }: Row): void {
    this.focus = 0;
    this.list.replaceChildren(...part.labels.columns.map((name, j) => {
      const bar = make("span", { class: "room", role: "slider", tabindex: j ? -1 : 0, "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 1, "aria-label": `the weight on ${named(part, "columns", j)}` }, make("span", {}), make("i"));
      return make("li", {}, bar, make("span", { class: "name", dir: "auto", "aria-hidden": "true" }, name));
    }));
  }

  private paint(j: number, weight: number, { seen }: Row): void {
    const bar = this.list.children[j].firstElementChild as HTMLElement, [number, block] = [...bar.children] as HTMLElement[];
    const text = seen[j] ? formatNumber(Number(weight.toFixed(3))) : "may not look";
    bar.setAttribute("aria-valuenow", weight.toFixed(3));
    bar.setAttribute("aria-valuetext", text);
    bar.setAttribute("aria-disabled", String(!seen[j]));
    number.textContent = weight >= 0.005 ? weight.toFixed(2).replace(/^0/, "") : "";
    block.className = seen[j] ? "" : "masked";
    block.style.setProperty("--share", String(Math.min(1, Math.max(0, weight))));
  }

  private rove(at: number): void {
    this.sliders.forEach((one, j) => (one.tabIndex = j === at ? 0 : -1));
    this.focus = at;
  }

  private press(event: PointerEvent): void {
    const bar = event.target instanceof Element ? event.target.closest<HTMLElement>(".room") : null, at = bar ? this.sliders.indexOf(bar) : -1;
    if (at < 0 || !this.shown?.seen[at] || event.button !== 0) return;
    event.preventDefault();
    this.list.setPointerCapture(event.pointerId);
    this.rove(at);
    bar?.focus({ preventScroll: true });
    this.drag = { at, from: [...this.shown.weights], last: this.shown.weights };
    this.move(event);
  }

  private move(event: PointerEvent): void {
    if (!this.drag || !this.shown) return;
    const { bottom } = this.sliders[this.drag.at].getBoundingClientRect(), value = Math.min(1, Math.max(0, (bottom - event.clientY) / HEIGHT));
    this.drag.last = this.weights(this.drag.from, this.drag.at, Number(value.toFixed(2)));
    this.set(this.drag.last, false);
  }

  private release(): void {
    const { drag } = this;
    this.drag = null;
    if (drag) this.set(drag.last, true);
  }

  private weights(from: number[], at: number, value: number): number[] {
    return rebalanced(from, at, value, this.shown?.seen ?? [], !this.keep.checked).map((one) => Number(one.toFixed(6)));
  }

  private key(event: KeyboardEvent): void {
    const at = this.sliders.indexOf(event.target as HTMLElement), last = this.sliders.length - 1;
    if (at < 0 || !this.shown || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const value = { Home: 0, End: 1 }[event.key] ?? this.shown.weights[at] + (STEPS[event.key] ?? 0);
    if (event.key === "Escape") this.sliders[at].blur();
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.sliders[Math.max(0, Math.min(last, at + (event.key === "ArrowLeft" ? -1 : 1)))].focus();
    else if (!(event.key in STEPS) && event.key !== "Home" && event.key !== "End") return;
    else if (this.shown.seen[at]) this.set(this.weights(this.shown.weights, at, Math.min(1, Math.max(0, Number(value.toFixed(2))))), true);
    event.preventDefault();
  }
}
