// Edit the text: the model answers while one types. The old answer and the new one stand token by token.

import { align, type Pair } from "../core/align.ts";
import { button, fill, make } from "../core/dom.ts";
import { formatNumber, minus } from "../core/scale.ts";
import type { State } from "../core/store.ts";
import type { Answer, Token } from "../engine/api.ts";
import { visible } from "../engine/text.ts";
import type { LiveModel } from "../data.ts";
import type { Context, View } from "./view.ts";

const PAUSE = 60; // milliseconds without a keystroke, after one that came soon after another
const LONG = 60; // letters of a text that gets several lines
const MORE = 20; // tokens that "continue" adds

type Field = "text" | "second" | "target";
const NAMES: Record<LiveModel["predicts"], string> = { target: "Source", next: "Text", masked: "Text", class: "Text", labels: "Text", tag: "Text" };

/** A box with one text of the question. */
class Box {
  readonly input: HTMLInputElement | HTMLTextAreaElement;
  readonly element: HTMLElement;
  private last = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether something was typed that is not asked yet. */
  private pending = false;
  /** Whether the next change is an entry of the history: the first after Enter, or after leaving the box. */
  private fresh = true;

  constructor(private readonly context: Context, private readonly field: Field, name: string, described: string) {
    const { [field]: text = "" } = context.session.whole({}), own = { class: "text", dir: "auto", "aria-describedby": described, spellcheck: "false", autocomplete: "off" };
    this.input = text.length > LONG || text.includes("\n") ? make("textarea", { rows: 2, ...own }) : make("input", { type: "text", ...own });
    if (field === "target") this.input.placeholder = "empty: the model writes its own";
    this.element = make("label", { class: "choice" }, make("span", {}, name), this.input);
    this.input.addEventListener("input", (event) => {
      this.pending = true;
      if ((event as InputEvent).isComposing) return; // a letter that several keys make
      const now = performance.now(), pause = now - this.last < 2 * PAUSE ? PAUSE : 0;
      this.last = now;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.send(), pause);
    });
    this.input.addEventListener("compositionend", () => this.send());
    this.input.addEventListener("change", () => {
      this.send();
      this.fresh = true;
    });
    (this.input as HTMLElement).addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.input.blur();
      if (event.key !== "Enter" || event.isComposing || event.shiftKey) return; // Shift+Enter is a new line of a long text
      event.preventDefault();
      this.send();
      this.fresh = true;
    });
  }

  /** Asks about the text of the box; weights given to single tokens were for another text. */
  private send(): void {
    clearTimeout(this.timer);
    this.pending = false;
    const { session, store } = this.context, { value } = this.input, { [this.field]: first = "" } = session.whole({});
    if (value === this.now(store.state)) return;
    const heads = store.state.ask.heads?.filter(({ kind }) => kind !== "row"), other = value === first ? undefined : value;
    const change = { [this.field]: other, heads: heads?.length ? heads : undefined, forced: undefined, hidden: undefined, cell: undefined };
    session.change(change, this.fresh ? "choice" : "step");
    this.fresh = false;
  }

  private now({ ask }: State): string {
    return ask[this.field] ?? this.context.session.whole({})[this.field] ?? "";
  }

  /** Follows the state, as after Back, but never changes what is being typed. */
  update(state: State): void {
    const now = this.now(state);
    if (this.input.value !== now && !this.pending) this.input.value = now;
  }
}

/** What a token of an answer is compared by, and what stands below it. */
interface Item {
  piece: string;
  below: string;
  unknown: boolean;
}

/** The tokens of an answer; of a text that a language model only reads, without the token that closes it. */
function ownTokens({ tokenizer }: LiveModel, { tokens, next }: Answer): Token[] {
  const closed = next && tokenizer.special.eos !== null;
  return closed ? tokens.slice(0, -1) : tokens;
}

function items(live: LiveModel, answer: Answer): Item[] {
  const { predicts } = live, { pieces, unknown, special } = answer.source;
  if (predicts === "tag") {
    return answer.tokens.flatMap(({ piece }, at) => (special.includes(at) ? [] : [{ piece: pieces[at], below: piece, unknown: unknown.includes(at) }]));
  }
  return ownTokens(live, answer).map(({ piece }) => ({ piece, below: "", unknown: false }));
}

/** The old answer above the new one; what did not change stands once. */
function aligned(old: Item[], now: Item[]): HTMLElement[] {
  const text = ({ piece, below }: Item): string => (below ? `${piece} ${below}` : piece);
  const token = (tag: "del" | "ins" | "span", { piece, below, unknown }: Item): HTMLElement =>
    make(tag, { dir: "auto" }, make("bdi", unknown ? { class: "unknown" } : {}, piece), ...(below ? [make("small", {}, below)] : []));
  return align(old.map(text), now.map(text)).map((pair: Pair) => {
    const before = pair.old === null ? null : old[pair.old], after = pair.now === null ? null : now[pair.now];
    if (pair.same && after) return make("li", {}, token("span", after));
    const said = before && after ? "changed from " : before ? "removed: " : "added: ";
    const parts = [make("span", { class: "unseen" }, said), ...(before ? [token("del", before)] : []), ...(before && after ? [make("span", { class: "unseen" }, " to ")] : []), ...(after ? [token("ins", after)] : [])];
    return make("li", { class: "other" }, ...parts);
  });
}

/** A probability in three digits; one that is almost 1 is not called 1. */
const chance = (score: number): string => (score < 0 && score > -0.0005 ? "> 0.999" : formatNumber(Number(Math.exp(score).toPrecision(3))));

/** The likeliest tokens of one place, with their probabilities. */
const runners = (name: string, tokens: Token[]): HTMLElement =>
  make("p", { class: "runners" }, ...(name ? [make("span", {}, name)] : []),
    ...tokens.map(({ piece, score }, at) => make("span", { class: at ? "" : "first" }, make("bdi", {}, piece), ` ${chance(score)}`)));

/** What the model says, in words and numbers. */
class Said {
  private readonly what = make("span", { class: "quiet" });
  private readonly text = make("output", { dir: "auto", "aria-live": "polite" });
  private readonly score = make("span", { class: "quiet" });
  private readonly places = make("div");
  private readonly change = make("ol", { class: "aligned", "aria-label": "The old answer and the new one, token by token" });
  readonly element = make("div", { class: "said" }, make("p", { class: "answer" }, this.what, this.text, this.score), this.places, this.change);

  constructor(private readonly live: LiveModel) {}

  draw(answer: Answer, original: Answer | null): void {
    const { predicts } = this.live, { next, tokens } = answer, went = predicts === "next" && !next;
    const counted = went ? tokens.slice(answer.given) : ownTokens(this.live, answer), total = counted.reduce((sum, { score }) => sum + score, 0);
    const said = next ? next[0].piece : went ? counted.map((one) => one.text).join("") : answer.text;
    const text = predicts === "masked" && !tokens.length ? "" : said || (predicts === "labels" ? "no label" : "∅");
    if (this.text.textContent !== text) this.text.textContent = text;
    this.what.hidden = predicts !== "next";
    this.what.textContent = next ? "next token" : "goes on with";
    const of = predicts !== "next" ? "" : ` of ${counted.length} ${next ? "tokens of the text" : "new tokens"}`;
    this.score.textContent = counted.length ? `log p ${minus(formatNumber(Number(total.toFixed(4))))}${of}${predicts === "class" ? `, probability ${chance(total)}` : ""}` : "";
    this.places.replaceChildren(...this.runnersUp(answer));
    const changed = original !== null && answer !== original && predicts !== "class" && predicts !== "labels";
    const lists = changed ? [items(this.live, original), items(this.live, answer)] : [];
    const same = JSON.stringify(lists[0]) === JSON.stringify(lists[1]);
    this.change.hidden = (!changed || same) && predicts !== "tag";
    if (!this.change.hidden) this.change.replaceChildren(...(changed ? aligned(lists[0], lists[1]) : aligned(items(this.live, answer), items(this.live, answer))));
    const was = original && predicts === "class" && original.text !== answer.text ? `; it was ${original.text}, ${chance(original.score)}` : "";
    this.score.textContent += was;
  }

  private runnersUp({ candidates, next }: Answer): HTMLElement[] {
    const { predicts, tokenizer } = this.live;
    if (predicts === "masked") {
      if (candidates.length) return candidates.map((tokens, at) => runners(candidates.length > 1 ? `mask ${at + 1}` : "", tokens));
      const mask = tokenizer.special.mask;
      return [make("p", { class: "quiet" }, `Write ${mask === null ? "a mask" : tokenizer.display[mask]} in the place of a token, and the model fills it.`)];
    }
    if (predicts === "class" || predicts === "labels") return [runners("", candidates[0])];
    return next ? [runners("", next)] : [];
  }
}

class Edit {
  private readonly boxes: Box[];
  private readonly said: Said;
  private readonly notes = make("p", { class: "quiet notes", hidden: true });
  private readonly trouble: HTMLElement;
  private readonly rings = make("p", { class: "quiet rings", hidden: true });
  private readonly back = button("As it was", () => this.undo(), { title: "The text, heads and masks with which the page was made" });
  private readonly more = button(`Continue by ${MORE} tokens`, () => this.go(MORE));
  private readonly less = button("The text alone", () => this.go(0));
  private drawn: [Answer | null, Answer | null, string] | null = null;

  constructor(private readonly root: HTMLElement, private readonly context: Context, live: LiveModel) {
    const id = `${root.id || "edit"}-trouble`, { target } = context.session.whole({});
    this.trouble = make("p", { class: "trouble", id, role: "status", hidden: true });
    this.said = new Said(live);
    const fields: [Field, string][] = [["text", live.pairs ? "First text" : NAMES[live.predicts]]];
    if (live.pairs) fields.push(["second", "Second text"]);
    if (target !== undefined) fields.push(["target", "Target"]);
    this.boxes = fields.map(([field, name]) => new Box(context, field, name, id));
    this.more.hidden = this.less.hidden = live.predicts !== "next";
    root.classList.add("card");
    const form = make("div", { class: "boxes" }, ...this.boxes.map(({ element }) => element), make("div", { class: "actions" }, this.more, this.less, this.back));
    root.append(form, this.trouble, this.notes, this.rings, this.said.element);
    context.keys?.add({ keys: ["e"], help: "edit the text", when: () => !root.hidden, act: () => this.boxes[0].input.select() });
  }

  private undo(): void {
    this.context.session.reset();
    this.boxes[0].input.focus();
  }

  /** A language model writes more tokens after its text. */
  private go(tokens: number): void {
    this.context.session.change({ limit: tokens ? (this.context.store.state.ask.limit ?? 0) + tokens : undefined });
  }

  update(state: State): void {
    const { session } = this.context, answer = session.answer ?? session.original;
    for (const box of this.boxes) box.update(state);
    this.root.setAttribute("aria-busy", String(session.busy));
    const original = session.asMade;
    this.back.setAttribute("aria-disabled", String(original));
    this.less.setAttribute("aria-disabled", String(state.ask.limit === undefined));
    this.trouble.hidden = !session.trouble;
    if (this.trouble.textContent !== session.trouble) this.trouble.textContent = session.trouble;
    for (const { input } of this.boxes) input.setAttribute("aria-invalid", String(session.trouble !== ""));
    if (!answer || (this.drawn?.[0] === answer && this.drawn[1] === session.original)) return;
    this.drawn = [answer, session.original, ""];
    this.notes.hidden = !answer.notes.length;
    this.notes.textContent = answer.notes.length ? `${answer.notes.join("; ")}.` : "";
    const { pieces, unknown } = answer.source, rare = [...new Set(unknown.map((at) => visible(pieces[at])))].slice(0, 20);
    this.rings.hidden = !rare.length;
    fill(this.rings, ["Not in the vocabulary: ", ...rare.flatMap((piece) => [make("bdi", { class: "unknown" }, piece), " "])]);
    this.said.draw(answer, session.original);
  }
}

export const edit: View = {
  name: "edit",
  title: "Edit the text",
  place: "top",
  available: ({ full, engine, page }) => full && engine !== null && page.origin !== undefined,
  mount(root, context) {
    const view = new Edit(root, context, context.page.live!);
    return (state) => view.update(state);
  },
};
