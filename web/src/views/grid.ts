// The head grid: every head of a part as a small picture, with scores. Pointing at a head shows it large, a click chooses
// it, and a second head is drawn beside the chosen one, with their difference.

import { button, make, press } from "../core/dom.ts";
import { repainted } from "../core/colours.ts";
import { type HeadPlace, headName, heads, largestDifference, ORDERS, type Order, orderOf, sorted } from "../core/heads.ts";
import { formatNumber } from "../core/scale.ts";
import { scores } from "../core/scores.ts";
import { maskOf, select, type Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import { paintThumbnail } from "../core/thumbnail.ts";
import { grids } from "../core/weights.ts";
import type { Part } from "../data.ts";
import { Peek } from "./peek.ts";
import type { Context, View } from "./view.ts";

const SMALLEST = 36, LARGEST = 88; // pixels of a thumbnail
const AROUND = 12; // its border and the space to the next one
const BETWEEN = 28; // the grid and the large picture
const LONE = 6; // heads in a row, where each layer has one

/** The sizes in pixels: of a thumbnail, of the room for the large picture, which stands beside the grid if it can, and of both. */
interface Sizes {
  columns: number;
  side: number;
  beside: boolean;
  room: number;
  width: number;
}

interface Cell {
  place: HeadPlace;
  element: HTMLElement;
  canvas: HTMLCanvasElement;
}

const same = (one: HeadPlace | null, other: HeadPlace | null): boolean => one?.layer === other?.layer && one?.head === other?.head;

class HeadGrid {
  private readonly grid = make("div", { role: "grid", class: "thumbnails", "aria-label": "Heads: Enter chooses one, Shift+Enter compares it with the chosen one" });
  private readonly box = make("div", { class: "scroll heads-box" }, this.grid);
  private readonly order = make("select", { class: "order" });
  private readonly compare = button("Compare two heads", () => this.toggle(), { title: "Then a click chooses the second head; Shift+click does so at any time" }, false);
  private readonly peek = new Peek();
  private readonly body = make("div", { class: "pair" }, this.box, this.peek.element);
  private cells: Cell[] = [];
  private sizes: Sizes = { columns: 1, side: SMALLEST, beside: true, room: 0, width: 0 };
  private built = "";
  private part: Part | null = null;
  private near: HeadPlace | null = null;
  private focused: HeadPlace | null = null; // the target of Tab
  private revealed: HeadPlace | null = null;
  private comparing = false;

  constructor(private readonly root: HTMLElement, private readonly context: Context) {
    const order = make("label", { class: "choice" }, "Sort by ", this.order);
    const note = make("p", { class: "quiet limits" }, "The small pictures have a scale from 0 to 1. Where they have fewer pixels than cells, a pixel is the largest weight of its cells.");
    root.append(make("div", { class: "controls" }, order, this.compare), this.body, note);
    this.order.addEventListener("change", () => this.keep("grid.sort", this.order.value === "layer" ? "" : this.order.value));
    this.grid.addEventListener("pointermove", ({ target }) => this.approach(this.at(target))); // not when the grid itself moves
    this.grid.addEventListener("pointerleave", () => this.approach(null));
    this.grid.addEventListener("focusin", ({ target }) => {
      this.focused = this.at(target);
      this.approach(this.focused);
      this.mark(this.context.store.state);
    });
    this.grid.addEventListener("focusout", () => this.approach(null));
    this.grid.addEventListener("click", (event) => this.pick(this.at(event.target), event.shiftKey));
    this.grid.addEventListener("keydown", (event) => this.key(event));
    repainted(() => this.root.isConnected && this.cells.forEach((cell) => this.paint(cell)));
  }

  update(state: State): void {
    const { part } = this.context.shown(), order = orderOf(part, state.more["grid.sort"]);
    this.sizes = this.measure(part);
    const built = `${order} ${JSON.stringify(this.sizes)}`;
    if (part !== this.part || built !== this.built) this.build(part, order, built);
    this.mark(state);
    this.peekAt(state);
    this.reveal();
  }

  /** The second head of the comparison. */
  private second({ more }: State): HeadPlace | null {
    const part = this.context.shown().part;
    return heads(part).find((place) => headName(part, place) === more["grid.with"] && !same(place, this.chosen)) ?? null;
  }

  private get chosen(): HeadPlace | null {
    const { layer, heads: own } = this.context.store.state, all = this.context.shown().part.layers[layer];
    if (!all) return null;
    return all.heads.length === 1 ? { layer, head: 0 } : own.length === 1 ? { layer, head: own[0] } : null;
  }

  /** What is kept in the address; "" is left out. */
  private keep(name: string, value: string): void {
    const more = { ...this.context.store.state.more, [name]: value };
    if (!value) delete more[name];
    this.context.store.set({ more });
  }

  private measure(part: Part): Sizes {
    const most = Math.max(...part.layers.map((layer) => layer.heads.length)), columns = most > 1 ? most : Math.min(LONE, part.layers.length);
    const width = this.root.closest(".wide") ? this.root.clientWidth : Math.min(1150, innerWidth - 100);
    const beside = columns * (SMALLEST + AROUND) <= 0.56 * width, own = beside ? 0.56 * width : width;
    const side = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(own / columns) - AROUND));
    return { columns, side, beside, width, room: beside ? width - columns * (side + AROUND) - BETWEEN : width };
  }

  private build(part: Part, order: Order, built: string): void {
    const first = part !== this.part, within = this.grid.contains(document.activeElement);
    if (first) this.order.replaceChildren(...ORDERS.filter(({ offered }) => offered(part)).map(({ name, title }) => make("option", { value: name }, title)));
    this.order.value = order;
    const cells = new Map(this.cells.map((cell) => [headName(part, cell.place), cell]));
    this.cells = sorted(part, order).map((place) => {
      const old = first ? undefined : cells.get(headName(part, place));
      return old ?? this.cell(place);
    });
    [this.part, this.built, this.revealed] = [part, built, null];
    this.root.style.setProperty("--letters", String(Math.max(...this.cells.map(({ place }) => headName(part, place).length))));
    this.root.style.setProperty("--thumbnail", `${this.sizes.side}px`);
    this.body.classList.toggle("beside", this.sizes.beside);
    const lines: HTMLElement[] = [];
    this.cells.forEach((cell, at) => {
      this.paint(cell);
      this.name(part, cell, order);
      if (at % this.sizes.columns === 0) lines.push(make("div", { role: "row" }));
      lines[lines.length - 1].append(cell.element);
    });
    this.grid.replaceChildren(...lines);
    if (within) this.cells.find(({ place }) => same(place, this.focused))?.element.focus();
  }

  private cell(place: HeadPlace): Cell {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const element = make("div", { role: "gridcell", class: "thumbnail", tabindex: -1 }, make("span", { class: "plate" }, canvas), make("b", {}), make("small", {}));
    return { place, canvas, element };
  }

  private paint({ place, canvas }: Cell): void {
    const { part } = this;
    if (!part) return;
    const layer = part.layers[place.layer];
    paintThumbnail(canvas, grids(part, layer)[place.head], maskOf(part, [layer]), part.columns.length, this.sizes.side);
  }

  /** Writes the name of a head, and the score by which the heads are sorted. */
  private name(part: Part, { place, element }: Cell, order: Order): void {
    const found = scores(part, grids(part, part.layers[place.layer])[place.head]), by = ORDERS.find(({ name }) => name === order);
    element.children[1].textContent = headName(part, place);
    element.children[2].textContent = by?.score ? short(by.score(found)) : "";
  }

  /** What the state would show of one head. */
  private shownOf({ layer, head }: HeadPlace): Shown {
    const { store, session, page } = this.context;
    return select(session.drawn, { ...store.state, layer, heads: [head] }, page.vmax);
  }

  /** The scores of a head in words. */
  private words(place: HeadPlace): string {
    const { part } = this.context.shown(), found = scores(part, grids(part, part.layers[place.layer])[place.head]);
    return ORDERS.flatMap(({ score, word, offered }) => (score && offered(part) ? [`${word} ${short(score(found))}`] : [])).join(" · ");
  }

  /** The target of Tab, the chosen head and the one that it is compared with. */
  private mark(state: State): void {
    const { chosen } = this, second = this.second(state), target = this.cells.find(({ place }) => same(place, this.focused ?? chosen)) ?? this.cells[0];
    press(this.compare, this.comparing || second !== null);
    for (const { place, element } of this.cells) {
      const main = same(place, chosen), other = same(place, second);
      element.tabIndex = element === target?.element ? 0 : -1;
      element.setAttribute("aria-selected", String(main || other));
      element.classList.toggle("second", other);
      const role = main ? ", chosen" : other ? ", compared with the chosen one" : "";
      element.setAttribute("aria-label", `${headName(this.context.shown().part, place)}${role}: ${this.words(place)}`);
    }
  }

  /** Scrolls the grid alone, so that the chosen head is seen. */
  private reveal(): void {
    const plate = this.cells.find(({ place }) => same(place, this.chosen))?.element;
    if (!plate || same(this.chosen, this.revealed)) return;
    this.revealed = this.chosen;
    const spot = plate.getBoundingClientRect(), view = this.box.getBoundingClientRect();
    this.box.scrollTop += Math.min(0, spot.top - view.top) + Math.max(0, spot.bottom - view.bottom);
    this.box.scrollLeft += Math.min(0, spot.left - view.left) + Math.max(0, spot.right - view.right);
  }

  private approach(place: HeadPlace | null): void {
    if (same(place, this.near)) return;
    this.near = place;
    this.peekAt(this.context.store.state);
  }

  /** Draws the head under the pointer or the focus, else the chosen one; while comparing, beside the chosen one. */
  private peekAt(state: State): void {
    const shown = this.context.shown(), comparing = this.comparing || this.second(state) !== null;
    const second = comparing ? (same(this.near, this.chosen) ? null : this.near) ?? this.second(state) : null;
    const main = !comparing && this.near ? this.shownOf(this.near) : shown, other = second ? this.shownOf(second) : null;
    const place = this.near ?? this.chosen, words = comparing ? "Choose the second head." : place ? this.words(place) : "";
    this.body.classList.toggle("comparing", comparing);
    this.peek.draw(main, other, words, comparing ? this.sizes.width : this.sizes.room, { row: state.row, column: state.column });
  }

  private at(target: EventTarget | null): HeadPlace | null {
    const element = target instanceof Element ? target.closest("[role=gridcell]") : null;
    return this.cells.find((cell) => cell.element === element)?.place ?? null;
  }

  private toggle(): void {
    const second = this.second(this.context.store.state);
    this.comparing = !(this.comparing || second);
    if (second) this.keep("grid.with", "");
    else this.update(this.context.store.state);
    if (this.comparing) this.context.announce("Choose the second head.");
  }

  private pick(place: HeadPlace | null, compares: boolean): void {
    if (!place) return;
    const { store } = this.context, { part } = this.context.shown();
    if (!compares && !this.comparing && !this.second(store.state)) {
      store.set({ layer: place.layer, heads: part.layers[place.layer].heads.length > 1 ? [place.head] : [] });
      return;
    }
    if (same(place, this.chosen)) return;
    const name = headName(part, place);
    this.near = null;
    this.comparing = false; // the second head says that two are compared, so that Back ends it
    this.keep("grid.with", store.state.more["grid.with"] === name ? "" : name);
    const other = this.second(this.context.store.state);
    if (other) this.context.announce(largestDifference(this.context.shown(), this.shownOf(other)));
  }

  private key(event: KeyboardEvent): void {
    const now = this.cells.findIndex(({ element }) => element === event.target), { cells, sizes: { columns } } = this;
    if (now < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const line = now - (now % columns), last = cells.length - 1;
    const moves: Record<string, number> = {
      ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: now - columns, ArrowDown: now + columns,
      Home: line, End: Math.min(last, line + columns - 1), PageUp: now % columns, PageDown: last - (last % columns) + (now % columns),
    };
    if (event.key === "Enter" || event.key === " ") this.pick(cells[now].place, event.shiftKey);
    else if (event.key === "Escape") cells[now].element.blur();
    else if (event.key in moves && !event.shiftKey) {
      const to = moves[event.key];
      if (cells[to]) cells[to].element.focus();
      else if (event.key === "PageDown") cells[last].element.focus();
    } else return;
    event.preventDefault();
  }
}

const short = (value: number): string => formatNumber(Number(value.toPrecision(2)));

export const grid: View = {
  name: "grid",
  title: "Heads",
  place: "main",
  available: (context) => context.full && context.shown().part.layers.reduce((sum, layer) => sum + layer.heads.length, 0) > 1,
  mount(root, context) {
    const drawing = new HeadGrid(root, context);
    return (state) => drawing.update(state);
  },
};
