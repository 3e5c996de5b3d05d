// The difference of two matrices: that of the page as it was made, and that of the answer to what is asked now.

import type { Pair } from "../core/align.ts";
import { type Axis, isUnknown } from "../core/axes.ts";
import { difference, type Difference, signed, tellDifference } from "../core/difference.ts";
import { make } from "../core/dom.ts";
import { formatNumber, share } from "../core/scale.ts";
import { select, type Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import { tell } from "../core/tip.ts";
import type { Context, View } from "./view.ts";

const NAMED = 4096; // up to this many cells have their names before they are entered

class Differences {
  private readonly table = make("table", { class: "matrix", role: "grid", "aria-label": "The change of each weight" });
  private readonly box = make("div", { class: "scroll stage" }, this.table);
  private readonly about = make("p", { class: "quiet" });
  private readonly end = make("span");
  private readonly start = make("span");
  private readonly scale = make("p", { class: "key" }, this.start, " ", make("i", { class: "diverging" }), " ", this.end, " new weight − old weight");
  private old: Shown | null = null;
  private now: Shown | null = null;
  private found: Difference | null = null;
  private cells: HTMLTableCellElement[] = [];

  constructor(root: HTMLElement, private readonly context: Context) {
    root.append(this.about, this.box, this.scale);
    tell(this.table, (target) => {
      const cell = target.closest<HTMLTableCellElement>("tbody td");
      return cell ? [cell, this.text(cell)] : null;
    });
    this.table.addEventListener("focusin", ({ target }) => {
      if (target instanceof HTMLTableCellElement && target.tagName === "TD") this.enter(target);
    });
    this.table.addEventListener("keydown", (event) => this.key(event));
  }

  update(state: State): void {
    const now = this.context.shown();
    if (now === this.now) return;
    const { parts } = this.context.page, at = parts.findIndex(({ name }) => name === now.part.name);
    this.old = select(this.context.page, { ...state, part: Math.max(0, at) });
    this.now = now;
    this.found = difference(this.old, now);
    this.draw(this.old, now, this.found);
  }

  private draw(old: Shown, now: Shown, { rows, columns, values, bound }: Difference): void {
    const name = (axis: Axis, { old: i, now: j, same }: Pair): (Node | string)[] => {
      const label = (tag: "del" | "ins" | "span", shown: Shown, at: number): HTMLElement =>
        make(tag, {}, make("bdi", isUnknown(shown.part, axis, at) ? { class: "unknown" } : {}, shown.part.labels[axis][at]));
      if (same && j !== null) return [label("span", now, j)];
      return [...(i === null ? [] : [label("del", old, i)]), ...(j === null ? [] : [label("ins", now, j)])];
    };
    const tall = old.part.tall || now.part.tall;
    const head = make("tr", { role: "row" }, make("td", { role: "presentation", class: "corner" }), ...columns.map((one) => make("th", { scope: "col", class: tall ? "tall" : "", dir: "auto" }, make("span", {}, ...name("columns", one)))));
    this.cells = [];
    const eager = values.length <= NAMED;
    const body = rows.map((row, i) => {
      const line = make("tr", { role: "row" }, make("th", { scope: "row", dir: "auto" }, ...name("rows", row)));
      columns.forEach((column, j) => {
        const value = values[i * columns.length + j], size = share(Math.abs(value), bound || 1), sign = size > 0.2 ? (value < 0 ? "−" : "+") : "";
        const cell = make("td", { role: "gridcell", tabindex: -1, class: Number.isNaN(value) ? "none" : "", "data-sign": sign, "--share": size.toFixed(3), "--tone": value < 0 ? "var(--warm)" : "var(--ink)" });
        if (eager) cell.setAttribute("aria-label", tellDifference(old, now, row, column));
        this.cells.push(line.appendChild(cell));
      });
      return line;
    });
    this.table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
    const names = this.table.tBodies[0].rows[0]?.cells[0].offsetWidth ?? 0;
    const side = Math.floor(Math.max(160, this.box.clientWidth - names - 12) / Math.max(1, columns.length)) - 1;
    this.table.style.setProperty("--side", `${Math.max(14, Math.min(36, side))}px`);
    this.cells[0]?.setAttribute("tabindex", "0");
    const changed = bound > 5e-7, end = formatNumber(Number(bound.toPrecision(3)));
    this.scale.hidden = !changed;
    this.start.textContent = `−${end}`;
    this.end.textContent = `+${end}`;
    const moved = rows.concat(columns).some(({ same }) => !same) ? " A token that was changed, added or removed has its old name struck out and its new one underlined." : "";
    this.about.textContent = changed ? `The largest change of a weight is ${signed(this.largest(values, bound))}.${moved}` : `No weight of this head changed.${moved}`;
  }

  private largest(values: Float64Array, bound: number): number {
    return Number((values.find((value) => Math.abs(value) === bound) ?? 0).toPrecision(3));
  }

  private text(cell: HTMLTableCellElement): string {
    const at = this.cells.indexOf(cell), across = this.found?.columns.length ?? 1;
    if (at < 0 || !this.found || !this.old || !this.now) return "";
    return tellDifference(this.old, this.now, this.found.rows[Math.floor(at / across)], this.found.columns[at % across]);
  }

  private enter(cell: HTMLTableCellElement): void {
    this.table.querySelector("td[tabindex='0']")?.setAttribute("tabindex", "-1");
    cell.tabIndex = 0;
    cell.setAttribute("aria-label", this.text(cell));
  }

  private key(event: KeyboardEvent): void {
    const at = this.cells.indexOf(event.target as HTMLTableCellElement), across = this.found?.columns.length ?? 1;
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const start = at - (at % across), end = start + across - 1;
    const moves: Record<string, number> = {
      ArrowLeft: Math.max(start, at - 1), ArrowRight: Math.min(end, at + 1), Home: start, End: end,
      ArrowUp: at >= across ? at - across : at, ArrowDown: at + across < this.cells.length ? at + across : at,
    };
    if (event.key === "Escape") this.cells[at].blur();
    else if (event.key in moves) this.cells[moves[event.key]].focus();
    else return;
    event.preventDefault();
  }
}

export const differences: View = {
  name: "difference",
  title: "Difference",
  place: "main",
  scaled: true,
  available: ({ full, session, page }) => full && session.answer !== null && session.drawn !== page,
  mount(root, context) {
    const drawing = new Differences(root, context);
    return (state) => drawing.update(state);
  },
};
