// Greedy decoding and beam search: regard/decode/sample.py and beam_search.py, for one text, with the rules that
// `regard look` and `regard translate` use: a score is log p / length, and the search ends by the rule "present".

import { largest, logSoftmax, row } from "./math.ts";
import type { Generator, State, Taps } from "./model.ts";

/** What a model gave when it predicted one token. */
export interface Step {
  logits: Float32Array;
  /** Their log-probabilities. */
  scores: Float32Array;
  state: Float32Array;
  before: Float32Array | null;
}

export interface Prediction<S = State> {
  ids: number[];
  /** The log-probability of each. */
  scores: number[];
  /** Of each; only of greedy decoding. */
  steps: Step[];
  /** The state before the last token was read, and that token. */
  state: S;
  last: number[];
  /** Whether the limit cut it. */
  cut: boolean;
}

export interface SearchOptions {
  /** What the decoder reads before its first token. */
  opening: number[];
  /** The tokens that the model is made to generate first. */
  forced: number[];
  beam: number;
  limit: number;
  /** The token that ends a text; null: only the limit does. */
  stop: number | null;
  forbidden: ReadonlySet<number>;
}

interface Prefix<S> extends Prediction<S> {
  total: number;
}

/** The tokens that follow, those forced included. */
export function search<S extends State>(model: Generator<S>, start: S, options: SearchOptions, taps: Taps): Prediction<S> {
  const { forced, stop, limit } = options;
  const first: Prefix<S> = { ids: [], scores: [], steps: [], cut: false, state: start, last: options.opening, total: 0 };
  for (const id of forced.slice(0, limit)) {
    const [step, state] = next(model, first, taps);
    extend(first, id, state, step);
    if (id === stop) return first;
  }
  if (first.ids.length >= limit) return { ...first, cut: true };
  return options.beam > 1 ? beam(model, first, options, taps) : greedy(model, first, options, taps);
}

/** The likeliest token at each step. */
function greedy<S extends State>(model: Generator<S>, prefix: Prefix<S>, { limit, stop, forbidden }: SearchOptions, taps: Taps): Prediction<S> {
  while (prefix.ids.length < limit) {
    const [step, state] = next(model, prefix, taps);
    const [id] = largest(step.logits, 1, (one) => !forbidden.has(one));
    extend(prefix, id, state, step);
    if (id === stop) return prefix;
  }
  return { ...prefix, cut: true };
}

/** The `size` best prefixes, each extended by every token, and again the best of them. */
function beam<S extends State>(model: Generator<S>, first: Prefix<S>, options: SearchOptions, taps: Taps): Prediction<S> {
  const { beam: size, limit, stop, forbidden } = options;
  let live = [first], pool: number[] = [], best: Prediction<S> | null = null, score = -Infinity;
  for (let length = first.ids.length + 1; length <= limit && live.length; length++) {
    const found: { parent: number; id: number; logp: number; total: number }[] = [];
    const states = live.map((prefix, parent) => {
      const [{ scores: logps }, state] = next(model, prefix, taps);
      for (const id of largest(logps, size + 1, (one) => !forbidden.has(one))) {
        found.push({ parent, id, logp: logps[id], total: Math.fround(prefix.total + logps[id]) });
      }
      return state;
    });
    found.sort((a, b) => b.total - a.total); // stable: of equal candidates, that of the earlier prefix comes first
    for (const { parent, id, logp, total } of found.slice(0, size)) {
      if (id !== stop && length < limit) continue;
      const ended = Math.fround(total / length);
      pool = [...pool, ended].sort((a, b) => b - a).slice(0, size);
      if (ended <= score) continue; // of equal scores the shorter text comes first
      const prefix = live[parent];
      const [ids, scores] = [[...prefix.ids, id], [...prefix.scores, logp]];
      [score, best] = [ended, { ids, scores, steps: [], state: states[parent], last: [id], cut: id !== stop }];
    }
    live = found.filter(({ id }) => id !== stop).slice(0, size).map(({ parent, id, logp, total }) => ({
      ids: [...live[parent].ids, id],
      scores: [...live[parent].scores, logp],
      steps: [],
      cut: false,
      state: states[parent],
      last: [id],
      total,
    }));
    if (pool.length === size && live.every(({ total }) => Math.fround(total / length) <= pool[size - 1])) break;
  }
  if (!best) throw new Error("the beam found no answer");
  return best;
}

/** Reads the tokens of a prefix that are not read yet: the step after them, and the state. */
function next<S extends State>(model: Generator<S>, { last, state }: Prefix<S>, taps: Taps): [Step, S] {
  taps.breathe();
  const found = model.advance(last, state, taps);
  return [stepAt(found, last.length - 1), found.state];
}

function stepAt({ logits, states, before }: ReturnType<Generator["advance"]>, at: number): Step {
  const own = row(logits, at);
  return { logits: own, scores: logSoftmax(own), state: row(states, at), before: before && row(before, at) };
}

function extend<S>(prefix: Prefix<S>, id: number, state: S, step: Step): void {
  prefix.ids.push(id);
  prefix.scores.push(step.scores[id]);
  prefix.steps.push(step);
  Object.assign(prefix, { state, last: [id], total: Math.fround(prefix.total + step.scores[id]) });
}

/** Teacher forcing: reads tokens at once, and gives the step after each. */
export function forced<S extends State>(model: Generator<S>, tokens: number[], state: S, taps: Taps): { steps: Step[]; state: S } {
  if (!tokens.length) return { steps: [], state };
  const found = model.advance(tokens, state, taps);
  return { steps: tokens.map((_, at) => stepAt(found, at)), state: found.state };
}
