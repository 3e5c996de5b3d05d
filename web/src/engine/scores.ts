// How a query is compared with a key: the scores of regard/scores.py. Each has the logits, and the lines of a trace from
// which a reader can compute the logit of one key again.

import { linear, norm, row } from "./math.ts";
import type { Matrix, Taps } from "./model.ts";
import { product } from "./recurrent.ts";
import type { Weights } from "./weights.ts";

export interface Score {
  /** What a query is compared with, once for a memory (rows × width). */
  keys(memory: Matrix): Matrix;
  /** What is compared with the keys, once for a query. */
  query(q: Float32Array): Float32Array;
  /** The logit of a prepared query and key j. */
  logit(query: Float32Array, keys: Matrix, j: number): number;
  /** The lines from the prepared query and key j to the logit of the key. */
  lines(query: Float32Array, keys: Matrix, j: number): Line[];
}

export interface Line {
  name: string;
  how: string;
  values: number[];
  at?: number;
}

type Make = (weights: Weights, prefix: string) => Score;

const same = <T>(x: T): T => x;

/** scale · q·k */
function dotted(scale: (query: Float32Array) => number): Score {
  return {
    keys: same,
    query: same,
    logit(query, keys, j) {
      let sum = 0;
      for (let d = 0, from = j * keys.width; d < query.length; d++) sum += query[d] * keys.data[from + d];
      return scale(query) * sum;
    },
    lines(query, keys, j) {
      const products = Array.from(row(keys, j), (one, d) => one * query[d]);
      return [
        { name: "q ⊙ k", how: "q times k, number by number", values: products },
        { name: "Σ", how: "the sum of q ⊙ k", values: [products.reduce((a, b) => a + b, 0)] },
      ];
    },
  };
}

export const SCORES: Record<string, Make> = {
  /** qᵀk */
  dot: () => dotted(() => 1),

  /** qᵀk / √width */
  scaled_dot: () => {
    const score = dotted((query) => 1 / Math.sqrt(query.length));
    return {
      ...score,
      lines(query, keys, j) {
        const how = `Σ divided by the root of ${query.length}, the width of q`;
        return [...score.lines(query, keys, j), { name: `÷ √${query.length}`, how, values: [this.logit(query, keys, j)] }];
      },
    };
  },

  /** qᵀWk: W is applied to the keys once for a memory. */
  general: (weights, prefix) => ({
    ...dotted(() => 1),
    keys: (memory) => linear(memory, weights.matrix(`${prefix}.key.weight`)),
  }),

  /** β cos(q, k): queries and keys of length 1, the queries times β */
  cosine: (weights, prefix) => ({
    ...dotted(() => 1),
    keys: (memory) => rowsOf(memory, (one) => unit(one, 1)),
    query: (q) => unit(q, weights.vector(`${prefix}.sharpness`)[0]),
  }),

  /** vᵀ tanh(Wq + Uk) */
  additive: (weights, prefix) => {
    const v = weights.vector(`${prefix}.v`);
    const own = weights.matrix(`${prefix}.query.weight`), bias = weights.vector(`${prefix}.query.bias`);
    return {
      keys: (memory) => linear(memory, weights.matrix(`${prefix}.key.weight`)),
      query: (q) => product(q, own, bias).data,
      logit(query, keys, j) {
        let sum = 0;
        for (let d = 0, from = j * keys.width; d < v.length; d++) sum += v[d] * Math.tanh(query[d] + keys.data[from + d]);
        return sum;
      },
      lines(query, keys, j) {
        const sums = Array.from(row(keys, j), (one, d) => query[d] + one), bent = sums.map(Math.tanh);
        const parts = bent.map((one, d) => v[d] * one);
        return [
          { name: "Wq + Uk", how: "Wq plus Uk, number by number", values: sums },
          { name: "tanh", how: "the tanh of each number of Wq + Uk", values: bent },
          { name: "vector v", how: "the learned vector v of the score", values: [...v] },
          { name: "v ⊙ tanh", how: "v times tanh, number by number", values: parts },
          { name: "Σ", how: "the sum of v ⊙ tanh", values: [parts.reduce((a, b) => a + b, 0)] },
        ];
      },
    };
  },

  /** Entry j of Wq: the keys have no part in it. */
  location: (weights, prefix) => {
    const own = weights.matrix(`${prefix}.query.weight`);
    return {
      keys: same,
      query: (q) => product(q, own).data,
      logit: (query, _, j) => query[j],
      lines: (query, _, j) => [{ name: "(Wq)ⱼ", how: "the number of Wq at the place of the key", values: [query[j]] }],
    };
  },
};

/** Names of what is compared: the query and the key as the score prepares them. */
export const PREPARED: Record<string, { query: [string, string]; key: [string, string] | null }> = {
  dot: { query: ["q", ""], key: ["k", ""] },
  scaled_dot: { query: ["q", ""], key: ["k", ""] },
  general: { query: ["q", ""], key: ["k", "the matrix W of the score times the key"] },
  cosine: {
    query: ["q", "the query divided by its length, times the learned sharpness β"],
    key: ["k", "the key divided by its length"],
  },
  additive: {
    query: ["Wq", "the matrix W of the score times the query, plus its bias"],
    key: ["Uk", "the matrix U of the score times the key"],
  },
  location: { query: ["Wq", "the matrix W of the score times the query: one number for each place"], key: null },
};

/** The score of a model, or that of the question. */
export function scoreOf(own: string, weights: Weights, prefix: string, taps: Taps): { name: string; score: Score } {
  const name = taps.score ?? own;
  return { name, score: SCORES[name](weights, prefix) };
}

/** x divided by its norm (at least 1e-12), times a scale, as F.normalize. */
function unit(x: Float32Array, scale: number): Float32Array {
  const size = Math.max(norm(x), 1e-12);
  return x.map((one) => (one / size) * scale);
}

function rowsOf(x: Matrix, change: (one: Float32Array) => Float32Array): Matrix {
  const data = new Float32Array(x.data.length);
  for (let at = 0; at < x.rows; at++) data.set(change(row(x, at)), at * x.width);
  return { ...x, data };
}
