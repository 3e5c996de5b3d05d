// The matrix: a grid of cells that the arrow keys enter. A row is a query, a column a key.

import { type Axis, isUnknown } from "../core/axes.ts";
import { chosen } from "../core/chosen.ts";
import { make } from "../core/dom.ts";
import { places } from "../core/places.ts";
import { share } from "../core/scale.ts";
import { at, describe, hottest, isMasked, type Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import { tell } from "../core/tip.ts";
import { LargeMatrix } from "./large.ts";
import { chooseCell, type Context, goStep, type View } from "./view.ts";

const SHADES = 255; // a cell is drawn again only if another of so many shades is its own
const MOST = 4096; // cells of a table; more are on a canvas

class Matrix {
  readonly table = make("table", { class: "matrix", role: "grid", "aria-label": "Attention weights" });
  readonly box = make("div", { class: "scroll stage" }, this.table);
  private shown: Shown | null = null;
  private cells: HTMLTableCellElement[] = [];
  private looks: number[] = []; // how dark each cell is; -1: it is hatched
  private rows: number[] = []; // the places that are shown
  private columns: number[] = [];

  constructor(private readonly context: Context) {
    tell(this.table, (target) => {
      const spot = this.spot(target);
      return spot && this.shown ? [spot.cell, describe(this.shown, spot.row, spot.column)] : null;
    });
    this.table.addEventListener("focusin", ({ target }) => {
      const spot = this.spot(target);
      if (!spot || !this.shown) return;
      this.move(spot.row, spot.column);
    });
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.table.addEventListener("mousedown", (event) => {
      const line = event.target instanceof Element ? event.target.closest<HTMLTableRowElement>("tbody tr") : null;
      const spot = this.spot(event.target);
      if (spot && this.context.engine) chooseCell(this.context, spot.row, spot.column, "step");
      if (!line || !this.shown?.stepped) return;
      event.preventDefault(); // a click selects the step; the arrow keys still move between steps
      if (spot && this.context.engine) return;
      if (spot) this.context.store.set({ column: spot.column }, "none");
      goStep(this.context, this.rows[line.sectionRowIndex]);
    });
  }

  update(state: State): void {
    const shown = this.context.shown();
    if (shown !== this.shown) {
      if (this.differs(shown)) this.build(shown);
      this.paint(shown);
      this.shown = shown;
    }
    this.mark(state, shown);
  }

  /** Whether the axes are other ones than those of the table. */
  private differs(shown: Shown): boolean {
    const now = this.shown;
    return !now || now.part !== shown.part || now.stepped !== shown.stepped || (now.hidden === null) !== (shown.hidden === null);
  }

  private build(shown: Shown): void {
    const { part } = shown;
    [this.rows, this.columns] = [places(shown, "rows"), places(shown, "columns")];
    const name = (axis: Axis, index: number): HTMLElement =>
      make("span", isUnknown(part, axis, index) ? { class: "unknown", title: "not in the vocabulary" } : {}, part.labels[axis][index]);
    const corner = make("td", { role: "presentation", class: "corner" });
    const head = make("tr", { role: "row" }, corner);
    for (const j of this.columns) head.append(make("th", { scope: "col", class: part.tall ? "tall" : "", dir: "auto" }, name("columns", j)));
    const body = make("tbody");
    [this.cells, this.looks] = [[], []];
    for (const i of this.rows) {
      const line = make("tr", { role: "row" }, make("th", { scope: "row", dir: "auto" }, name("rows", i)));
      for (const _ of this.columns) this.cells.push(line.appendChild(make("td", { role: "gridcell", tabindex: -1 })));
      body.append(line);
    }
    this.table.replaceChildren(make("thead", {}, head), body);
    const beside = shown.stepped || this.context.engine !== null; // there is a column beside it; a page without one is as wide as its matrix
    const room = Math.max(160, this.context.full ? (beside ? this.box.clientWidth - 8 * part.widest.rows - 28 : 800) : this.context.room - 8 * part.widest.rows);
    const side = Math.floor(room / Math.max(1, this.columns.length)) - 1;
    this.table.style.setProperty("--side", `${Math.max(14, Math.min(this.context.full ? 36 : 30, side))}px`);
    const header = this.table.tHead?.offsetHeight ?? 0;
    this.box.style.scrollPadding = `${header}px 4px 4px ${corner.offsetWidth}px`; // of a focused cell
  }

  private paint(shown: Shown): void {
    const across = this.columns.length;
    this.cells.forEach((cell, place) => {
      const i = this.rows[Math.floor(place / across)], j = this.columns[place % across];
      const look = isMasked(shown, i, j) ? -1 : Math.round(SHADES * share(at(shown, i, j), shown.vmax));
      if (look !== this.looks[place]) {
        if (look < 0 || this.looks[place] < 0) cell.className = look < 0 ? "masked" : "";
        cell.style.setProperty("--share", String(Math.max(0, look) / SHADES));
        this.looks[place] = look;
      }
      cell.setAttribute("aria-label", describe(shown, i, j));
    });
  }

  /** The target of Tab, the row of the step and the column that it looks at most. */
  private mark(state: State, shown: Shown): void {
    const old = this.table.querySelector("td[tabindex='0']"), now = this.cell(state.row, state.column) ?? this.cells[0];
    if (old !== now) {
      old?.setAttribute("tabindex", "-1");
      now?.setAttribute("tabindex", "0");
    }
    this.table.querySelector("td.chosen")?.classList.remove("chosen");
    if (this.context.engine && state.panel === "cell") {
      const { row, column } = chosen(state, shown);
      this.cell(row, column)?.classList.add("chosen");
    }
    const lines = this.table.tBodies[0].rows, hot = shown.stepped ? hottest(shown, state.step) : -1;
    [...lines].forEach((line, i) => (shown.stepped ? line.setAttribute("aria-selected", String(this.rows[i] === state.step)) : line.removeAttribute("aria-selected")));
    [...(this.table.tHead?.rows[0].cells ?? [])].forEach((head, j) => head.classList.toggle("hot", j > 0 && this.columns[j - 1] === hot));
    const line = lines[this.rows.indexOf(state.step)];
    if (shown.stepped && line) this.follow(line);
  }

  /** Scrolls within the box, so that the sticky header does not cover the row. */
  private follow(line: HTMLElement): void {
    const spot = line.getBoundingClientRect(), { top } = this.box.getBoundingClientRect();
    const above = spot.top - top - (this.table.tHead?.offsetHeight ?? 0), below = spot.bottom - top - this.box.clientHeight;
    if (above < 0) this.box.scrollTop += above;
    else if (below > 0) this.box.scrollTop += below;
  }

  private cell(row: number, column: number): HTMLTableCellElement | undefined {
    const i = this.rows.indexOf(row), j = this.columns.indexOf(column);
    return i < 0 || j < 0 ? undefined : this.cells[i * this.columns.length + j];
  }

  private spot(target: EventTarget | null): { cell: HTMLTableCellElement; row: number; column: number } | null {
    const cell = target instanceof Element ? target.closest<HTMLTableCellElement>("tbody td") : null;
    if (!cell) return null;
    const line = cell.parentNode as HTMLTableRowElement;
    return { cell, row: this.rows[line.sectionRowIndex], column: this.columns[cell.cellIndex - 1] };
  }

  /** The cursor; the view of one cell follows it. */
  private move(row: number, column: number): void {
    if (this.context.engine && this.context.store.state.panel === "cell") chooseCell(this.context, row, column, "step");
    else this.context.store.set({ row, column }, "none");
  }

  private key(event: KeyboardEvent): void {
    const spot = this.spot(event.target);
    if (!spot || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const i = this.rows.indexOf(spot.row), j = this.columns.indexOf(spot.column), page = 10;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], ArrowUp: [i - 1, j], ArrowDown: [i + 1, j],
      Home: [i, 0], End: [i, Infinity], PageUp: [i - page, j], PageDown: [i + page, j],
    };
    if (event.key === "Escape") spot.cell.blur();
    else if (event.key === "Enter" && this.context.engine) {
      chooseCell(this.context, spot.row, spot.column, "step");
      this.context.store.set({ panel: "cell" });
    }
    else if (event.key in moves) {
      const [row, column] = moves[event.key];
      const inside = (place: number, all: number[]): number => all[Math.max(0, Math.min(all.length - 1, place))];
      const [to, across] = [inside(row, this.rows), inside(column, this.columns)];
      this.cell(to, across)?.focus();
      if (this.shown?.stepped) goStep(this.context, to);
    } else return;
    event.preventDefault();
  }
}

export const matrix: View = {
  name: "matrix",
  title: "Matrix",
  place: "main",
  available: () => true,
  mount(root, context) {
    const table = new Matrix(context), large = new LargeMatrix(context);
    return (state) => {
      const shown = context.shown(), many = shown.part.rows.length * shown.part.columns.length > MOST;
      const { box } = many ? large : table;
      if (box.parentNode !== root) root.replaceChildren(box);
      if (many) large.update(shown, state);
      else table.update(state);
    };
  },
};
