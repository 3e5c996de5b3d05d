// The input layer of a Transformer: scale · token + segment + position, a norm and a projection if there are any.

import { linear, matrix, row } from "./math.ts";
import type { Matrix } from "./model.ts";
import { normAt, type Norm } from "./norms.ts";
import { positionTable, withPositions, type Table } from "./positions.ts";
import type { Shape } from "./shape.ts";
import type { Weights } from "./weights.ts";

export class TokenEmbedding {
  readonly tokens: Matrix;
  private readonly positions: Table | null;
  private readonly segments: Matrix | null;
  private readonly norm: Norm | null;
  private readonly project: { weight: Matrix; bias: Float32Array } | null;

  constructor(
    weights: Weights,
    path: string,
    shape: Shape,
    private readonly scale = 1,
    private readonly firstPosition = 0,
  ) {
    const at = (name: string) => `${path}.${name}`;
    this.tokens = weights.matrix(at("tokens.weight"));
    this.positions = positionTable(weights, at("positions.weight"), shape, this.tokens.width);
    this.segments = weights.has(at("segments.weight")) ? weights.matrix(at("segments.weight")) : null;
    this.norm = weights.has(at("norm.weight")) ? normAt(weights, at("norm"), "layer", shape.epsilon) : null;
    this.project = weights.has(at("project.weight"))
      ? { weight: weights.matrix(at("project.weight")), bias: weights.vector(at("project.bias")) }
      : null;
  }

  /** The vectors of tokens, of which the first is at this place of its text; without segments, all are segment 0. */
  vectors(tokens: number[], first = 0, segments: number[] = []): Matrix {
    let x = matrix(tokens.length, this.tokens.width);
    const scale = Math.fround(this.scale);
    tokens.forEach((token, r) => row(x, r).set(row(this.tokens, token).map((value) => scale * value)));
    if (this.segments) {
      const rows = this.segments, several = rows.rows > 1; // a model of one kind of segments knows no second one
      tokens.forEach((_, r) => row(rows, several ? (segments[r] ?? 0) : 0).forEach((value, i) => (x.data[r * x.width + i] += value)));
    }
    if (this.positions) x = withPositions(x, this.positions, first + this.firstPosition);
    if (this.norm) x = this.norm(x);
    return this.project ? linear(x, this.project.weight, this.project.bias) : x;
  }
}
