// Positions: tables that are added to the embeddings, and T5's bias for distances, which is added to the logits.

import { dot, matrix, row } from "./math.ts";
import type { Matrix } from "./model.ts";
import type { Shape } from "./shape.ts";
import type { Weights } from "./weights.ts";

/** The vector of an absolute position. */
export type Table = (position: number) => Float32Array;

/** The table of absolute positions of a width; null for other kinds of positions. */
export function positionTable(weights: Weights, path: string, shape: Shape, width: number): Table | null {
  if (shape.positions === "learned") {
    const table = weights.matrix(path);
    return (position) => {
      if (position >= table.rows) throw new Error(`the model has positions for ${table.rows} tokens at most`);
      return row(table, position);
    };
  }
  if (!shape.positions.startsWith("sinusoidal")) return null;
  const known: Float32Array[] = [];
  return (position) => (known[position] ??= sinusoid(position, width, shape.positions === "sinusoidal"));
}

/**
 * sin(p ω) and cos(p ω) at width/2 frequencies ω from 1 to 1/10000 (Vaswani et al. 2017, §3.5); alternating, or all
 * sines before all cosines. The angles are rounded to single precision, as PyTorch's are.
 */
export function sinusoid(position: number, width: number, alternating: boolean): Float32Array {
  const found = new Float32Array(width), half = Math.ceil(width / 2), { fround } = Math;
  const rate = fround(-Math.log(10_000) / width);
  for (let i = 0; i < half; i++) {
    const angle = fround(position * fround(Math.exp(fround(2 * i * rate))));
    found[alternating ? 2 * i : i] = Math.sin(angle);
    const at = alternating ? 2 * i + 1 : half + i;
    if (at < width) found[at] = Math.cos(angle);
  }
  return found;
}

/** T5's bias of a distance: one number for each head and bucket of distances (Raffel et al. 2020, §2.1). */
export class Buckets {
  private readonly table: Matrix;
  private readonly far: number[] = [];

  constructor(
    weights: Weights,
    path: string,
    private readonly shape: Shape,
    private readonly bothWays: boolean,
  ) {
    this.table = weights.matrix(`${path}.table.weight`);
  }

  bias(head: number, query: number, key: number): number {
    return this.table.data[this.bucket(query - key) * this.table.width + head];
  }

  /** The bucket of a key that is `behind` positions before its query (negative: after it). */
  bucket(behind: number): number {
    const { buckets } = this.shape, half = this.bothWays ? Math.floor(buckets / 2) : buckets;
    const side = this.bothWays && behind < 0 ? half : 0;
    const distance = this.bothWays ? Math.abs(behind) : Math.max(behind, 0);
    return side + (this.far[distance] ??= bucketOf(distance, half, this.shape.furthest));
  }
}

/**
 * The bucket of a distance, of `count` in all: half of them hold one distance each; the others grow exponentially,
 * bucket = exact + ⌊ln(distance / exact) / ln(furthest / exact) · (count − exact)⌋. Steps are rounded as in PyTorch.
 */
export function bucketOf(distance: number, count: number, furthest: number): number {
  const exact = Math.floor(count / 2), { fround } = Math;
  if (distance < exact) return distance;
  const steps = fround(fround(fround(Math.log(fround(distance / exact))) / fround(Math.log(furthest / exact))) * (count - exact));
  return Math.min(exact + Math.trunc(steps), count - 1);
}

/** The learned vector r of each distance, for a bias qᵀr of the logits (Shaw et al. 2018, eq. 4). */
export class Distances {
  private readonly table: Matrix;

  constructor(weights: Weights, path: string, private readonly furthest: number) {
    this.table = weights.matrix(`${path}.distance`);
  }

  /** qᵀr for a key that is `behind` positions before its query; distances beyond the furthest share one r. */
  product(q: Float32Array, behind: number): number {
    const { furthest, table } = this;
    return dot(q, row(table, Math.min(Math.max(behind, -furthest), furthest) + furthest));
  }
}

/** x + the vector of its position, for each row; the first row has the position `first`. */
export function withPositions(x: Matrix, table: Table, first: number): Matrix {
  const found = matrix(x.rows, x.width);
  for (let r = 0; r < x.rows; r++) {
    const position = table(first + r);
    for (let i = 0; i < x.width; i++) found.data[r * x.width + i] = x.data[r * x.width + i] + position[i];
  }
  return found;
}
