// A matrix on a canvas, for one that is too large for an element a cell, or one of several. One element lies over the
// cell under the pointer or the focus: it has the tip, and the name that a screen reader says.

import { type Axis, isUnknown } from "./axes.ts";
import { colours, css, repainted } from "./colours.ts";
import { make } from "./dom.ts";
import { places } from "./places.ts";
import { at, describe, isMasked, type Shown } from "./shown.ts";

const LETTERS = 13; // pixels that a name needs across its direction
const PAGE = 10;

export interface Place {
  row: number;
  column: number;
}

type Says = (shown: Shown, row: number, column: number) => string;

/** Cells of a given side in pixels; the names of tokens are thinned out where cells are small. */
export class Heat {
  private readonly canvas = make("canvas", { "aria-hidden": "true" });
  private readonly spot = make("div", { role: "gridcell", class: "spot", tabindex: 0 });
  private readonly line = make("div", { role: "row" }, this.spot);
  private readonly grid = make("div", { role: "grid", class: "cells" }, this.line);
  private readonly now = make("div", { class: "step", hidden: true });
  private readonly across = make("div", { class: "across", "aria-hidden": "true" });
  private readonly down = make("div", { class: "down", "aria-hidden": "true" });
  readonly element = make("div", { class: "heat" }, make("div", { class: "corner" }), this.across, this.down,
    make("div", { class: "plot" }, this.canvas, this.now, this.grid));
  private shown: Shown | null = null;
  private says: Says = describe;
  private axes = "";
  private pitch = 1; // of a cell, in pixels of the style sheet
  private rows: number[] = [];
  private columns: number[] = [];
  private place: Place = { row: 0, column: 0 };

  /** `entered` is told of the cell that has the focus, `clicked` of one that was clicked. */
  constructor(label: string, private readonly entered: (place: Place) => void, clicked: (place: Place) => void = () => undefined) {
    this.grid.setAttribute("aria-label", label);
    const plot = this.canvas.parentElement;
    plot?.addEventListener("pointermove", (event) => this.point(event));
    plot?.addEventListener("pointerdown", (event) => {
      this.point(event);
      clicked(this.place);
    });
    plot?.addEventListener("pointerleave", () => this.element.classList.remove("pointed"));
    this.spot.addEventListener("focus", () => this.entered(this.place));
    this.spot.addEventListener("keydown", (event) => this.key(event));
    repainted(() => this.element.isConnected && this.paint());
  }

  /** Draws a table with cells of `side` pixels. `step` is the row of the step; -1: there is none. `says` makes the tips. */
  draw(shown: Shown, side: number, place: Place, step = -1, says: Says = describe): void {
    this.says = says;
    const axes = `${side} ${shown.hidden === null}`;
    if (shown.part !== this.shown?.part || axes !== this.axes) this.build(shown, side);
    const fresh = shown !== this.shown;
    [this.shown, this.axes] = [shown, axes];
    if (fresh) this.paint();
    const at = this.rows.indexOf(step);
    this.now.hidden = at < 0;
    this.now.style.top = `${at * this.pitch}px`;
    this.now.style.height = `${this.pitch}px`;
    this.go(this.element.classList.contains("pointed") ? this.place : place);
  }

  private build(shown: Shown, side: number): void {
    const { part } = shown;
    [this.rows, this.columns] = [places(shown, "rows"), places(shown, "columns")];
    const sharp = devicePixelRatio || 1;
    this.pitch = Math.max(1, Math.round(side * sharp)) / sharp;
    const every = Math.ceil(LETTERS / this.pitch), upright = part.tall || this.pitch < 16;
    const names = (axis: Axis, of: number[]): HTMLElement[] => of.flatMap((index, order) => {
      if (order % every) return [];
      const ring = isUnknown(part, axis, index);
      const name = make("span", ring ? { class: "unknown" } : {}, part.labels[axis][index]);
      return [make("span", { class: "name", dir: "auto", "--from": `${order * this.pitch}px` }, name)];
    });
    this.element.style.setProperty("--pitch", `${this.pitch}px`);
    this.element.classList.toggle("upright", upright);
    this.element.style.setProperty("--across", `${upright ? Math.min(160, 12 + 8 * part.widest.columns) : 20}px`);
    this.element.style.setProperty("--down", `${Math.min(200, 12 + 8 * part.widest.rows)}px`);
    this.across.replaceChildren(...names("columns", this.columns));
    this.down.replaceChildren(...names("rows", this.rows));
    this.grid.setAttribute("aria-rowcount", String(this.rows.length));
    this.grid.setAttribute("aria-colcount", String(this.columns.length));
  }

  private paint(): void {
    const { canvas, shown, rows, columns } = this, sharp = devicePixelRatio || 1, side = Math.round(this.pitch * sharp);
    if (!shown) return;
    [canvas.width, canvas.height] = [Math.max(1, columns.length * side), Math.max(1, rows.length * side)];
    canvas.style.width = `${canvas.width / sharp}px`;
    canvas.style.height = `${canvas.height / sharp}px`;
    const brush = canvas.getContext("2d", { alpha: false });
    if (!brush) return;
    const { more, less, ground, hatch } = colours(), gap = side >= 5 * sharp ? Math.round(sharp) : 0;
    const inks = [more, less].map((scale) => scale.map(css));
    const stripes = shown.anyMasked ? striped(brush, css(hatch), inks[0][0], 5 * sharp) : null;
    brush.fillStyle = gap ? css(ground) : inks[0][0];
    brush.fillRect(0, 0, canvas.width, canvas.height);
    rows.forEach((i, y) => columns.forEach((j, x) => {
      const weight = at(shown, i, j), depth = Math.min(255, Math.round((255 * Math.abs(weight || 0)) / shown.vmax));
      const masked = stripes !== null && isMasked(shown, i, j);
      if (!gap && !masked && depth === 0) return;
      brush.fillStyle = masked ? stripes : inks[weight < 0 ? 1 : 0][depth];
      brush.fillRect(x * side, y * side, side - gap, side - gap);
    }));
  }

  private point(event: PointerEvent): void {
    const box = this.canvas.getBoundingClientRect();
    const inside = (offset: number, all: number[]): number => all[Math.max(0, Math.min(all.length - 1, Math.floor(offset / this.pitch)))];
    this.element.classList.add("pointed");
    this.go({ row: inside(event.clientY - box.top, this.rows), column: inside(event.clientX - box.left, this.columns) });
    this.tell();
  }

  /** Moves the one element of a cell to a cell. */
  private go(place: Place): void {
    const { shown } = this;
    if (!shown) return;
    const [y, x] = [Math.max(0, this.rows.indexOf(place.row)), Math.max(0, this.columns.indexOf(place.column))];
    this.place = { row: this.rows[y], column: this.columns[x] };
    const text = this.rows.length && this.columns.length ? this.says(shown, this.place.row, this.place.column) : "";
    this.spot.setAttribute("aria-label", text);
    this.spot.setAttribute("data-tip", text);
    this.spot.setAttribute("aria-colindex", String(x + 1));
    this.line.setAttribute("aria-rowindex", String(y + 1));
    this.spot.style.transform = `translate(${x * this.pitch}px, ${y * this.pitch}px)`;
  }

  /** Shows the tip: for the browser, the pointer and the focus stay on one element. */
  private tell(): void {
    this.spot.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  }

  private key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const y = this.rows.indexOf(this.place.row), x = this.columns.indexOf(this.place.column);
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1], ArrowUp: [y - 1, x], ArrowDown: [y + 1, x],
      Home: [y, 0], End: [y, Infinity], PageUp: [y - PAGE, x], PageDown: [y + PAGE, x],
    };
    if (event.key === "Escape") this.spot.blur();
    else if (event.key in moves) {
      const inside = (to: number, all: number[]): number => all[Math.max(0, Math.min(all.length - 1, to))];
      const [down, across] = moves[event.key];
      this.go({ row: inside(down, this.rows), column: inside(across, this.columns) });
      this.entered(this.place);
      this.spot.scrollIntoView({ block: "nearest", inline: "nearest" });
      this.tell();
    } else return;
    event.preventDefault();
  }
}

/** A pattern of diagonal stripes: a masked cell. */
function striped(brush: CanvasRenderingContext2D, ink: string, ground: string, period: number): CanvasPattern | string {
  const side = Math.max(3, Math.round(period)), tile = make("canvas", { width: side, height: side }), own = tile.getContext("2d");
  if (!own) return ground;
  own.fillStyle = ground;
  own.fillRect(0, 0, side, side);
  own.fillStyle = ink;
  for (let at = 0; at < side; at++) for (let wide = 0; wide < Math.max(1, Math.round(side * 0.3)); wide++) own.fillRect((at + wide) % side, side - 1 - at, 1, 1);
  return brush.createPattern(tile, "repeat") ?? ground;
}
