// The lines: queries on the left, keys on the right, one colour for each head.

import { apart, isUnknown } from "../core/axes.ts";
import { draw, make } from "../core/dom.ts";
import { COLOURS, formatNumber, share } from "../core/scale.ts";
import { describe, sentence, type Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import { type Context, goStep, type View } from "./view.ts";

type Side = "row" | "column";
interface Near { side: Side; index: number }
interface Line { strength: number; weight: number; head: number; i: number; j: number; rank: number }

class Lines {
  readonly svg = draw("svg", { class: "lines", role: "group", "aria-label": "Attention as lines: arrow keys move between tokens" });
  readonly box = make("div", { class: "scroll stage" });
  readonly limits = make("p", { class: "quiet limits" });
  private near: Near | null = null;

  constructor(private readonly context: Context) {
    this.box.append(this.svg);
    this.svg.addEventListener("mouseover", ({ target }) => {
      const token = this.token(target);
      if (!token && !this.near) return;
      this.near = token;
      this.draw();
    });
    this.svg.addEventListener("mouseleave", () => { this.near = null; this.draw(); });
    this.svg.addEventListener("click", ({ target }) => {
      const token = this.token(target);
      if (token?.side === "row" && this.context.shown().stepped) goStep(this.context, token.index);
    });
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  private token(target: EventTarget | null): Near | null {
    const { side, index } = target instanceof SVGElement ? target.dataset : {};
    return side ? { side: side as Side, index: Number(index) } : null;
  }

  private key(event: KeyboardEvent): void {
    const token = this.token(event.target), shown = this.context.shown();
    if (!token || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { side, index } = token;
    const beside: Record<string, Near> = {
      ArrowUp: { side, index: index - 1 }, ArrowDown: { side, index: index + 1 },
      ArrowLeft: { side: "row", index }, ArrowRight: { side: "column", index },
      Home: { side, index: 0 }, End: { side, index: Infinity },
    };
    if (event.key in beside) this.approach(beside[event.key]);
    else if (event.key === "Escape") {
      (event.target as SVGElement).blur();
      this.near = null;
      this.draw();
    } else if (event.key === "Enter" && shown.stepped && side === "row") goStep(this.context, index);
    else return;
    event.preventDefault();
  }

  /** Draws the lines of one token and says what they are. */
  private approach({ side, index }: Near): void {
    const { part } = this.context.shown(), count = (side === "row" ? part.rows : part.columns).length;
    this.near = { side, index: Math.max(0, Math.min(count - 1, index)) };
    if (side === "row") this.context.store.set({ row: this.near.index }, "none");
    this.draw();
    this.context.announce(sentence(this.context.shown(), side, this.near.index));
  }

  /** The strongest lines of each row, weakest first: as strongest_lines in view_data.py. */
  private strongest(shown: Shown, lit: (line: Line) => boolean, focused: boolean): { kept: Line[]; of: number } {
    const { faintest, most } = this.context.page, columns = shown.part.columns.length, found: Line[] = [];
    shown.tables.forEach((grid, head) => shown.part.rows.forEach((_, i) => {
      if (shown.hidden?.rows.has(i)) return;
      const order = shown.part.columns.map((_, j) => j).filter((j) => !shown.hidden?.columns.has(j));
      order.sort((a, b) => grid[i * columns + b] - grid[i * columns + a]).forEach((j, rank) => {
        const weight = grid[i * columns + j], strength = share(weight, shown.bound);
        if (strength >= faintest) found.push({ strength, weight, head, i, j, rank });
      });
    }));
    found.sort((a, b) => (focused ? Number(lit(b)) - Number(lit(a)) : 0) || a.rank - b.rank || b.strength - a.strength);
    return { kept: found.slice(0, most).sort((a, b) => a.strength - b.strength), of: found.length };
  }

  draw(state: State = this.context.store.state): void {
    const shown = this.context.shown(), { part } = shown, { near } = this;
    const count = Math.max(part.rows.length, part.columns.length), pitch = count > 60 ? 17 : 24;
    const widest = (axis: "rows" | "columns"): number => Math.min(200, 24 + 8 * part.widest[axis]);
    const room = shown.stepped ? this.box.clientWidth - 8 : 800; // the tokens stand at both ends of the lines
    const left = widest("rows"), right = left + Math.max(180, Math.min(460, room - left - widest("columns")));
    const several = shown.tables.length, y = (i: number): number => 8 + (i + 0.5) * pitch;
    const beside = (h: number): number => (several > 1 ? (h / (several - 1) - 0.5) * Math.min(9, 2.4 * several) : 0);
    const focus: Near | null = near ?? (shown.stepped ? { side: "row", index: state.step } : null);
    const lit = ({ i, j }: Line): boolean => !focus || (focus.side === "row" ? i : j) === focus.index;
    const { kept, of } = this.strongest(shown, lit, focus !== null);
    const least = formatNumber(Number((this.context.page.faintest * shown.bound).toPrecision(3)));
    const fewer = kept.length < of ? `${kept.length} of ${of} lines are drawn: the strongest of each row${focus ? ", and all of the chosen token" : ""}. ` : "";
    this.limits.textContent = `${fewer}Weights below ${least} have no line.`;
    const own = shown.layers[0].heads, layer = shown.layers[0].number;
    const lines = kept.map((one) => draw("line", {
      x1: left, x2: right, y1: y(one.i) + beside(one.head), y2: y(one.j) + beside(one.head), stroke: `var(--h${shown.hues[one.head] % COLOURS})`,
      "stroke-opacity": (one.strength * (lit(one) ? 1 : near ? 0.04 : 0.22)).toFixed(3),
      "data-tip": describe(shown, one.i, one.j, one.weight, several > 1 ? `${layer === null ? "" : `L${layer} · `}H${own[shown.hues[one.head]]}` : shown.where),
    }));
    const within = this.svg.contains(document.activeElement), target = near ?? { side: "row", index: state.row }; // what Tab reaches
    const names = (pieces: string[], side: Side, x: number, kind: string): SVGTextElement[] => pieces.map((name, index) => {
      const here = target.side === side && target.index === index, ring = isUnknown(part, `${side}s`, index) ? " unknown" : "";
      const now = focus?.side === side && focus.index === index ? " now" : "";
      const gone = shown.hidden?.[`${side}s`].has(index) ? " gone" : "";
      return draw("text", {
        x, y: y(index) + 4, class: `${kind}${ring}${now}${gone}`, "data-side": side, "data-index": index,
        role: "img", tabindex: here ? 0 : -1, "aria-label": sentence(shown, side, index),
      }, apart(name));
    });
    this.svg.setAttribute("width", String(right + widest("columns")));
    this.svg.setAttribute("height", String(count * pitch + 16));
    this.svg.replaceChildren(...lines, ...names(part.labels.rows, "row", left - 9, "end"), ...names(part.labels.columns, "column", right + 9, ""));
    for (const text of this.svg.querySelectorAll<SVGTextElement>(".unknown")) {
      const { x, y, width, height } = text.getBBox();
      text.before(draw("rect", { class: "ring", x: x - 4, y, width: width + 8, height, rx: 8 }));
    }
    if (within) this.svg.querySelector<SVGElement>("[tabindex='0']")?.focus();
  }
}

export const lines: View = {
  name: "lines",
  title: "Lines",
  place: "main",
  available: ({ full }) => full,
  mount(root, context) {
    const drawing = new Lines(context);
    root.append(drawing.box, drawing.limits);
    return (state) => drawing.draw(state);
  },
};
