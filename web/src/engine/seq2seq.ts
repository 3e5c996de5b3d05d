// Recurrent encoder–decoders: regard/models/seq2seq.py and recurrent_decoders.py.

import { read, type Reading } from "./attention.ts";
import { dot, linear, matrix, norm, row, sigmoid, stacked } from "./math.ts";
import type { Build, Generator, Matrix, State, Taps } from "./model.ts";
import { product, Stack, top, type Hidden } from "./recurrent.ts";
import { PREPARED, scoreOf, type Score } from "./scores.ts";
import type { Weights } from "./weights.ts";

/** What attention reads: the states of the source, and what the score makes of them, once for a source. */
interface Memory {
  values: Matrix;
  norms: number[];
  keys: Matrix;
  score: Score;
  name: string;
}

interface RecurrentState extends State {
  readonly hidden: Hidden;
  /** The fixed context, or the result of attention of the last step, where they are an input of a step. */
  readonly context: Float32Array | null;
  readonly memory: Memory | null;
}

type Step = (x: Float32Array, state: RecurrentState, taps: Taps) => { features: Float32Array; hidden: Hidden; fed: Float32Array | null };

export const seq2seq: Build = (config, weights) => {
  const cell = String(config.cell), kind = String(config.decoder);
  const source = weights.matrix("encoder.embedding.weight"), target = weights.matrix("target_embedding.weight");
  const encoder = new Stack(weights, "encoder.rnn", cell), rnn = new Stack(weights, "decoder.rnn", cell);
  const bridge = { weight: weights.matrix("bridge.weight"), bias: weights.vector("bridge.bias") };
  const readout = { weight: weights.matrix("readout_.weight"), bias: weights.vector("readout_.bias") };
  const step = stepOf(kind, rnn, weights, config);

  const model: Generator<RecurrentState> = {
    kind: "generator",

    start(tokens, taps) {
      const { states, summary } = encoder.read(embedded(source, tokens), taps);
      const first = product(summary, bridge.weight, bridge.bias).data.map(Math.tanh);
      const hidden = split(first, rnn);
      const context = kind === "every" ? summary : kind === "luong-feeding" ? new Float32Array(states.width) : null;
      const memory = ["once", "every"].includes(kind) ? null : memoryOf(states, config, weights, taps);
      return { at: 0, hidden, context, memory };
    },

    advance(tokens, state, taps) {
      const features: Matrix[] = [], states: Matrix[] = [], before: Matrix[] = [];
      for (const token of tokens) {
        taps.breathe();
        before.push(single(top(state.hidden)));
        const after = step(row(target, token), state, taps);
        state = { at: state.at + 1, hidden: after.hidden, context: after.fed, memory: state.memory };
        features.push(single(after.features));
        states.push(single(top(after.hidden)));
      }
      const logits = linear(stacked(...features), readout.weight, readout.bias);
      return { logits, states: stacked(...states), before: stacked(...before), state };
    },
  };
  return model;
};

/** One step of a decoder, given the embedding of the last token. */
function stepOf(kind: string, rnn: Stack, weights: Weights, config: Record<string, unknown>): Step {
  const attend = (query: Float32Array, state: RecurrentState, taps: Taps) => attention(query, state, weights, config, taps);
  const attends = weights.has("decoder.out.weight");
  const weight = attends ? weights.matrix("decoder.out.weight") : matrix(0, 0), bias = attends ? weights.vector("decoder.out.bias") : null;
  const out = (...parts: Float32Array[]) => product(joined(...parts), weight, bias).data.map(Math.tanh);
  switch (kind) {
    case "once": // the source is in the first state alone
    case "every": // h = f(h, [x; c]), with the same c at every step
      return (x, { hidden, context }) => {
        const after = rnn.step(context ? joined(x, context) : x, hidden);
        return { features: top(after), hidden: after, fed: context };
      };
    case "bahdanau": // c by the state before, h = f(h, [x; c]), features = tanh(W [h; c; x])
      return (x, state, taps) => {
        const context = attend(top(state.hidden), state, taps), after = rnn.step(joined(x, context), state.hidden);
        return { features: out(top(after), context, x), hidden: after, fed: null };
      };
    case "luong": // h = f(h, x), c by the new state, features = tanh(W [c; h])
    case "luong-feeding": // … and the features are an input of the next step
      return (x, state, taps) => {
        const after = rnn.step(state.context ? joined(x, state.context) : x, state.hidden);
        const features = out(attend(top(after), state, taps), top(after));
        return { features, hidden: after, fed: kind === "luong" ? null : features };
      };
  }
  throw new Error(`the engine has no decoder ${kind}`);
}

/** The prefix of the score's weights: in a window it is the inner score. */
const prefixOf = (config: Record<string, unknown>): string => `decoder.attention.score${config.window === "none" ? "" : ".score"}`;

function memoryOf(values: Matrix, config: Record<string, unknown>, weights: Weights, taps: Taps): Memory {
  const { name, score } = scoreOf(String(config.score), weights, prefixOf(config), taps);
  return { values, norms: Array.from({ length: values.rows }, (_, j) => norm(row(values, j))), keys: score.keys(values), score, name };
}

/** The context of one query: one row of the part "cross". */
function attention(q: Float32Array, state: RecurrentState, weights: Weights, config: Record<string, unknown>, taps: Taps): Float32Array {
  const memory = state.memory!, { values, keys, score } = memory, query = score.query(q);
  const window = windowOf(q, state.at, values.rows, weights, config);
  const reading: Reading = {
    part: "cross",
    layer: 0,
    heads: 1,
    first: state.at,
    queries: 1,
    keys: values.rows,
    logits(_head, _query, traced) {
      if (traced) traceLogit(memory, q, query, config, taps);
      return Array.from({ length: keys.rows }, (_, j) => score.logit(query, keys, j));
    },
    visible: () => true,
    compares: (_, key) => window.sees(key),
    value: (_, key) => row(values, key),
    width: values.width,
    norm: (_, key) => memory.norms[key],
    ...(window.factor ? { factor: window.factor } : {}),
  };
  return read(reading, taps);
}

/** The lines from the state and the source to the logit of the traced key. */
function traceLogit(memory: Memory, q: Float32Array, query: Float32Array, config: Record<string, unknown>, taps: Taps): void {
  const j = taps.cell!.column, { query: ofQuery, key } = PREPARED[memory.name];
  const state = config.decoder === "bahdanau" ? "s₍ₜ₋₁₎, the state of the decoder before this step" : "s₍ₜ₎, the state of the decoder at this step";
  taps.trace({ name: ofQuery[1] ? "s" : "q", how: `the query: ${state}`, values: [...q] });
  if (ofQuery[1]) taps.trace({ name: ofQuery[0], how: ofQuery[1], values: [...query] });
  if (key) taps.trace({ name: key[0], how: key[1] || "the key: the state of the source at this column", values: [...row(memory.keys, j)] });
  for (const line of memory.score.lines(query, memory.keys, j)) taps.trace(line);
}

interface Window {
  sees(key: number): boolean;
  /** What a weight is multiplied by after the softmax. */
  factor?: (query: number, key: number) => number;
}

/** Luong's windows (2015, §3.2): none; local-m, around the place of the step; local-p, around a centre p = S σ(vᵀ tanh(Wq)). */
function windowOf(q: Float32Array, at: number, length: number, weights: Weights, config: Record<string, unknown>): Window {
  const radius = Number(config.radius);
  if (config.window === "none") return { sees: () => true };
  if (config.window === "local-m") return { sees: (key) => Math.abs(at - key) <= radius };
  const bent = product(q, weights.matrix("decoder.attention.score.hidden.weight")).data.map(Math.tanh);
  const centre = length * sigmoid(dot(bent, weights.vector("decoder.attention.score.centre.weight")));
  return {
    sees: (key) => Math.abs(key - centre) <= radius,
    factor: (_, key) => Math.exp(-((key - centre) ** 2) / (2 * (radius / 2) ** 2)),
  };
}

/** The rows of a table at these ids. */
export function embedded(table: Matrix, tokens: number[]): Matrix {
  const found = matrix(tokens.length, table.width);
  tokens.forEach((token, at) => found.data.set(row(table, token), at * table.width));
  return found;
}

/** Vectors one after the other. */
function joined(...parts: Float32Array[]): Float32Array {
  const found = new Float32Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    found.set(part, at);
    at += part.length;
  }
  return found;
}

const single = (data: Float32Array): Matrix => ({ rows: 1, width: data.length, data });

/** One vector as a state: (layers, parts, width). */
function split(flat: Float32Array, { layers, parts }: Stack): Hidden {
  const width = flat.length / layers / parts;
  return Array.from({ length: layers }, (_, l) =>
    Array.from({ length: parts }, (_, p) => flat.slice((l * parts + p) * width, (l * parts + p + 1) * width)),
  );
}
