// One read of an attention module: logits → mask → softmax → changes of heads → sum of the values. Every family reads
// through this function, so recording, changes of heads, masks and traces are the same for all.

import { dot, softmax } from "./math.ts";
import type { Taps } from "./model.ts";

/** What one read consists of. Heads are the outermost index everywhere. */
export interface Reading {
  part: string;
  layer: number;
  heads: number;
  /** The number of the first query: a decoder reads one row at a time. */
  first: number;
  queries: number;
  keys: number;
  /** The logits of one query of one head over all keys; lines of a trace are written if `traced`. */
  logits(head: number, query: number, traced: boolean): ArrayLike<number>;
  /** Whether the model's own mask lets a query look at a key. Queries count from `first`. */
  visible(query: number, key: number): boolean;
  /** The value of a key in a head. */
  value(head: number, key: number): Float32Array;
  width: number;
  /** The norm of a value after the output projection of its head. */
  norm(head: number, key: number): number;
  /** What a weight is multiplied by after the softmax, in a window with soft edges; absent: 1. */
  factor?: (query: number, key: number) => number;
}

/** The contexts, heads × queries × width. */
export function read(reading: Reading, taps: Taps): Float32Array {
  const { part, layer, heads, first, queries, keys, width } = reading;
  const weights = new Float32Array(heads * queries * keys), visible = new Uint8Array(queries * keys);
  const contexts = new Float32Array(heads * queries * width), norms = new Float32Array(heads * keys);
  taps.breathe();
  for (let i = 0; i < queries; i++) {
    for (let j = 0; j < keys; j++) visible[i * keys + j] = Number(taps.visible(part, first + i, j, reading.visible(first + i, j)));
  }
  for (let h = 0; h < heads; h++) {
    for (let j = 0; j < keys; j++) norms[h * keys + j] = reading.norm(h, j);
    for (let i = 0; i < queries; i++) {
      const { cell } = taps;
      const traced = cell !== null && cell.part === part && cell.layer === layer && cell.head === h && cell.row === first + i;
      const seen = visible.subarray(i * keys, (i + 1) * keys);
      const raw = reading.logits(h, first + i, traced), logits = new Float64Array(keys);
      for (let j = 0; j < keys; j++) logits[j] = seen[j] ? raw[j] : -Infinity;
      const found = softmax(logits), soft = traced ? [...found] : [];
      if (reading.factor) for (let j = 0; j < keys; j++) found[j] *= reading.factor(first + i, j);
      const own = traced ? [...found] : [];
      taps.change(part, layer, h, first + i, found, seen);
      weights.set(found, (h * queries + i) * keys);
      const context = new Float64Array(width);
      for (let j = 0; j < keys; j++) {
        if (found[j] === 0) continue;
        const value = reading.value(h, j);
        for (let d = 0; d < width; d++) context[d] += found[j] * value[d];
      }
      contexts.set(context, (h * queries + i) * width);
      if (traced) {
        const at = cell.column, value = reading.value(h, at), weight = found[at];
        taps.trace({ name: "logits", how: "the logit of every key of the row", values: Array.from(raw), at });
        if (seen.includes(0)) taps.trace({ name: "mask", how: "a key that may not be looked at gets −∞", values: [...logits], at });
        taps.trace({ name: "softmax", how: "exp of each, divided by the sum of all", values: soft, at });
        if (reading.factor) taps.trace({ name: "window", how: "softmax times the bell curve of the window", values: own, at });
        if (found.some((one, j) => one !== own[j])) taps.trace({ name: "changed", how: "the weights as they are changed", values: [...found], at });
        taps.trace({ name: "v", how: "the value of the key", values: [...value] });
        taps.trace({ name: "weight · v", how: "the weight of the key times v", values: Array.from(value, (one) => weight * one) });
        taps.trace({ name: "Σ over keys", how: "the sum over all keys of weight · v", values: [...context] });
      }
    }
  }
  taps.read({ part, layer, heads, first, queries, keys, weights, visible, contexts, norms });
  return contexts;
}

/** The norm of a value (width) after the columns of an output projection (out × all) that belong to its head. */
export function projectedNorm(value: Float32Array, projection: { rows: number; width: number; data: Float32Array }, head: number): number {
  let sum = 0;
  for (let o = 0; o < projection.rows; o++) {
    const from = o * projection.width + head * value.length;
    sum += dot(projection.data.subarray(from, from + value.length), value) ** 2;
  }
  return Math.sqrt(sum);
}
