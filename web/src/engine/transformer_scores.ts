// Scores of multi-head attention: how a query is compared with a key (regard/scores.py). Every score here is
// factor · Σ of some terms, one for each dimension; a trace writes the terms, their sum and the factor.

import { dot, linear, norm } from "./math.ts";
import type { Taps } from "./model.ts";
import type { Weights } from "./weights.ts";

type Trace = Taps["trace"];

export interface Score {
  /** The key as it is stored, and the query as it is compared; computed once for each. */
  key(k: Float32Array): Float32Array;
  query(q: Float32Array): Float32Array;
  /** The logit of a query and a key of `query` and `key`. */
  logit(q: Float32Array, k: Float32Array): number;
  /** The factor of the sum, and its name in a trace; an empty name: the factor is 1. */
  factor: number;
  factorName: string;
  /** Writes the lines of a trace down to the terms of the sum. */
  lines(q: Float32Array, k: Float32Array, trace: Trace): void;
  /** A number for the distance, added to the logit. */
  bias?(q: Float32Array, query: number, key: number): number;
}

const same = (vector: Float32Array): Float32Array => vector;

/** The names of the query and the key in a trace, and how they are computed. */
interface Words {
  q: [string, string];
  k: [string, string];
}

const PROJECTED: Words = {
  q: ["q", "the query of this head: W^Q times the state of the row"],
  k: ["k", "the key of this head: W^K times the state of the column"],
};

/** factor · qᵀk, for a query and a key after their maps: dot, scaled_dot, general and cosine. */
function dotScore(factor: number, factorName: string, maps: Partial<Pick<Score, "key" | "query">> = {}, words = PROJECTED): Score {
  return {
    key: same,
    query: same,
    ...maps,
    factor,
    factorName,
    logit: (q, k) => dot(q, k) * factor,
    lines(q, k, trace) {
      trace({ name: words.q[0], how: words.q[1], values: [...q] });
      trace({ name: words.k[0], how: words.k[1], values: [...k] });
      const product = `${words.q[0]} ⊙ ${words.k[0]}`;
      trace({ name: product, how: `${words.q[0]} times ${words.k[0]}, number by number`, values: Array.from(q, (one, i) => one * k[i]) });
    },
  };
}

const scaledDot = (width: number): Score => dotScore(1 / Math.sqrt(width), `÷ √${width}`);

/** vᵀ tanh(Wq + Uk) (Bahdanau et al. 2015, §A.1.2). */
function additive(weights: Weights, path: string): Score {
  const v = weights.vector(`${path}.v`);
  const w = weights.matrix(`${path}.query.weight`), b = weights.vector(`${path}.query.bias`), u = weights.matrix(`${path}.key.weight`);
  return {
    key: (k) => linear({ rows: 1, width: k.length, data: k }, u).data,
    query: (q) => linear({ rows: 1, width: q.length, data: q }, w, b).data,
    factor: 1,
    factorName: "",
    logit(q, k) {
      let sum = 0;
      for (let d = 0; d < v.length; d++) sum += v[d] * Math.tanh(q[d] + k[d]);
      return sum;
    },
    lines(q, k, trace) {
      const sums = Array.from(q, (one, d) => one + k[d]), bent = sums.map(Math.tanh);
      trace({ name: "Wq", how: "the query of this head, times W, plus its bias", values: [...q] });
      trace({ name: "Uk", how: "the key of this head, times U", values: [...k] });
      trace({ name: "Wq + Uk", how: "Wq plus Uk, number by number", values: sums });
      trace({ name: "tanh", how: "the tanh of each number of Wq + Uk", values: bent });
      trace({ name: "v", how: "the learned vector of the score", values: [...v] });
      trace({ name: "v ⊙ tanh", how: "v times tanh, number by number", values: bent.map((one, d) => v[d] * one) });
    },
  };
}

/** qᵀ(k + r) / √width, with a learned vector r for each distance (Shaw et al. 2018, eq. 4). */
function relative(weights: Weights, path: string, furthest: number, own: Score): Score {
  const distances = weights.matrix(`${path}.distance`), { width, data } = distances;
  return {
    ...own,
    bias(q, query, key) {
      const from = (Math.min(Math.max(query - key, -furthest), furthest) + furthest) * width;
      let sum = 0;
      for (let d = 0; d < width; d++) sum += q[d] * data[from + d];
      return own.factor * sum;
    },
  };
}

function general(weights: Weights, path: string): Score {
  const w = weights.matrix(`${path}.key.weight`);
  const words: Words = { q: PROJECTED.q, k: ["W k", "the key of this head, times W"] };
  return dotScore(1, "", { key: (k) => linear({ rows: 1, width: k.length, data: k }, w).data }, words);
}

/** β cos(q, k) (Graves et al. 2014, eq. 5-6). */
function cosine(weights: Weights, path: string): Score {
  const sharpness = weights.vector(`${path}.sharpness`)[0];
  const unit = (x: Float32Array): Float32Array => {
    const length = Math.max(norm(x), 1e-12);
    return x.map((one) => one / length);
  };
  const words: Words = {
    q: ["q / |q|", "the query of this head, divided by its length"],
    k: ["k / |k|", "the key of this head, divided by its length"],
  };
  return dotScore(sharpness, `× ${Number(sharpness.toPrecision(7))}`, { key: unit, query: unit }, words);
}

const OTHERS = { general, additive, cosine };

export interface ScoreSettings {
  name: "dot" | "scaled_dot" | keyof typeof OTHERS;
  headWidth: number;
  /** Relative positions: the largest distance with a vector of its own; null: no such positions. */
  furthest: number | null;
}

/** The score of a module of attention, given the score that a question asks for instead of the model's own. */
export function scoreAt(weights: Weights, path: string, { name, headWidth, furthest }: ScoreSettings): (asked: Taps["score"]) => Score {
  const placed = (score: Score): Score => (furthest === null ? score : relative(weights, path, furthest, score));
  const scores = { dot: placed(dotScore(1, "")), scaled_dot: placed(scaledDot(headWidth)) };
  const own = name === "dot" || name === "scaled_dot" ? scores[name] : OTHERS[name](weights, path);
  return (asked) => (asked ? scores[asked] : own);
}
