// Multi-head attention (Vaswani et al. 2017, §3.2.2): project, split into heads, attend, concatenate, project.

import { isTraced, read } from "./attention.ts";
import { columns, linear, matrix, norm, row, rows, stacked } from "./math.ts";
import type { Matrix, Taps } from "./model.ts";
import { Distances } from "./positions.ts";
import { PREPARED, scoreOf } from "./scores.ts";
import type { Weights } from "./weights.ts";

/** What attention reads. Its numbers are never changed, so that memories can share them. */
export interface Memory {
  /** Of each head, keys × width: as the score prepares them. */
  keys: Matrix[];
  /** By head and key. */
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
  return {
    keys: before.keys.map((keys, h) => stacked(keys, after.keys[h])),
    values: before.values.map((values, h) => values.concat(after.values[h])),
    norms: before.norms.map((norms, h) => norms.concat(after.norms[h])),
  };
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
  private readonly distances: Distances | null;

  constructor(
    private readonly weights: Weights,
    private readonly path: string,
    private readonly heads: number,
    private readonly score: string,
    furthest: number | null,
  ) {
    const vector = (name: string) => (weights.has(`${path}.${name}`) ? weights.vector(`${path}.${name}`) : null);
    this.qkv = weights.matrix(`${path}.qkv.weight`);
    this.bias = vector("qkv.bias");
    this.out = weights.matrix(`${path}.out.weight`);
    this.outBias = vector("out.bias");
    this.inner = this.out.width;
    this.wide = this.inner / heads;
    this.outputs = Array.from({ length: heads }, (_, h) => columns(this.out, h * this.wide, this.wide));
    this.distances = furthest === null ? null : new Distances(weights, `${path}.read.score`, furthest);
  }

  /** The queries of states, rows × (heads · width of a head): W^Q x + b. */
  queries(x: Matrix): Matrix {
    return this.projected(x, 0, this.inner);
  }

  /** The keys W^K x + b and the values W^V x + b of states, split into heads. */
  memory(x: Matrix, taps: Taps): Memory {
    const { inner, wide } = this, { score } = this.scored(taps), found = this.projected(x, inner, 3 * inner);
    const keys: Matrix[] = [], values: Float32Array[][] = [], norms: number[][] = [];
    this.outputs.forEach((output, h) => {
      const value = columns(found, inner + h * wide, wide);
      keys.push(score.keys(columns(found, h * wide, wide)));
      values.push(rows(value));
      norms.push(rows(linear(value, output)).map(norm)); // ‖W^O_h v‖ (Kobayashi et al. 2020)
    });
    return { keys, values, norms };
  }

  /** The output of queries: the contexts of all heads side by side, times W^O, plus b. */
  attend(queries: Matrix, { keys, values, norms }: Memory, place: Place, taps: Taps): Matrix {
    const { heads, wide, inner } = this, { part, layer, first, visible } = place, count = queries.rows, scored = this.scored(taps);
    const reading = { part, layer, heads, first, queries: count, keys: keys[0].rows, visible, width: wide };
    const contexts = read(
      {
        ...reading,
        logits: (h, i, traced) => {
          const q = row(queries, i - first).subarray(h * wide, (h + 1) * wide);
          return this.logits(scored, q, keys[h], { ...place, head: h, query: i }, traced ? taps : null);
        },
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
        if (isTraced(taps, reading, h, first + i)) this.traceOutput(context, h, taps);
      }
    }
    return linear(beside, this.out, this.outBias);
  }

  /** The logits of one query over all keys: those of the score, plus the biases of the positions. */
  private logits({ name, score }: Scored, q: Float32Array, keys: Matrix, { head, query, bias }: Asked, traced: Taps | null): Float64Array {
    const prepared = score.query(q), found = new Float64Array(keys.rows), { distances } = this;
    for (let j = 0; j < keys.rows; j++) found[j] = score.logit(prepared, keys, j);
    const at = traced?.cell?.column ?? -1, factor = name === "scaled_dot" ? 1 / Math.sqrt(this.wide) : 1;
    if (traced) traceLogit({ name, score }, q, prepared, keys, traced);
    if (!distances && !bias) return found;
    for (let j = 0; j < keys.rows; j++) {
      const add = distances ? factor * distances.product(q, query - j) : bias ? bias(head, query, j) : 0;
      found[j] += add;
      if (j !== at) continue;
      const learned = "a learned number for the distance of the two tokens";
      traced?.trace({ name: "bias", how: distances ? "q times a learned vector for the distance, with the same factor" : learned, values: [add] });
      traced?.trace({ name: "+ bias", how: "the number before the bias, plus the bias", values: [found[j]] });
    }
    return found;
  }

  /** The part of the output that a head adds: its columns of W^O times its context. */
  private traceOutput(context: Float32Array, head: number, taps: Taps): void {
    const { data } = linear({ rows: 1, width: this.wide, data: context }, this.outputs[head]);
    taps.trace({ name: "W^O", how: "the context, projected by the part of W^O for this head: what the head adds to the output", values: [...data] });
  }

  private scored(taps: Taps): Scored {
    return scoreOf(this.score, this.weights, `${this.path}.read.score`, taps);
  }

  private projected(x: Matrix, first: number, end: number): Matrix {
    const { width, data } = this.qkv;
    const weight = { rows: end - first, width, data: data.subarray(first * width, end * width) };
    return linear(x, weight, this.bias && this.bias.subarray(first, end));
  }
}

type Scored = ReturnType<typeof scoreOf>;

/** One query at its place. */
interface Asked extends Place {
  head: number;
  query: number;
}

/** The lines from the query and the key of a cell to their logit. */
function traceLogit({ name, score }: Scored, q: Float32Array, prepared: Float32Array, keys: Matrix, taps: Taps): void {
  const j = taps.cell?.column ?? 0, { query, key } = PREPARED[name];
  taps.trace({ name: query[1] ? "W^Q x" : "q", how: "the query of this head: the state of the row, projected by W^Q", values: [...q] });
  if (query[1]) taps.trace({ name: query[0], how: query[1], values: [...prepared] });
  const plain = "the key of this head: the state of the column, projected by W^K";
  if (key) taps.trace({ name: key[0], how: key[1] || plain, values: [...row(keys, j)] });
  for (const line of score.lines(prepared, keys, j)) taps.trace(line);
}
