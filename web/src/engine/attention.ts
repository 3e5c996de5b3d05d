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
  /** Whether the score compares a query with a key: a window of the score is no mask, so changes of heads may leave it. */
  compares?: (query: number, key: number) => boolean;
  /** The value of a key in a head. */
  value(head: number, key: number): Float32Array;
  width: number;
  /** The norm of a value after the output projection of its head. */
  norm(head: number, key: number): number;
  /** What a weight is multiplied by after the softmax, in a window with soft edges; absent: 1. */
  factor?: (query: number, key: number) => number;
}

/** Whether the computation of a cell in this row of a head is traced; the cell of a key that is not there yet is not. */
export function isTraced({ cell }: Taps, { part, layer, keys }: Pick<Reading, "part" | "layer" | "keys">, head: number, row: number): boolean {
  return cell !== null && cell.part === part && cell.layer === layer && cell.head === head && cell.row === row && cell.column < keys;
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
      const traced = isTraced(taps, reading, h, first + i);
      const seen = visible.subarray(i * keys, (i + 1) * keys), scores = reading.logits(h, first + i, traced);
      for (let j = 0; j < keys; j++) logits[j] = seen[j] && (reading.compares?.(first + i, j) ?? true) ? scores[j] : -Infinity;
      const soft = softmax(logits), own = traced ? soft.slice() : soft;
      if (reading.factor) for (let j = 0; j < keys; j++) own[j] *= reading.factor(first + i, j);
      const found = traced ? own.slice() : own;
      taps.change(part, layer, h, first + i, found, seen);
      weights.set(found, (h * queries + i) * keys);
      sumOfValues(found, values, context);
      contexts.set(context, (h * queries + i) * width);
      if (traced) traceRead(taps, { scores, logits, soft, own, found }, values, reading.factor !== undefined);
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

/** The stages of one row: logits, masked logits, their softmax, the weights of the model, and after changes. */
interface Stages {
  scores: ArrayLike<number>;
  logits: Float64Array;
  soft: Float32Array;
  own: Float32Array;
  found: Float32Array;
}

/** The lines of a trace from the logits of the row to the context. */
function traceRead(taps: Taps, { scores, logits, soft, own, found }: Stages, values: Float32Array[], curved: boolean): void {
  const at = taps.cell?.column ?? 0, weight = found[at], value = values[at];
  const product = Array.from(value, (one) => weight * one), others = new Float64Array(value.length);
  sumOfValues(found.map((one, j) => (j === at ? 0 : one)), values, others);
  const line = (name: string, how: string, numbers: ArrayLike<number>) => taps.trace({ name, how, values: Array.from(numbers), at });
  const vector = (name: string, how: string, numbers: ArrayLike<number>) => taps.trace({ name, how, values: Array.from(numbers) });
  line("logits", "the logit of every key of the row, each computed in this way", scores);
  if (logits.includes(-Infinity)) line("mask", "a key that may not be looked at gets −∞", logits);
  line("softmax", "exp of each, divided by the sum of all", soft);
  if (curved) line("window", "softmax times the bell curve of the window", own);
  if (found.some((one, j) => one !== own[j])) line("changed", "the weights as they are changed", found);
  vector("v", "the value of the key", value);
  vector("weight · v", "the weight of the key times v", product);
  vector("the other keys", "the sum of weight · v over all other keys", others);
  vector("Σ over keys", "weight · v plus the other keys: the context", product.map((one, d) => one + others[d]));
}
