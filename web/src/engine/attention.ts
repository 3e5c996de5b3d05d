// One read of an attention module: logits → mask → softmax → changes of heads → sum of the values. Every family reads
// through this function, so recording, changes of heads, masks and traces are the same for all.

import { softmax } from "./math.ts";
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
}

/** Whether the computation of a cell in this row of a head is traced. */
export function isTraced({ cell }: Taps, part: string, layer: number, head: number, row: number): boolean {
  return cell !== null && cell.part === part && cell.layer === layer && cell.head === head && cell.row === row;
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
  const logits = new Float64Array(keys), context = new Float64Array(width);
  for (let h = 0; h < heads; h++) {
    const values: Float32Array[] = [];
    for (let j = 0; j < keys; j++) {
      values.push(reading.value(h, j));
      norms[h * keys + j] = reading.norm(h, j);
    }
    for (let i = 0; i < queries; i++) {
      const traced = isTraced(taps, part, layer, h, first + i);
      const seen = visible.subarray(i * keys, (i + 1) * keys), scores = reading.logits(h, first + i, traced);
      for (let j = 0; j < keys; j++) logits[j] = seen[j] ? scores[j] : -Infinity;
      const soft = softmax(logits), found = traced ? soft.slice() : soft;
      taps.change(part, layer, h, first + i, found, seen);
      weights.set(found, (h * queries + i) * keys);
      sumOfValues(found, values, context);
      contexts.set(context, (h * queries + i) * width);
      if (traced) traceRead(taps, scores, logits, soft, found, values);
    }
  }
  taps.read({ part, layer, heads, first, queries, keys, weights, visible, contexts, norms });
  return contexts;
}

/** Σ weight · v over the keys, written to `sum`. */
function sumOfValues(weights: Float32Array, values: Float32Array[], sum: Float64Array): void {
  sum.fill(0);
  for (let j = 0; j < values.length; j++) {
    const weight = weights[j], value = values[j];
    if (weight === 0) continue;
    for (let d = 0; d < sum.length; d++) sum[d] += weight * value[d];
  }
}

/** The lines of a trace from the logits of the row to the context. */
function traceRead(taps: Taps, scores: ArrayLike<number>, logits: Float64Array, soft: Float32Array, found: Float32Array, values: Float32Array[]): void {
  const at = taps.cell?.column ?? 0, weight = found[at], value = values[at];
  const own = Array.from(value, (one) => weight * one), others = new Float64Array(value.length);
  sumOfValues(found.map((one, j) => (j === at ? 0 : one)), values, others);
  taps.trace({ name: "logits", how: "the logits of all keys of the row, each computed in this way", values: Array.from(scores), at });
  if (logits.includes(-Infinity)) taps.trace({ name: "mask", how: "a key that may not be looked at gets −∞", values: [...logits], at });
  taps.trace({ name: "softmax", how: "exp of each number, divided by the sum of all of them", values: [...soft], at });
  if (soft.some((one, j) => one !== found[j])) {
    taps.trace({ name: "changed", how: "the weights after your changes of this head", values: [...found], at });
  }
  taps.trace({ name: "v", how: "the value of the column in this head", values: [...value] });
  taps.trace({ name: "weight · v", how: "the weight of the column times v", values: own });
  taps.trace({ name: "the other keys", how: "the sum of weight · v over all other keys", values: [...others] });
  taps.trace({ name: "Σ over keys", how: "weight · v plus the other keys: the context", values: own.map((one, d) => one + others[d]) });
}
