// Masks: what nobody may look at, how far self-attention sees, and what that does to the answer.

import { button, make, press } from "../core/dom.ts";
import type { State, Weight } from "../core/store.ts";
import type { Answer, MaskChange } from "../engine/api.ts";
import { visible } from "../engine/text.ts";
import { alike, chances, logpsOf, outcome } from "./outcome.ts";
import { flipped, Toggles } from "./toggles.ts";
import { attends, type Context, type View } from "./view.ts";

/** The masks of a question without those that change nothing; undefined: there are none. */
export function tidy(masks: { [K in keyof MaskChange]?: MaskChange[K] | undefined }): MaskChange | undefined {
  const found = Object.fromEntries(Object.entries(masks).filter(([, value]) => value !== undefined));
  return Object.keys(found).length ? found : undefined;
}

class Masks {
  private readonly tokens: Toggles;
  private readonly range = make("input", { type: "range", min: 0, step: 1 });
  private readonly width = make("output", {});
  private readonly reach = make("label", { class: "choice slider" }, make("span", {}, "Window of self-attention"), this.range, this.width);
  private readonly causal = button("", () => this.flipCausal(), {}, false);
  private readonly clear = button("Show all again", () => this.context.session.change({ masks: undefined }));
  private readonly note = make("p", { class: "quiet" });
  private readonly effect = make("div");
  private drawn: [Answer, Answer, number] | null = null;

  constructor(root: HTMLElement, private readonly context: Context) {
    this.tokens = new Toggles("Tokens that nobody may look at", (place) => this.change({ columns: flipped(this.masks.columns, place) }));
    this.range.addEventListener("input", () => {
      const window = Number(this.range.value);
      this.change({ window: window === Number(this.range.max) ? undefined : window }, "step");
    });
    root.append(
      make("p", {}, "Click a token, and nobody may look at it. In the matrix its cells are hatched."), this.tokens.element,
      make("div", { class: "controls" }, this.reach, this.causal, this.clear), this.note, this.effect);
  }

  private get masks(): MaskChange {
    return this.context.store.state.ask.masks ?? {};
  }

  private change(change: { [K in keyof MaskChange]?: MaskChange[K] | undefined }, weight: Weight = "choice"): void {
    this.context.session.change({ masks: tidy({ ...this.masks, ...change }) }, weight);
  }

  /** Which parts attend to themselves. A decoder that writes token by token has nothing ahead of it to look at. */
  private get own(): { encoder: boolean; ahead: boolean } {
    const { parts } = this.context.session.drawn, { live } = this.context.page;
    const has = (name: string): boolean => parts.some((part) => part.name === name);
    return { encoder: has("encoder"), ahead: has("decoder") && live?.predicts !== "target" };
  }

  private flipCausal(): void {
    const value = this.own.encoder; // an encoder is made causal, a decoder is freed of its mask
    this.change({ causal: this.masks.causal === undefined ? value : undefined });
  }

  draw(state: State): void {
    const { session } = this.context, { masks, ...plain } = state.ask;
    const before = session.beside("masks.before", { ...plain, top: 0 });
    if (before === null) return;
    if (before instanceof Error) {
      this.note.textContent = `The model gives no answer: ${before.message}.`;
      return;
    }
    this.controls(before, masks ?? {});
    const after = masks === undefined ? before : session.beside("masks", { ...state.ask, top: 0 });
    if (after === null || after instanceof Error) return;
    const place = this.place(state, before, after);
    if (this.drawn?.[0] === before && this.drawn[1] === after && this.drawn[2] === place) return;
    this.drawn = [before, after, place];
    this.show(before, after, place, masks === undefined);
  }

  private controls({ source }: Answer, { columns, window, causal }: MaskChange): void {
    const { encoder, ahead } = this.own, self = this.context.session.drawn.parts.some(({ name }) => name === "encoder" || name === "decoder");
    const read = this.context.session.drawn.parts[0].name === "decoder" ? source.pieces.slice(0, -1) : source.pieces; // the last token of a language model is predicted alone
    this.tokens.update(read, new Set(columns), (_, is) => (is ? "nobody may look at it: click to allow it" : "click: nobody may look at it"));
    const most = Math.max(1, source.pieces.length);
    this.reach.hidden = !self;
    this.range.max = String(most);
    this.range.value = String(window ?? most);
    this.width.textContent = window === undefined ? "all" : `${window} each side`;
    this.range.setAttribute("aria-valuetext", this.width.textContent);
    this.causal.hidden = !encoder && !ahead;
    this.causal.textContent = encoder ? "The encoder looks back only" : "Tokens may look ahead";
    press(this.causal, causal !== undefined);
    this.clear.hidden = columns === undefined && window === undefined && causal === undefined;
    this.note.textContent = self ? "" : "This model has no self-attention, so there is no window, and no causal mask to change.";
    this.note.hidden = self;
  }

  /** The place of the distribution that is compared: that of the step, or the first at which the answers differ. */
  private place({ row, step }: State, before: Answer, after: Answer): number {
    const shown = this.context.shown(), last = Math.min(before.tokens.length, after.tokens.length) - 1;
    const wanted = shown.stepped ? step : this.context.page.live?.predicts === "tag" ? row : 0;
    return Math.max(0, Math.min(wanted, last, alike(before.tokens, after.tokens)));
  }

  private show(before: Answer, after: Answer, place: number, unchanged: boolean): void {
    if (!before.tokens.length) {
      this.effect.replaceChildren(make("p", { class: "quiet" }, "The model predicts nothing here. Hide a token under “Hide and guess”, and see what masks do to the guess."));
      return;
    }
    const [a, b] = [logpsOf(before, place), logpsOf(after, place)], { live } = this.context.page;
    const generates = ["target", "next", "masked"].includes(live?.predicts ?? "");
    const name = (id: number): string => (generates ? visible(live?.tokenizer.display[id] ?? String(id)) : live?.names[id] ?? String(id));
    const table = a && b ? [make("h3", {}, `Prediction ${place + 1}: the probabilities before and after`), chances(a, b, name, ["before", "with the masks"], new Set(generates ? live?.tokenizer.forbidden : []))] : [];
    this.effect.replaceChildren(...(unchanged ? [make("p", { class: "quiet" }, "Nothing is masked now.")] : [outcome(before, after, ["before", "with the masks"])]), ...table);
    if (!unchanged) this.context.announce(`With the masks: ${after.text}`);
  }
}

export const masks: View = {
  name: "masks",
  title: "Masks",
  place: "side",
  available: attends,
  mount(root, context) {
    const view = new Masks(root, context);
    return (state) => view.draw(state);
  },
};
