// The next token: the likeliest ones before and after sampling's settings, and what follows if another one is forced.

import { apart } from "../core/axes.ts";
import { button, fill, make } from "../core/dom.ts";
import { drawn, sample, type Sampled, type Sampling } from "../core/sampling.ts";
import { formatNumber } from "../core/scale.ts";
import type { State } from "../core/store.ts";
import type { Answer, Ask } from "../engine/api.ts";
import { visible } from "../engine/text.ts";
import { outcome } from "./outcome.ts";
import { type Range, slider, valueOf } from "./slider.ts";
import type { Context, View } from "./view.ts";

const LISTED = 10; // the likeliest tokens
const ALL = 21; // the value of the slider of top-k that keeps all
const TEMPERATURE: Range = { min: 0.1, max: 2, step: 0.05, first: 1 };
const TOP_K: Range = { min: 1, max: ALL, step: 1, first: ALL };
const TOP_P: Range = { min: 0.05, max: 1, step: 0.05, first: 1 };
const MORE: Range = { min: 1, max: 40, step: 1, first: 12 }; // tokens that a language model generates

/** What is forced now, and what the model would have generated. */
export interface Forcing {
  /** The number of steps that read a given text, not generated tokens. */
  text: number;
  /** The steps at which the forced token is not the model's own. */
  mine: number[];
}

/** The model's own token of a step: the likeliest one that may be generated. */
export function own(logps: Float32Array, forbidden: ReadonlySet<number>): number {
  let best = -1;
  for (let id = 0; id < logps.length; id++) if (!forbidden.has(id) && (best < 0 || logps[id] > logps[best])) best = id;
  return best;
}

/** Which of the forced tokens are a choice of the reader. */
export function forcing({ given, tokens, distributions = [] }: Answer, forced: readonly number[], forbidden: ReadonlySet<number>): Forcing {
  const text = given - forced.length;
  const mine = forced.flatMap((_, at) => (tokens[text + at] && own(distributions[text + at], forbidden) !== tokens[text + at].id ? [text + at] : []));
  return { text, mine };
}

/** The question in which token `id` is generated at a step. `bos`: the text is read after a begin token. */
export function force({ tokens, given }: Answer, ask: Partial<Ask>, step: number, id: number, settings: { translates: boolean; bos: boolean; more: number }): Partial<Ask> {
  const ids = (from: number): number[] => [...tokens.slice(from, step).map((one) => one.id), id];
  if (settings.translates) return { forced: ids(0) };
  const text = given - (ask.forced?.length ?? 0), forced = step < text ? [id] : ids(text);
  return { forced, limit: forced.length + settings.more, ...(step < text ? { prefix: step + Number(!settings.bos) } : {}) };
}

interface Row { line: HTMLTableRowElement; choose: HTMLButtonElement; before: HTMLElement; after: HTMLElement; bar: HTMLElement; now: HTMLElement; mark: HTMLElement; id: number }

class Next {
  private readonly title = make("p", { class: "told" });
  private readonly rows: Row[];
  private readonly kept = make("p", { class: "quiet" });
  private readonly sliders: ((state: State) => void)[];
  private readonly chips = make("div", { class: "undo", role: "group", "aria-label": "Your choices" });
  private readonly effect = make("div");
  private readonly forbidden: ReadonlySet<number>;
  private readonly translates: boolean;
  private answer: Answer | null = null;
  private sampled: Sampled | null = null;
  private step = 0;

  constructor(root: HTMLElement, private readonly context: Context) {
    const live = context.page.live;
    this.forbidden = new Set(live?.tokenizer.forbidden);
    this.translates = live?.predicts === "target";
    this.rows = Array.from({ length: LISTED + 1 }, () => this.row());
    const head = make("tr", {}, ...["token", "probability", "after the settings", ""].map((name) => make("th", { scope: "col" }, name || make("span", { class: "unseen" }, "remark"))));
    const table = make("table", { class: "ranking candidates" }, make("thead", {}, head), make("tbody", {}, ...this.rows.map(({ line }) => line)));
    const percent = (value: number): string => value.toFixed(2);
    const sliders = [
      slider(context, "next.t", "Temperature", TEMPERATURE, percent),
      slider(context, "next.k", "Top-k", TOP_K, (value) => (value === ALL ? "all" : String(value))),
      slider(context, "next.p", "Top-p", TOP_P, (value) => (value === 1 ? "all" : percent(value))),
    ];
    this.sliders = sliders.map(({ update }) => update);
    const acts = make("div", { class: "controls" }, button("Draw at random", () => this.draws(), { title: "Forces a token that is drawn with these probabilities" }));
    if (!this.translates) {
      const more = slider(context, "next.more", "Tokens to generate", MORE, String);
      this.sliders.push(more.update);
      acts.append(button("Go on from here", () => this.goOn(true)), button("Go on after the text", () => this.goOn(false)), more.element);
    }
    root.append(this.title, make("div", { class: "sliders" }, ...sliders.map(({ element }) => element)), make("div", { class: "scroll" }, table), this.kept, acts, this.chips, this.effect);
  }

  private row(): Row {
    const row: Row = { line: make("tr", { hidden: true }), choose: button("", () => this.force(row.id)), before: make("td"), after: make("td"), bar: make("div", { class: "gauge" }), now: make("div", { class: "gauge" }), mark: make("td"), id: -1 };
    const [before, after] = [make("span"), make("span")];
    row.line.append(make("td", {}, row.choose), row.before, row.after, row.mark);
    row.before.append(before, row.bar);
    row.after.append(after, row.now);
    [row.before, row.after] = [before, after];
    return row;
  }

  private get more(): number {
    return valueOf(this.context.store.state, "next.more", MORE);
  }

  private settings(state: State): Sampling {
    const topK = valueOf(state, "next.k", TOP_K), topP = valueOf(state, "next.p", TOP_P);
    return { temperature: valueOf(state, "next.t", TEMPERATURE), topK: topK === ALL ? null : topK, topP: topP === 1 ? null : topP };
  }

  draw(state: State): void {
    this.sliders.forEach((update) => update(state));
    const found = this.context.session.beside("next", { ...state.ask, top: 0 });
    if (found === null) return;
    if (found instanceof Error || !found.distributions?.length) {
      this.title.textContent = found instanceof Error ? `The model gives no answer: ${found.message}.` : "There is no next token here.";
      return;
    }
    this.answer = found;
    this.step = Math.min(state.step, found.distributions.length - 1);
    const before = found.tokens.slice(Math.max(0, this.step - 3), this.step).map(({ piece }) => apart(piece)).join(" ");
    this.title.replaceChildren(make("b", {}, `Token ${this.step + 1}`), before ? `, after “… ${before}”` : ", the first one", ". Choose another one, and the model goes on from it.");
    const logps = found.distributions[this.step], sampled = sample(logps, this.settings(state), this.forbidden);
    this.sampled = sampled;
    this.list(found, logps, sampled);
    this.choices(state, found);
  }

  private list({ tokens, next }: Answer, logps: Float32Array, { order, chances, byK, byP }: Sampled): void {
    const eos = this.context.page.live?.tokenizer.special.eos, { id } = tokens[this.step], closes = next && id === eos && this.step === tokens.length - 1;
    const now = closes ? -1 : id, likeliest = order.slice(0, LISTED), shown = closes || likeliest.includes(now) ? likeliest : [...likeliest, now];
    this.rows.forEach((row, at) => {
      row.line.hidden = at >= shown.length;
      if (row.line.hidden) return;
      const id = shown[at], rank = order.indexOf(id), cut = rank >= byP || rank < 0, piece = this.piece(id);
      const chance = Math.exp(logps[id]), reason = rank >= byK ? "cut by top-k" : rank >= byP ? "cut by top-p" : "", is = id === now ? "here now" : "";
      row.id = id;
      row.choose.textContent = piece;
      row.choose.setAttribute("aria-label", `Force ${piece}`);
      row.line.className = `${id === now ? "best" : ""}${cut ? " cut" : ""}`;
      row.before.textContent = formatNumber(chance);
      row.after.textContent = formatNumber(chances[id]);
      row.bar.style.setProperty("--share", String(chance));
      row.now.style.setProperty("--share", String(chances[id]));
      row.mark.textContent = [is, reason].filter(Boolean).join(", ");
    });
    const mass = order.slice(0, byP).reduce((sum, id) => sum + Math.exp(logps[id]), 0);
    const whole = byP === order.length ? `All ${order.length} tokens can be drawn.` : `${byP} of ${order.length} tokens can be drawn. The model gives them ${formatNumber(Number(mass.toPrecision(4)))} of the probability.`;
    if (this.kept.textContent !== whole) this.kept.textContent = whole;
  }

  private piece(id: number): string {
    return visible(this.context.page.live?.tokenizer.display[id] ?? String(id));
  }

  private force(id: number): void {
    const { answer, step } = this, { ask } = this.context.store.state;
    if (!answer) return;
    if (answer.tokens[step].id === id) {
      this.context.announce(`${this.piece(id)} is the token here now`);
      return;
    }
    const bos = this.context.page.live?.tokenizer.special.bos !== null;
    this.context.session.change(force(answer, ask, step, id, { translates: this.translates, bos, more: this.more }));
    this.context.announce(`Token ${step + 1} is forced to be ${this.piece(id)}`);
  }

  private draws(): void {
    if (this.sampled) this.force(drawn(this.sampled, Math.random()));
  }

  /** A language model goes on without what is forced: from the chosen place, or after the whole text. */
  private goOn(here: boolean): void {
    const { answer, step } = this, { ask } = this.context.store.state;
    if (!answer) return;
    const text = answer.given - (ask.forced?.length ?? 0), bos = this.context.page.live?.tokenizer.special.bos !== null;
    if (here && step >= text) this.context.session.change({ limit: step - text + this.more });
    else this.context.session.change({ forced: undefined, prefix: here ? step + Number(!bos) : undefined, limit: this.more });
  }

  /** The choices of the reader, each of which can be taken back, and the answer with and without them. */
  private choices({ ask }: State, answer: Answer): void {
    const forced = ask.forced ?? [], { text, mine } = forcing(answer, forced, this.forbidden);
    const back = (at: number): void => {
      const last = mine.filter((one) => one < at).at(-1), left = last === undefined ? undefined : forced.slice(0, last + 1 - text);
      this.context.session.change({ forced: left, ...(left && ask.limit !== undefined ? { limit: left.length + this.more } : {}) });
    };
    const chips = mine.map((at) => button(`${at + 1}: ${this.piece(own(answer.distributions![at], this.forbidden))} → ${answer.tokens[at].piece} ✕`, () => back(at), { title: "Takes back this choice and those after it" }));
    const goes = ask.prefix === undefined && ask.limit === undefined ? [] : [button("Back to the text ✕", () => this.context.session.change({ forced: undefined, prefix: undefined, limit: undefined }))];
    fill(this.chips, [...chips, ...goes]);
    this.chips.hidden = !chips.length && !goes.length;
    const { forced: _, ...rest } = ask, without = mine.length ? this.context.session.beside("next.own", rest) : null;
    this.effect.hidden = !(without && !(without instanceof Error));
    if (without && !(without instanceof Error)) this.effect.replaceChildren(outcome(without, answer, ["the model's own", "with your choice"], this.translates ? 0 : text, new Set(mine)));
  }
}

export const next: View = {
  name: "next",
  title: "Next token",
  place: "side",
  available: ({ full, engine, page }) => full && engine !== null && ["target", "next"].includes(page.live?.predicts ?? ""),
  mount(root, context) {
    const view = new Next(root, context);
    return (state) => view.draw(state);
  },
};
