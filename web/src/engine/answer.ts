// A question to a model and its answer: the texts become ids, the model reads them, and what it computed gets names.

import type { Answer, Ask, Token } from "./api.ts";
import type { Axes, Frame, LiveModel } from "../data.ts";
import { effectOf, outcomeOf, type Outcome } from "./effect.ts";
import { modelOf } from "./families.ts";
import { largest } from "./math.ts";
import type { Generator, Model } from "./model.ts";
import { partsOf, type Axis } from "./parts.ts";
import { predictions } from "./predictions.ts";
import { Recorder } from "./recorder.ts";
import { forced, search, type Step } from "./search.ts";
import { escapeDirections, strip, visible } from "./text.ts";
import { Tokenizer, type Encoded } from "./tokenizers.ts";

const TOP = 5; // the likeliest tokens of a step
const MOST = 512; // tokens of a text on a page: a matrix of attention has the square of it

/** What a model gave for a text, before it has names. */
interface Generated {
  /** The tokens that were predicted, in order, and the step that predicted each. */
  ids: number[];
  steps: Step[];
  /** The tokens of the target or text with those around it. */
  whole: number[];
  cut: boolean;
  given: number;
  /** The step after a text. */
  next?: Step;
}

export class Machine {
  readonly model: Model;
  private readonly target: Tokenizer;
  private readonly source: Tokenizer | null;
  /** The last original answer: several changes of heads are compared with the same one. */
  private kept: { key: string; original: Outcome } | null = null;
  private readonly forbidden: ReadonlySet<number>;

  constructor(readonly live: LiveModel, weights: ArrayBuffer) {
    this.model = modelOf(live, weights);
    this.target = new Tokenizer(live.tokenizer);
    this.source = live.source && new Tokenizer(live.source);
    this.forbidden = new Set(live.tokenizer.forbidden);
  }

  /** `check` throws if the question is to stop. */
  answer(ask: Ask, check: () => void = () => {}): Answer {
    const start = performance.now(), found = this.plain(ask, check);
    if (!ask.heads?.length) return found;
    const { cell: _, ...asked } = ask, original = this.original(asked, check);
    const given = this.source && ask.target !== undefined && !ask.forced?.length ? { given: true as const } : {};
    const effect = { ...effectOf(original, outcomeOf(this, asked, found, original, check)), ...given };
    return { ...found, effect, milliseconds: performance.now() - start };
  }

  /** The text of tokens of an answer. */
  decode(ids: number[]): string {
    return this.target.decode(ids);
  }

  /** What the model says to a question without the changes of heads. */
  private original({ heads: _, ...ask }: Ask, check: () => void): Outcome {
    const key = JSON.stringify(ask);
    if (this.kept?.key !== key) this.kept = { key, original: outcomeOf(this, ask, this.plain(ask, check), null, check) };
    return this.kept.original;
  }

  /** The answer alone, without the effect of changes of heads. */
  plain(ask: Ask, check: () => void): Answer {
    const start = performance.now();
    const wrong = ask.forced?.find((id) => !(id in this.live.tokenizer.display));
    if (wrong !== undefined) throw new Error(`the model has no token ${wrong}`);
    if (!strip(ask.text)) throw new Error('the text is empty; write one, such as "3 March 2021"');
    const taps = new Recorder(ask, this.source !== null, check);
    const quiet = new Recorder(ask, this.source !== null, check, false);
    const found = this.model.kind === "reader" ? this.reading(ask, taps) : this.generating(this.model, ask, taps, quiet);
    const trace = ask.cell ? { trace: { lines: taps.lines } } : {};
    return { ...found, ...trace, milliseconds: performance.now() - start };
  }

  // -- models that generate --------------------------------------------------------------------------------------------

  private generating(model: Generator, ask: Ask, taps: Recorder, quiet: Recorder): Omit<Answer, "milliseconds"> {
    const notes: string[] = [], whole = this.read(this.source ?? this.target, ask.text, notes);
    const input = this.source || ask.prefix === undefined ? whole : { ...whole, ids: whole.ids.slice(0, Math.max(ask.prefix, Number(this.target.data.special.bos === null))) };
    const ids = this.source ? this.source.wrapInput(input.ids) : [];
    const text = this.source ? (ask.target === undefined || ask.forced?.length ? null : this.given(ask.target, notes)) : input;
    const found = this.source
      ? this.translated(model, ask, ids, input.ids.length, text, taps, quiet)
      : this.continued(model, ask, input.ids, taps, quiet);
    if (found.cut) notes.push(`the answer was cut at ${found.ids.length - Number(this.source !== null)} tokens`);
    const past = axisOf(this.target, found.whole.slice(0, found.steps.length), text), predicted = axisOf(this.target, found.ids, text);
    const ofText = this.source ? ids : found.whole, read = axisOf(this.source ?? this.target, ofText, input);
    const axes: Record<string, Axes<Axis>> = { decoder: { rows: past, columns: past } };
    if (this.source) Object.assign(axes, { encoder: { rows: read, columns: read }, cross: { rows: predicted, columns: read } });
    const texts = this.target.parts(found.ids), top = ask.top || TOP;
    const steps = found.steps.map((step, at) => this.named(step, { id: found.ids[at], piece: predicted.pieces[at], text: texts[at] }, top));
    const ended = found.ids[found.ids.length - 1] === this.target.data.special.eos;
    return {
      text: this.target.decode(ended ? found.ids.slice(0, -1) : found.ids),
      tokens: steps.map(({ token }) => token),
      score: steps.reduce((sum, { token }) => sum + token.score, 0),
      given: found.given,
      candidates: steps.map(({ candidates }) => candidates),
      ...(ask.top === 0 ? { distributions: found.steps.map(({ scores }) => scores) } : {}),
      ...(found.next ? { next: this.candidates(found.next.scores, this.likeliest(found.next, top)) } : {}),
      cut: found.cut,
      source: { ids: ofText, ...read },
      parts: partsOf(this.live, taps.reads, axes, found.steps.length),
      frames: steps.map(({ frame }) => frame),
      notes,
    };
  }

  /** A translator: its own target, or the one given, and every step of it. */
  private translated(model: Generator, ask: Ask, source: number[], length: number, text: Encoded | null, taps: Recorder, quiet: Recorder): Generated {
    const state = model.start(source, taps), { bos, eos } = this.target.data.special, opening = bos === null ? [] : [bos];
    if (text) return this.scored(model, state, text.ids, taps);
    const given = ask.forced ?? [], beam = ask.beam ?? 1, limit = Math.max(this.limit(length, ask.limit), given.length);
    const options = { opening, forced: given, beam, limit, stop: eos, forbidden: this.forbidden };
    const found = search(model, state, options, beam > 1 ? quiet : taps);
    if (beam > 1) {
      const scored = this.scored(model, state, found.cut ? found.ids : found.ids.slice(0, -1), taps);
      return { ...scored, cut: found.cut, given: given.length };
    }
    const whole = [...opening, ...found.ids];
    if (!found.cut || eos === null) return { ...found, whole, given: given.length };
    const end = forced(model, found.last, found.state, taps); // the step that would have ended it
    return { ids: [...found.ids, eos], steps: [...found.steps, ...end.steps], whole: [...whole, eos], cut: true, given: given.length };
  }

  /** Teacher forcing over a target. */
  private scored(model: Generator, state: ReturnType<Generator["start"]>, ids: number[], taps: Recorder): Generated & { state: ReturnType<Generator["start"]> } {
    const whole = this.target.wrapTarget(ids), read = forced(model, whole.slice(0, -1), state, taps);
    return { ids: whole.slice(1), ...read, whole, cut: false, given: ids.length - Number(this.target.data.special.bos === null) };
  }

  /** A language model: the tokens of the text itself, each from those before it; then, if asked, those that follow. */
  private continued(model: Generator, ask: Ask, ids: number[], taps: Recorder, quiet: Recorder): Generated {
    const start = model.start([], taps), whole = this.target.wrapTarget(ids), { bos, eos } = this.target.data.special;
    if (ask.limit === undefined && !ask.forced?.length) {
      if (whole.length < 2) throw new Error("the text is one token, and the model has no begin token to predict it from; write a longer text");
      const found = this.scored(model, start, ids, taps), last = eos === null ? forced(model, whole.slice(-1), found.state, quiet).steps : found.steps;
      return { ...found, next: last[last.length - 1] };
    }
    const read = bos === null ? ids : [bos, ...ids], beam = ask.beam ?? 1, given = ask.forced ?? [];
    const before = forced(model, read.slice(0, -1), start, beam > 1 ? quiet : taps);
    const room = (this.live.longest ?? Infinity) + 1 - ids.length; // the last token is not read
    const limit = Math.min(Math.max(ask.limit ?? 0, given.length), room);
    const options = { opening: read.slice(-1), forced: given, beam, limit, stop: eos, forbidden: this.forbidden };
    const found = search(model, before.state, options, beam > 1 ? quiet : taps), all = [...read, ...found.ids];
    const steps = beam > 1 ? forced(model, all.slice(0, -1), start, taps).steps : [...before.steps, ...found.steps];
    return { ids: all.slice(1), steps, whole: all, cut: false, given: read.length - 1 + Math.min(given.length, room) };
  }

  // -- models that read a text whole -----------------------------------------------------------------------------------

  private reading(ask: Ask, taps: Recorder): Omit<Answer, "milliseconds"> {
    if (this.model.kind !== "reader") throw new Error("the model generates");
    const notes: string[] = [], tokenizer = this.target, first = this.read(tokenizer, ask.text, notes);
    const second = this.live.pairs ? this.read(tokenizer, ask.second ?? "", notes) : null;
    if (second && !second.ids.length) throw new Error("the model reads two texts; write the second one, too");
    const { ids, segments } = second ? tokenizer.joinInput([first.ids, second.ids]) : { ids: tokenizer.wrapInput(first.ids), segments: [] };
    const shown = ids.slice(), { mask } = tokenizer.data.special;
    for (const place of ask.hidden ?? []) if (mask !== null && place in shown) shown[place] = mask;
    if (ask.hidden?.length && mask === null) notes.push("the model has no mask token, so nothing is hidden");
    const axis = axisOf(tokenizer, shown, { ids: shown, unknown: [...first.unknown, ...(second?.unknown ?? [])] });
    const rows = this.live.rows.length ? { pieces: this.live.rows, unknown: [], special: [] } : axis;
    const { logits } = this.model.read(shown, segments.length ? segments : shown.map(() => 0), taps);
    const own = { rows, columns: axis }, past = behind(axis, tokenizer), translates = this.live.family === "transformer";
    const axes = { encoder: own, decoder: translates ? { rows: past, columns: past } : own, cross: own };
    return {
      ...predictions(this.live, tokenizer, shown, logits, ask.top || TOP, ask.top === 0),
      given: 0,
      source: { ids: shown, ...axis },
      parts: partsOf(this.live, taps.reads, axes, 0),
      frames: [],
      cut: false,
      notes,
    };
  }

  // -- names -----------------------------------------------------------------------------------------------------------

  /** The ids of a text; one that is too long loses its end. */
  private read(tokenizer: Tokenizer, text: string, notes: string[]): Encoded {
    return cut(tokenizer.encode(strip(text)), this.live.longest, "the text", notes);
  }

  private given(text: string, notes: string[]): Encoded {
    const { limit } = this.live;
    return cut(this.target.encode(strip(text)), limit, "the target", notes);
  }

  /** The most tokens of a target: two for each of its source, and some. */
  private limit(length: number, asked: number | undefined): number {
    return Math.min(asked ?? 2 * Math.max(1, Math.ceil(length / 16)) * 16 + 20, this.live.limit ?? Infinity);
  }

  private likeliest({ logits }: Step, top: number): number[] {
    return largest(logits, top, (one) => one < this.target.size && !this.forbidden.has(one));
  }

  private candidates(scores: Float32Array, ids: number[], pieceOf = (id: number): string => visible(this.target.pieces([id])[0])): Token[] {
    return ids.map((id) => ({ id, piece: pieceOf(id), text: this.target.surface(id), score: scores[id] }));
  }

  /** A step with the names of its token and of the likeliest ones that may be generated; of equals, the first one. */
  private named(step: Step, token: { id: number; piece: string; text: string }, top: number): { token: Token; candidates: Token[]; frame: Frame } {
    const { logits, scores, state, before } = step, { id } = token, text = escapeDirections(token.text), piece = visible(token.piece);
    const best = this.likeliest(step, top);
    const pieceOf = (one: number): string => (one === id ? piece : visible(this.target.pieces([one])[0]));
    const withBefore = this.live.chain.some(([shows]) => shows === "before");
    return {
      token: { id, piece, text, score: scores[id] },
      candidates: this.candidates(scores, best, pieceOf),
      frame: {
        token: piece,
        text,
        top: (best.includes(id) ? best : [...best, id]).map((one) => [pieceOf(one), logits[one], Math.exp(scores[one])]),
        state: [...state],
        before: withBefore && before ? [...before] : null,
      },
    };
  }
}

/** The names of tokens; an unknown one has the part of the text that it stands for. */
function axisOf(tokenizer: Tokenizer, ids: number[], text: Encoded | null): Axis {
  const names = tokenizer.pieces(ids), unknown: number[] = [], parts = [...(text?.unknown ?? [])];
  const pieces = names.map((name, at) => {
    const part = ids[at] === tokenizer.data.special.unk ? parts.shift() : undefined;
    if (!part) return name;
    unknown.push(at);
    return part;
  });
  return { pieces, unknown, special: ids.flatMap((id, at) => (tokenizer.isSpecial(id) ? [at] : [])) };
}

/** The tokens that a decoder under a head has read: it starts with token 0 and is one token behind. */
function behind({ pieces, unknown, special }: Axis, tokenizer: Tokenizer): Axis {
  const last = pieces.length - 1, after = (places: number[]) => places.filter((at) => at < last).map((at) => at + 1);
  return { pieces: [...tokenizer.pieces([0]), ...pieces.slice(0, -1)], unknown: after(unknown), special: [0, ...after(special)] };
}

function cut(text: Encoded, longest: number | null, what: string, notes: string[]): Encoded {
  const most = Math.min(longest ?? MOST, MOST), who = most === longest ? "the model" : "this page";
  if (text.ids.length <= most) return text;
  notes.push(`${what} has ${text.ids.length.toLocaleString("en")} tokens, but ${who} reads at most ${most}: the rest is left out`);
  return { ...text, ids: text.ids.slice(0, most) };
}
