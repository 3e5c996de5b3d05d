// Heads off: a head is switched off, made uniform or one-hot, or its row is given; and what that does to the answer.

import { damage, headsOf, labelOf, nameOf, placeOf, sameHead, sentence, worded } from "../core/changes.ts";
import { looks } from "../core/axes.ts";
import { button, fill, make, press } from "../core/dom.ts";
import { four, plus, share } from "../core/scale.ts";
import { MEAN, type State } from "../core/store.ts";
import { grids } from "../core/weights.ts";
import type { Effect, HeadChange, HeadName } from "../engine/api.ts";
import { Ranking } from "./off_rank.ts";
import { type Row, RowBars } from "./off_row.ts";
import { type Context, goStep, type View } from "./view.ts";

const KINDS: [HeadChange["kind"] | "", string, string][] = [
  ["", "As it is", "The weights of the model"], ["off", "Off", "All weights are 0: the head adds nothing"],
  ["uniform", "Uniform", "The same weight for each key that a query may look at"], ["one-hot", "One-hot", "The whole weight for the strongest key"],
];

/** What the changes do to each token of the original answer. */
class Deltas {
  private readonly body = make("tbody");
  private readonly foot = make("tfoot");
  private readonly title = make("h2", {}, "Δ log p ", make("small", {}, "of each token of the original answer"));
  readonly element: HTMLElement;
  private drawn: Effect | null = null;

  constructor() {
    const names = ["token", "before", "now", "Δ log p"].map((name) => make("th", { scope: "col" }, name));
    const head = make("thead", {}, make("tr", {}, ...names, make("th", { scope: "col" }, make("span", { class: "unseen" }, "bar"))));
    const box = make("div", { class: "scroll long", tabindex: 0, role: "region", "aria-label": "Δ log p of each token" }, make("table", { class: "ranking deltas" }, head, this.body, this.foot));
    this.element = make("section", {}, this.title, box);
  }

  draw(effect: Effect): void {
    if (effect === this.drawn) return;
    this.drawn = effect;
    const changes = effect.scores.map((score, at) => score - effect.tokens[at].score), most = Math.max(1e-6, ...changes.map(Math.abs));
    const number = (value: number): HTMLElement => make("td", {}, four(value));
    this.body.replaceChildren(...effect.tokens.map(({ piece, score }, at) => make("tr", {}, make("td", { dir: "auto" }, make("bdi", {}, piece)),
      number(score), number(effect.scores[at]), make("td", {}, plus(changes[at])),
      make("td", {}, make("div", { class: "diverge" }, make("i", { class: changes[at] < 0 ? "less" : "more", "--share": share(Math.abs(changes[at]), most).toFixed(3) }))))));
    const sum = (values: number[]): number => values.reduce((total, one) => total + one, 0);
    this.foot.replaceChildren(make("tr", {}, make("td", {}, "all"), number(sum(effect.tokens.map(({ score }) => score))), number(sum(effect.scores)), make("td", {}, plus(damage(effect))), make("td")));
  }
}

class Off {
  private readonly head = make("select", {});
  private readonly kinds = KINDS.map(([kind, name, title]) => button(name, () => this.set(kind), { title, "data-kind": kind || "none" }, false));
  private readonly group = make("div", { class: "group", role: "group", "aria-label": "The chosen head is" }, ...this.kinds);
  private readonly chips = make("div", { class: "chips", role: "group", "aria-label": "Changed heads: click to put one back" });
  private readonly said = make("p", { class: "verdict", role: "status", "aria-live": "polite" });
  private readonly deltas = new Deltas();
  private readonly bars = new RowBars((weights, done) => this.drag(weights, done));
  private readonly which = make("small", { dir: "auto" });
  private readonly before = button("↑", () => this.go(-1), { "aria-label": "Previous row", title: "Previous row" });
  private readonly after = button("↓", () => this.go(1), { "aria-label": "Next row", title: "Next row" });
  private readonly row = make("section", {}, make("h2", {}, "Drag the weights ", this.which, " ", this.before, this.after), this.bars.list, this.bars.below);
  private readonly ranking: Ranking;
  private shown: Row | null = null;

  constructor(root: HTMLElement, private readonly context: Context) {
    this.ranking = new Ranking(context, (change) => this.only(change));
    const choice = make("label", { class: "choice" }, "Head ", this.head);
    root.append(make("div", { class: "controls" }, choice, this.group), this.chips, this.said, this.deltas.element, this.row, this.ranking.element);
    this.head.addEventListener("change", () => {
      const name = headsOf(this.parts)[Number(this.head.value)];
      if (name) this.show(name, {});
    });
  }

  private get parts() {
    return this.context.session.drawn.parts;
  }

  private get first(): string {
    return this.context.page.parts[0].name;
  }

  private get changes(): HeadChange[] {
    return this.context.store.state.ask.heads ?? [];
  }

  /** The head that is shown; null: a mean of several. */
  private chosen({ part, layer, heads }: State): HeadName | null {
    const own = this.parts[part]?.layers[layer]?.heads ?? [];
    if (layer === MEAN || (heads.length !== 1 && own.length !== 1)) return null;
    return nameOf(this.parts, { part, layer, head: Math.min(heads[0] ?? 0, own.length - 1) });
  }

  /** Shows a head, and changes something else in the same entry of the history. */
  private show(name: HeadName, more: Partial<State>): void {
    const place = placeOf(this.parts, name), { state } = this.context.store;
    if (!place) return;
    const { rows, layers } = this.parts[place.part], heads = layers[place.layer].heads.length > 1 ? [place.head] : [];
    this.context.store.set({ part: place.part, layer: place.layer, heads, row: Math.min(state.row, rows.length - 1), ...more });
  }

  private set(kind: HeadChange["kind"] | ""): void {
    const head = this.chosen(this.context.store.state);
    if (!head) return;
    const others = this.changes.filter((one) => !sameHead(one, head));
    this.change(kind ? [...others, { ...head, kind }] : others);
  }

  private change(heads: HeadChange[]): void {
    this.context.session.change({ heads: heads.length ? heads : undefined });
  }

  /** This change alone, and its head is shown. */
  private only(change: HeadChange): void {
    this.show(change, { ask: this.context.session.asking({ heads: [change] }) });
  }

  private drag(weights: number[], done: boolean): void {
    const { session, store } = this.context, head = this.chosen(store.state);
    if (!head || !this.shown) return;
    const { row } = this.shown, kept = this.changes.filter((one) => !sameHead(one, head) || (one.kind === "row" && one.row !== row));
    session.change({ heads: [...kept, { ...head, kind: "row", row, weights }] }, done ? "choice" : "none");
  }

  private go(by: number): void {
    const shown = this.context.shown(), row = this.shown?.row ?? 0;
    if (shown.stepped) goStep(this.context, row + by);
    else this.context.store.set({ row: Math.max(0, Math.min(shown.part.rows.length - 1, row + by)) }, "none");
  }

  update(state: State): void {
    const { session, page } = this.context, head = this.chosen(state), effect = session.answer?.effect ?? null;
    this.choices(head);
    const own = this.changes.filter((one) => head && sameHead(one, head)), now = own.length ? own[own.length - 1].kind : "";
    this.kinds.forEach((one, at) => {
      press(one, head !== null && KINDS[at][0] === now);
      one.setAttribute("aria-disabled", String(head === null));
    });
    this.chip();
    const there = effect !== null && this.changes.length > 0;
    const text = there ? sentence(this.first, this.changes, effect, page.live?.predicts ?? "") : head ? "Switch the head off, or drag its weights: what changes in the answer stands here." : "Choose one head.";
    if (this.said.textContent !== text) this.said.textContent = text;
    this.said.classList.toggle("quiet", !there);
    this.deltas.element.hidden = !there;
    if (there) this.deltas.draw(effect);
    this.row.hidden = head === null;
    if (head) this.drawRow(state, head);
    this.ranking.update(head);
  }

  private choices(head: HeadName | null): void {
    const all = headsOf(this.parts), at = head ? all.findIndex((one) => sameHead(one, head)) : -1;
    if (this.head.options.length !== all.length + 1) {
      this.head.replaceChildren(make("option", { value: -1 }, "choose one"), ...all.map((one, i) => make("option", { value: i }, labelOf(this.first, one))));
    }
    this.head.value = String(at);
  }

  private chip(): void {
    const { changes } = this, name = (one: HeadChange): string => `${labelOf(this.first, one)} ${worded(one)}`;
    const made = changes.map((one) => button(`${name(one)} ×`, () => this.change(changes.filter((other) => other !== one)), { "aria-label": `Put back: ${name(one)}` }));
    this.chips.hidden = !changes.length;
    fill(this.chips, [...made, ...(changes.length > 1 ? [button("Put all back", () => this.change([]))] : [])]);
  }

  private drawRow(state: State, head: HeadName): void {
    const { part, stepped } = this.context.shown(), place = placeOf(this.parts, head);
    if (!place) return;
    const layer = part.layers[place.layer], columns = part.columns.length, row = Math.min(stepped ? state.step : state.row, part.rows.length - 1);
    const given = this.changes.find((one) => one.kind === "row" && one.row === row && sameHead(one, head))?.weights;
    const grid = grids(part, layer)[place.head], seen = Array.from({ length: columns }, (_, j) => !(layer.masked?.[row] ?? []).some(([from, end]) => j >= from && j < end));
    const weights = Array.from({ length: columns }, (_, j) => (given ? (given[j] ?? 0) : grid[row * columns + j] || 0));
    this.shown = { part, row, weights, seen };
    this.which.textContent = `${looks(part, row)} …`;
    for (const [one, end] of [[this.before, row === 0], [this.after, row === part.rows.length - 1]] as const) one.setAttribute("aria-disabled", String(end));
    this.bars.draw(this.shown);
  }
}

export const off: View = {
  name: "off",
  title: "Heads off",
  place: "side",
  available: ({ full, engine, page }) => full && engine !== null && Object.keys(page.live?.captions ?? {}).some((name) => name !== ""),
  mount(root, context) {
    const view = new Off(root, context);
    return (state) => view.update(state);
  },
};
