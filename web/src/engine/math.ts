// Vectors and matrices. Sums are in double precision, results in single precision, as close to PyTorch's as its own kernels.

import type { Matrix } from "./model.ts";

export function matrix(rows: number, width: number): Matrix {
  return { rows, width, data: new Float32Array(rows * width) };
}

/** A row of a matrix, without a copy. */
export function row({ width, data }: Matrix, at: number): Float32Array {
  return data.subarray(at * width, (at + 1) * width);
}

/** x Wᵀ + b: rows of x by a weight (out × in), as nn.Linear. */
export function linear(x: Matrix, weight: Matrix, bias: Float32Array | null = null): Matrix {
  const found = matrix(x.rows, weight.rows), wide = x.width;
  if (wide !== weight.width) throw new Error(`a product of ${wide} and ${weight.width} numbers`);
  for (let o = 0; o < weight.rows; o++) { // each row of the weight is read once for all rows of x
    const w = weight.data, from = o * wide, add = bias ? bias[o] : 0;
    for (let r = 0; r < x.rows; r++) {
      const start = r * wide;
      let a = 0, b = 0, c = 0, d = 0, i = 0;
      for (; i + 3 < wide; i += 4) {
        a += w[from + i] * x.data[start + i];
        b += w[from + i + 1] * x.data[start + i + 1];
        c += w[from + i + 2] * x.data[start + i + 2];
        d += w[from + i + 3] * x.data[start + i + 3];
      }
      for (; i < wide; i++) a += w[from + i] * x.data[start + i];
      found.data[r * weight.rows + o] = a + b + c + d + add;
    }
  }
  return found;
}

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

export function norm(a: ArrayLike<number>): number {
  return Math.sqrt(dot(a, a));
}

export function sum(a: Matrix, b: Matrix): Matrix {
  const found = matrix(a.rows, a.width);
  for (let i = 0; i < found.data.length; i++) found.data[i] = a.data[i] + b.data[i];
  return found;
}

export function mapped(a: Matrix, function_: (value: number) => number): Matrix {
  const found = matrix(a.rows, a.width);
  for (let i = 0; i < found.data.length; i++) found.data[i] = function_(a.data[i]);
  return found;
}

/** Matrices side by side. */
export function beside(...parts: Matrix[]): Matrix {
  const found = matrix(parts[0].rows, parts.reduce((wide, part) => wide + part.width, 0));
  for (let r = 0; r < found.rows; r++) {
    let at = r * found.width;
    for (const part of parts) {
      found.data.set(row(part, r), at);
      at += part.width;
    }
  }
  return found;
}

/** Matrices below one another. */
export function stacked(...parts: Matrix[]): Matrix {
  const found = matrix(parts.reduce((rows, part) => rows + part.rows, 0), parts[0].width);
  let at = 0;
  for (const part of parts) {
    found.data.set(part.data, at);
    at += part.data.length;
  }
  return found;
}

/** The softmax of logits; −∞ gives 0, and a row without a finite logit is zeros. */
export function softmax(logits: ArrayLike<number>): Float32Array {
  const found = new Float32Array(logits.length);
  let most = -Infinity, total = 0;
  for (let i = 0; i < logits.length; i++) if (logits[i] > most) most = logits[i];
  if (most === -Infinity) return found;
  const powers = new Float64Array(logits.length);
  for (let i = 0; i < logits.length; i++) total += powers[i] = Math.exp(logits[i] - most);
  for (let i = 0; i < logits.length; i++) found[i] = powers[i] / total;
  return found;
}

export function logSoftmax(logits: ArrayLike<number>): Float32Array {
  const found = new Float32Array(logits.length);
  let most = -Infinity, total = 0;
  for (let i = 0; i < logits.length; i++) if (logits[i] > most) most = logits[i];
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i] - most);
  const log = most + Math.log(total);
  for (let i = 0; i < logits.length; i++) found[i] = logits[i] - log;
  return found;
}

/** The indices of the largest numbers, the largest first; of equals the first one. */
export function largest(values: ArrayLike<number>, count: number, allowed: (index: number) => boolean = () => true): number[] {
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (!allowed(i)) continue;
    let at = found.length;
    while (at > 0 && values[found[at - 1]] < values[i]) at--;
    if (at < count) {
      found.splice(at, 0, i);
      if (found.length > count) found.pop();
    }
  }
  return found;
}

/** erf by the series near 0 and the continued fraction of erfc far from it: full double precision. */
export function erf(x: number): number {
  const z = Math.abs(x);
  if (z < 2.5) {
    let term = z, total = z;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total) && n < 100; n++) {
      term *= (-z * z) / n;
      total += term / (2 * n + 1);
    }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * total;
  }
  if (z > 6) return Math.sign(x);
  let tail = 0;
  for (let n = 60; n > 0; n--) tail = (n / 2) / (z + tail);
  return Math.sign(x) * (1 - Math.exp(-z * z) / (Math.sqrt(Math.PI) * (z + tail)));
}

export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** The activations of regard.layers.transformer.ACTIVATIONS, by name. */
export const ACTIVATIONS: Record<string, (x: number) => number> = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  "gelu-sigmoid": (x) => x * sigmoid(1.702 * x),
  silu: (x) => x * sigmoid(x),
  tanh: Math.tanh,
};
