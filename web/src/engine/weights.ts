// The weights of a model: tensors by the names that they have in the state of the Python module.

import type { LiveModel } from "../data.ts";
import type { Matrix } from "./model.ts";

export class Weights {
  private readonly numbers: Float32Array;

  constructor(
    private readonly tensors: LiveModel["tensors"],
    bytes: ArrayBuffer,
    dtype: LiveModel["dtype"],
  ) {
    this.numbers = dtype === "float32" ? new Float32Array(bytes, 0, bytes.byteLength >> 2) : widened(new Uint16Array(bytes, 0, bytes.byteLength >> 1));
  }

  has(name: string): boolean {
    return name in this.tensors;
  }

  shape(name: string): number[] {
    return this.tensor(name).shape;
  }

  /** The numbers of a tensor, without a copy. */
  vector(name: string): Float32Array {
    const { shape, offset } = this.tensor(name), end = offset + shape.reduce((size, one) => size * one, 1);
    if (!(end <= this.numbers.length)) throw new Error("the weights of the page are not complete: make the page again");
    return this.numbers.subarray(offset, end);
  }

  /** A tensor as rows × width: all dimensions but the last are rows. */
  matrix(name: string): Matrix {
    const data = this.vector(name), width = this.shape(name).at(-1) ?? 1;
    return { rows: data.length / width, width, data };
  }

  private tensor(name: string): { shape: number[]; offset: number } {
    const found = this.tensors[name];
    if (!found) throw new Error(`the page has no weights ${name}`);
    return found;
  }
}

/** Float16 as float32. */
export function widened(halves: Uint16Array): Float32Array {
  const found = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) {
    const half = halves[i], exponent = (half >> 10) & 31, fraction = half & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
    found[i] = half & 0x8000 ? -size : size;
  }
  return found;
}
