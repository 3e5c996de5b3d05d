// Multi-head attention (Vaswani et al. 2017, §3.2.2): project, split into heads, attend, concatenate, project.

import { isTraced, read } from "./attention.ts";
import { columns, linear, matrix, norm, row, rows } from "./math.ts";
import type { Matrix, Taps } from "./model.ts";
import { scoreAt, type Score, type ScoreSettings } from "./transformer_scores.ts";
import type { Weights } from "./weights.ts";

/** What attention reads, by head and key. Vectors are never changed, so that memories can share them. */
export interface Memory {
  keys: Float32Array[][];
  values: Float32Array[][];
  /** The norm of each value after the output projection of its head. */
  norms: number[][];
}

/** Where a read takes place, and what a query sees there. */
export interface Place {
  part: string;
  layer: number;
  /** The number of the first query. */
  first: number;
  visible(query: number, key: number): boolean;
  /** A bias of the positions, added to the logits. */
  bias: ((head: number, query: number, key: number) => number) | null;
}

/** The memory of earlier tokens, and then that of new ones. */
export function joined(before: Memory | undefined, after: Memory): Memory {
  if (!before) return after;
  const both = <T>(a: T[][], b: T[][]): T[][] => a.map((head, h) => head.concat(b[h]));
  return { keys: both(before.keys, after.keys), values: both(before.values, after.values), norms: both(before.norms, after.norms) };
}

/** The lines from the query and the key of a cell to factor · Σ. */
function traceLogit(score: Score, q: Float32Array, k: Float32Array, logit: number, taps: Taps): void {
  score.lines(q, k, (line) => taps.trace(line));
  taps.trace({ name: "Σ", how: "the sum of the numbers of the line above", values: [logit / score.factor] });
  if (score.factorName) taps.trace({ name: score.factorName, how: `Σ ${score.factorName}`, values: [logit] });
}

export class MultiHead {
  private readonly qkv: Matrix;
  private readonly bias: Float32Array | null;
  private readonly out: Matrix;
  /** The columns of W^O that belong to each head. */
  private readonly outputs: Matrix[];
  private readonly outBias: Float32Array | null;
  private readonly inner: number;
  private readonly wide: number;
  private readonly score: (asked: Taps["score"]) => Score;

  constructor(
    weights: Weights,
    path: string,
    private readonly heads: number,
    score: ScoreSettings,
  ) {
    const vector = (name: string) => (weights.has(`${path}.${name}`) ? weights.vector(`${path}.${name}`) : null);
    this.qkv = weights.matrix(`${path}.qkv.weight`);
    this.bias = vector("qkv.bias");
    this.out = weights.matrix(`${path}.out.weight`);
    this.outBias = vector("out.bias");
    this.inner = this.out.width;
    this.wide = score.headWidth;
    this.outputs = Array.from({ length: heads }, (_, h) => columns(this.out, h * this.wide, this.wide));
    this.score = scoreAt(weights, `${path}.read.score`, score);
  }

  /** The queries of states, rows × (heads · width of a head): W^Q x + b. */
  queries(x: Matrix): Matrix {
    return this.projected(x, 0, this.inner);
  }

  /** The keys W^K x + b and the values W^V x + b of states, split into heads. */
  memory(x: Matrix, taps: Taps): Memory {
    const { inner, wide } = this, score = this.score(taps.score), found = this.projected(x, inner, 3 * inner);
    const keys: Float32Array[][] = [], values: Float32Array[][] = [], norms: number[][] = [];
    this.outputs.forEach((output, h) => {
      const value = columns(found, inner + h * wide, wide);
      keys.push(rows(columns(found, h * wide, wide)).map(score.key));
      values.push(rows(value));
      norms.push(rows(linear(value, output)).map(norm)); // ‖W^O_h v‖ (Kobayashi et al. 2020)
    });
    return { keys, values, norms };
  }

  /** The output of queries: the contexts of all heads side by side, times W^O, plus b. */
  attend(queries: Matrix, { keys, values, norms }: Memory, place: Place, taps: Taps): Matrix {
    const { heads, wide, inner } = this, { part, layer, first, visible } = place, count = queries.rows;
    const reading = { part, layer, heads, first, queries: count, keys: keys[0].length, visible, width: wide };
    const contexts = read(
      {
        ...reading,
        logits: (h, i, traced) => this.logits(row(queries, i - first).subarray(h * wide, (h + 1) * wide), h, i, keys[h], place, traced, taps),
        value: (h, j) => values[h][j],
        norm: (h, j) => norms[h][j],
      },
      taps,
    );
    const beside = matrix(count, inner);
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < count; i++) {
        const context = contexts.subarray((h * count + i) * wide, (h * count + i + 1) * wide);
        beside.data.set(context, i * inner + h * wide);
        if (isTraced(taps, part, layer, h, first + i)) this.traceOutput(context, h, taps);
      }
    }
    return linear(beside, this.out, this.outBias);
  }

  /** The logits of one query over all keys: factor · Σ, plus the biases of the positions. */
  private logits(q: Float32Array, head: number, query: number, keys: Float32Array[], place: Place, traced: boolean, taps: Taps): Float64Array {
    const score = this.score(taps.score), compared = score.query(q), found = new Float64Array(keys.length);
    for (let j = 0; j < keys.length; j++) found[j] = score.logit(compared, keys[j]);
    const at = traced && taps.cell ? taps.cell.column : -1;
    if (traced) traceLogit(score, compared, keys[at], found[at], taps);
    if (!score.bias && !place.bias) return found;
    for (let j = 0; j < keys.length; j++) {
      const bias = (score.bias?.(compared, query, j) ?? 0) + (place.bias?.(head, query, j) ?? 0);
      found[j] += bias;
      if (j !== at) continue;
      const learned = "a learned number for the distance of the two tokens";
      taps.trace({ name: "bias", how: score.bias ? "q times a learned vector for the distance, with the same factor" : learned, values: [bias] });
      taps.trace({ name: "+ bias", how: "the number before the bias, plus the bias", values: [found[j]] });
    }
    return found;
  }

  /** The part of the output that a head adds: its columns of W^O times its context. */
  private traceOutput(context: Float32Array, head: number, taps: Taps): void {
    const { data } = linear({ rows: 1, width: this.wide, data: context }, this.outputs[head]);
    taps.trace({ name: "W^O", how: "W^O of this head times the context: what the head adds to the output", values: [...data] });
  }

  private projected(x: Matrix, first: number, end: number): Matrix {
    const { width, data } = this.qkv;
    const weight = { rows: end - first, width, data: data.subarray(first * width, end * width) };
    return linear(x, weight, this.bias && this.bias.subarray(first, end));
  }
}
