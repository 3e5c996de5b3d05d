// One cell by hand: how the weight of a cell is computed, line by line, in numbers that a calculator can check.

import { looks, named } from "../core/axes.ts";
import { chosen } from "../core/chosen.ts";
import { button, fill, make } from "../core/dom.ts";
import { formatNumber, share } from "../core/scale.ts";
import type { Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import type { Answer, Ask, Cell, Trace, TraceLine } from "../engine/api.ts";
import { arithmetic, type Line } from "./arithmetic.ts";
import { outcome } from "./outcome.ts";
import { strip } from "./steps.ts";
import { chooseCell, type Context, type View } from "./view.ts";

const KEYED = ["logits", "mask", "softmax", "window", "changed"]; // lines with one number for each key

class ByHand {
  private readonly rows = make("select", { "aria-label": "Row: the token that looks" });
  private readonly columns = make("select", { "aria-label": "Column: the token that is looked at" });
  private readonly said = make("p", { class: "told" });
  private readonly note = make("p", { class: "quiet" });
  private readonly scores = make("div", { class: "group", role: "group", "aria-label": "Score" });
  private readonly effect = make("div", { class: "effect" });
  private readonly lines = make("ol", { class: "lines-of" });
  private readonly open = new Set<string>();
  private part: Shown["part"] | null = null;
  private drawn: Trace | null = null;

  constructor(private readonly root: HTMLElement, private readonly context: Context) {
    const choose = (): void => chooseCell(context, Number(this.rows.value), Number(this.columns.value), "choice");
    for (const one of [this.rows, this.columns]) one.addEventListener("change", choose);
    root.append(
      make("div", { class: "controls" },
        make("label", { class: "choice" }, "Row", this.rows), make("label", { class: "choice" }, "looks at", this.columns), this.scores),
      this.said, this.note, this.effect, this.lines);
  }

  draw(state: State): void {
    const shown = this.context.shown(), cell = chosen(state, shown), { part } = shown;
    if (part !== this.part) this.choices(shown);
    this.part = part;
    [this.rows.value, this.columns.value] = [String(cell.row), String(cell.column)];
    const found = this.context.session.beside("cell", { ...state.ask, cell });
    if (found === null) return; // the last picture stays until the answer is there
    const trace = found instanceof Error ? null : found.trace ?? null, row = lineOf(trace), weight = row?.values[row.at ?? 0];
    const where = [part.name, part.layers.length > 1 ? `layer ${cell.layer}` : "", shown.layers[0].heads.length > 1 ? `head ${cell.head}` : ""].filter(Boolean).join(" · ");
    const sentence = `${looks(part, cell.row)} ${named(part, "columns", cell.column)}${weight === undefined ? "" : `: ${formatNumber(weight)}`}`;
    this.said.replaceChildren(make("b", {}, sentence), where ? ` (${where})` : "");
    this.note.textContent = this.remark(found, trace, shown, cell);
    this.choicesOfScore(state, trace);
    this.compare(state, cell, found, shown);
    if (trace === this.drawn) return;
    this.drawn = trace;
    fill(this.lines, arithmetic(trace?.lines ?? []).map((line, place) => this.line(line, place, shown)));
    for (const list of this.root.querySelectorAll<HTMLElement>(".bars")) centre(list);
    if (trace?.lines.length) this.context.announce(`One cell: ${sentence}`);
  }

  private choices({ part }: Shown): void {
    const names = (pieces: string[]): HTMLElement[] => pieces.map((piece, at) => make("option", { value: at }, `${at + 1} ${piece}`));
    this.rows.replaceChildren(...names(part.rows));
    this.columns.replaceChildren(...names(part.columns));
  }

  private remark(found: Answer | Error, trace: Trace | null, shown: Shown, { head }: Cell): string {
    if (found instanceof Error) return `The model gives no answer: ${found.message}.`;
    if (!trace?.lines.length) return "This model has no attention here, so there is no weight to compute.";
    return shown.heads > 1 ? `The matrix shows a mean of ${shown.heads} heads. One cell is computed by one head: here it is head ${head}.` : "";
  }

  /** The scores that can take the place of the model's own. */
  private choicesOfScore({ ask }: State, trace: Trace | null): void {
    const own = String(this.context.page.live?.config.score ?? ""), width = (name: string): number | undefined => trace?.lines.filter((line) => line.name === name).at(-1)?.values.length;
    const query = width("s") ?? width("W^Q x") ?? width("q"), value = width("v");
    const fits = query === value || ask.score !== undefined; // a product needs two vectors of one width
    const titles: Record<string, string> = { dot: "q·k, no ÷√d", scaled_dot: "q·k ÷ √d" };
    const others = (["dot", "scaled_dot"] as const).filter((name) => name !== own && fits);
    this.scores.hidden = !others.length || !own;
    const change = (score: Ask["score"]) => (): void => {
      const { row, column } = chosen(this.context.store.state, this.context.shown());
      chooseCell(this.context, row, column, "step"); // the same cell with both scores
      this.context.session.change({ score });
    };
    fill(this.scores, [
      button(titles[own] ?? own, change(undefined), { title: "The score of the model" }, ask.score === undefined),
      ...others.map((name) => button(titles[name], change(name), { title: "The model was not trained with this score" }, ask.score === name)),
    ]);
  }

  /** What another score does to the row and to the answer. */
  private compare(state: State, cell: Cell, now: Answer | Error, shown: Shown): void {
    this.effect.hidden = state.ask.score === undefined;
    if (state.ask.score === undefined || now instanceof Error) return;
    const { score: _, ...ask } = state.ask, before = this.context.session.beside("cell.own", { ...ask, cell });
    if (before === null || before instanceof Error) return;
    const [a, b] = [before, now].map((answer) => lineOf(answer.trace ?? null));
    if (!a || !b) return;
    const most = Math.max(...a.values, ...b.values), weight = ({ values, at = 0 }: TraceLine): string => formatNumber(values[at]);
    this.effect.replaceChildren(
      make("p", {}, `With the model's own score this weight is ${weight(a)}. With the other score it is ${weight(b)}. The model was not trained with the other score.`),
      make("p", { class: "quiet" }, "The row with the model's own score:"), keys(a, shown, most),
      make("p", { class: "quiet" }, "The row with the other score:"), keys(b, shown, most),
      outcome(before, now, ["the model's own score", "the other score"]));
  }

  private line(line: Line, place: number, shown: Shown): HTMLElement {
    const key = `${place} ${line.name}`, whole = make("div", { class: "whole" });
    const text = make("p", { class: "sum", dir: "ltr" }, line.short), folds = line.short !== line.long || line.values.length > 1;
    const content = make("li", { "data-line": line.name }, make("h3", {}, make("b", {}, line.name), make("small", {}, line.how)));
    if (line.formula && line.formula !== line.name) content.append(make("p", { class: "formula" }, line.formula));
    if (line.values.length > 1) {
      if (KEYED.includes(line.name)) content.append(...(line.name === "softmax" || line.name === "changed" ? [keys(line, shown)] : []));
      else content.append(...strip(line.values));
    }
    content.append(text);
    if (!folds) return content;
    const details = make("details", { open: this.open.has(key) }, make("summary", {}, `all ${line.values.length > 1 ? `${line.values.length} numbers` : "terms"}`), whole);
    const unfold = (): void => {
      text.textContent = details.open ? line.long : line.short;
      if (details.open) this.open.add(key);
      else this.open.delete(key);
      if (details.open && line.values.length > 1) whole.replaceChildren(numbers(line, shown));
    };
    details.addEventListener("toggle", unfold);
    if (details.open) unfold();
    content.append(details);
    return content;
  }
}

/** The weights of the row at the end of the computation. */
const lineOf = (trace: Trace | null): TraceLine | undefined => trace?.lines.filter(({ name }) => ["softmax", "window", "changed"].includes(name)).at(-1);

/** The row as bars, the cell marked; `most`: the weight of the highest bar. */
function keys({ values, at }: Pick<TraceLine, "values" | "at">, { part }: Shown, most = Math.max(...values, 1e-9)): HTMLElement {
  return make("ol", { class: "bars", tabindex: 0, "aria-label": "The whole row" }, ...values.map((value, j) => {
    const text = `${named(part, "columns", j)}: ${formatNumber(value)}`;
    return make("li", { class: j === at ? "hot" : "", "data-tip": text, "aria-label": text },
      make("span", { class: "room" }, value >= 0.05 * most ? value.toFixed(2).replace(/^0/, "") : "", make("i", { "--share": share(value, most) })),
      make("span", { class: "name", dir: "auto" }, part.labels.columns[j] ?? ""));
  }));
}

/** Scrolls a list of bars to the marked one. */
function centre(list: HTMLElement): void {
  const hot = list.querySelector<HTMLElement>(".hot");
  if (hot && list.scrollWidth > list.clientWidth) list.scrollLeft = hot.offsetLeft - list.offsetLeft - list.clientWidth / 2;
}

/** The numbers of a line in a table. */
function numbers({ values, name, at }: Line, { part }: Shown): HTMLElement {
  const keyed = KEYED.includes(name), body = make("tbody", {}, ...values.map((value, i) => make("tr", { class: i === at ? "best" : "" },
    make("th", { scope: "row", dir: "auto" }, keyed ? `${i + 1} ${part.columns[i] ?? ""}` : String(i + 1)),
    make("td", {}, value === -Infinity ? "−∞" : formatNumber(value)))));
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, keyed ? "key" : "number"), make("th", { scope: "col" }, name)));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `The numbers of ${name}` }, make("table", { class: "numbers" }, head, body));
}

export const cell: View = {
  name: "cell",
  title: "One cell",
  place: "side",
  available: ({ full, engine }) => full && engine !== null,
  mount(root, context) {
    const hand = new ByHand(root, context);
    return (state) => hand.draw(state);
  },
};
