// A stack of recurrent layers in one direction or two: regard/layers/recurrent.py.

import { CELLS, PARTS, type Parts } from "./cells.ts";
import { beside, linear, matrix, row } from "./math.ts";
import type { Matrix, Taps } from "./model.ts";
import type { Weights } from "./weights.ts";

/** The state of a stack: the parts of each layer. It is never changed in place. */
export type Hidden = Parts[];

interface Layer {
  width: number;
  input: Matrix;
  hidden: Matrix;
  inputBias: Float32Array;
  hiddenBias: Float32Array;
}

export class Stack {
  private readonly onward: Layer[] = [];
  private readonly returning: Layer[] = [];

  constructor(weights: Weights, prefix: string, readonly cell: string) {
    for (const [name, layers] of [["onward", this.onward], ["returning", this.returning]] as const) {
      for (let at = 0; weights.has(`${prefix}.${name}.${at}.weight_ih_l0`); at++) {
        const own = (kind: string) => `${prefix}.${name}.${at}.${kind}_l0`, hidden = weights.matrix(own("weight_hh"));
        layers.push({
          width: hidden.width,
          input: weights.matrix(own("weight_ih")),
          hidden,
          inputBias: weights.vector(own("bias_ih")),
          hiddenBias: weights.vector(own("bias_hh")),
        });
      }
    }
    if (!this.onward.length) throw new Error(`the page has no recurrent layer ${prefix}`);
  }

  get layers(): number {
    return this.onward.length;
  }

  get parts(): number {
    return PARTS[this.cell];
  }

  /** The state of zeros. */
  zeros(): Hidden {
    return this.onward.map(({ width }) => this.empty(width));
  }

  /** Reads a whole text (rows of x): the states of the last layer, and their summary: the last one of each direction. */
  read(x: Matrix, taps: Taps): { states: Matrix; summary: Float32Array } {
    let summary: Float32Array = new Float32Array(0);
    this.onward.forEach((layer, depth) => {
      taps.breathe();
      const onward = this.run(layer, x, false), count = x.rows;
      if (!this.returning.length) {
        [x, summary] = [onward, row(onward, count - 1)];
        return;
      }
      const returning = this.run(this.returning[depth], x, true);
      x = beside(onward, returning);
      summary = Float32Array.of(...row(onward, count - 1), ...row(returning, 0));
    });
    return { states: x, summary };
  }

  /** One step: the state after the input x. Its output is the h of the last layer. */
  step(x: Float32Array, before: Hidden): Hidden {
    let input = x;
    return this.onward.map((layer, depth) => {
      const after = this.advance(layer, row(product(input, layer.input, layer.inputBias), 0), before[depth]);
      input = after[0];
      return after;
    });
  }

  /** The states of one layer in one direction: the products with all inputs are computed at once. */
  private run(layer: Layer, x: Matrix, backward: boolean): Matrix {
    const inputs = linear(x, layer.input, layer.inputBias), found = matrix(x.rows, layer.width);
    let parts = this.empty(layer.width);
    for (let t = 0; t < x.rows; t++) {
      const at = backward ? x.rows - 1 - t : t;
      parts = this.advance(layer, row(inputs, at), parts);
      found.data.set(parts[0], at * layer.width);
    }
    return found;
  }

  private advance(layer: Layer, x: Float32Array, before: Parts): Parts {
    return CELLS[this.cell](x, product(before[0], layer.hidden, layer.hiddenBias).data, before);
  }

  private empty(width: number): Parts {
    return Array.from({ length: this.parts }, () => new Float32Array(width));
  }
}

/** W x + b of one vector. */
export function product(x: Float32Array, weight: Matrix, bias: Float32Array | null = null): Matrix {
  return linear({ rows: 1, width: x.length, data: x }, weight, bias);
}

/** The output of a stack: the h of its last layer. */
export function top(hidden: Hidden): Float32Array {
  return hidden[hidden.length - 1][0];
}
