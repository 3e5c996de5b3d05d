// A masked model: a click hides a token of the text, and the model says what it thinks was there.

import { apart } from "../core/axes.ts";
import { make } from "../core/dom.ts";
import { formatNumber } from "../core/scale.ts";
import type { State } from "../core/store.ts";
import type { Answer } from "../engine/api.ts";
import { largest } from "../engine/math.ts";
import { visible } from "../engine/text.ts";
import { flipped, Toggles } from "./toggles.ts";
import type { Context, View } from "./view.ts";

const FILLS = 5;

/** What a model thinks of one hidden place. */
export interface Fill {
  place: number;
  /** The likeliest tokens: id and probability. */
  best: [number, number][];
  /** The token that is hidden, its probability and rank from 1; null: the text itself has a mask there. */
  truth: { id: number; chance: number; rank: number } | null;
}

/** The hidden places of an answer; `whole`: the ids of the text without them. */
export function fills({ source, distributions = [] }: Answer, whole: readonly number[], mask: number, size: number): Fill[] {
  const places = source.ids.flatMap((id, at) => (id === mask ? [at] : []));
  return places.flatMap((place, number) => {
    const logps = distributions[number], id = whole[place];
    if (!logps) return [];
    const best = largest(logps, FILLS, (one) => one < size).map((one): [number, number] => [one, Math.exp(logps[one])]);
    const rank = 1 + logps.reduce((sum, one, other) => sum + Number(other < size && one > logps[id]), 0);
    return [{ place, best, truth: id === mask ? null : { id, chance: Math.exp(logps[id]), rank } }];
  });
}

class Fills {
  private readonly toggles: Toggles;
  private readonly list = make("div", { class: "fills" });
  private drawn: Answer | null = null;

  constructor(root: HTMLElement, private readonly context: Context) {
    this.toggles = new Toggles("The tokens of the text: click to hide", (place) => {
      context.session.change({ hidden: flipped(context.store.state.ask.hidden, place) });
    });
    root.append(make("p", {}, "Click a token to hide it. The model reads the mask token in its place, and guesses."), this.toggles.element, this.list);
  }

  draw({ ask }: State): void {
    const { session } = this.context, { hidden, ...plain } = ask, on = new Set(hidden);
    const whole = session.beside("fill.whole", plain);
    if (whole === null || whole instanceof Error) return;
    const { pieces, special, ids } = whole.source;
    this.toggles.update(pieces, on, (_, is) => (is ? "hidden: click to show it" : "click to hide it"), new Set(special));
    const found = session.beside("fill", { ...ask, top: 0 });
    if (found === null || found instanceof Error || found === this.drawn) return;
    this.drawn = found;
    const { tokenizer } = this.context.page.live!, all = fills(found, ids, tokenizer.special.mask ?? -1, tokenizer.display.length);
    this.list.replaceChildren(...(all.length ? all.map((one) => this.fill(one, pieces)) : [make("p", { class: "quiet" }, "No token is hidden.")]));
    if (all.length) this.context.announce(all.map(({ best: [[id]], truth }) => `${truth ? this.piece(truth.id) : "The mask"}: most likely ${this.piece(id)}`).join(". "));
  }

  private piece(id: number): string {
    return visible(this.context.page.live?.tokenizer.display[id] ?? String(id));
  }

  private fill({ place, best, truth }: Fill, pieces: readonly string[]): HTMLElement {
    const said = truth ? `The hidden token has the probability ${formatNumber(truth.chance)}: rank ${truth.rank}.` : "The text itself has a mask here, so nobody knows the token.";
    const rows = best.map(([id, chance]) => make("tr", { class: id === truth?.id ? "best" : "" },
      make("td", { dir: "auto" }, this.piece(id)),
      make("td", {}, formatNumber(chance), make("div", { class: "gauge", "--share": chance })),
      make("td", {}, id === truth?.id ? "was there" : "")));
    const head = make("tr", {}, make("th", { scope: "col" }, "token"), make("th", { scope: "col" }, "probability"), make("th", { scope: "col" }, make("span", { class: "unseen" }, "remark")));
    const title = truth ? ["Place ", make("b", {}, String(place + 1)), ", where ", make("b", {}, apart(pieces[place])), " was"] : ["Place ", make("b", {}, String(place + 1))];
    return make("section", {}, make("h3", {}, ...title), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Guesses for place ${place + 1}` }, make("table", { class: "ranking candidates" }, make("thead", {}, head), make("tbody", {}, ...rows))), make("p", { class: "quiet" }, said));
  }
}

export const fill: View = {
  name: "fill",
  title: "Hide and guess",
  place: "side",
  available: ({ full, engine, page }) => full && engine !== null && page.live?.predicts === "masked" && page.live.tokenizer.special.mask !== null,
  mount(root, context) {
    const view = new Fills(root, context);
    return (state) => view.draw(state);
  },
};
