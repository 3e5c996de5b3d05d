// Vectors and matrices. Sums are in double precision, results in single precision, as close to PyTorch's as its own kernels.

import type { Matrix } from "./model.ts";

export function matrix(rows: number, width: number): Matrix {
  return { rows, width, data: new Float32Array(rows * width) };
}

/** A row of a matrix, without a copy. */
export function row({ width, data }: Matrix, at: number): Float32Array {
  return data.subarray(at * width, (at + 1) * width);
}

/** All rows of a matrix, without a copy. */
export function rows(x: Matrix): Float32Array[] {
  const found: Float32Array[] = [];
  for (let r = 0; r < x.rows; r++) found.push(row(x, r));
  return found;
}

/** Some columns of a matrix, from one on. */
export function columns(x: Matrix, from: number, count: number): Matrix {
  const found = matrix(x.rows, count);
  for (let r = 0; r < x.rows; r++) found.data.set(x.data.subarray(r * x.width + from, r * x.width + from + count), r * count);
  return found;
}

/**
 * x Wᵀ + b: rows of x by a weight (out × in), as nn.Linear. Eight outputs are summed at a time: each number of x is read
 * once for all of them, and the eight sums do not wait for one another.
 */
export function linear(x: Matrix, weight: Matrix, bias: Float32Array | null = null): Matrix {
  const found = matrix(x.rows, weight.rows), n = x.width, w = weight.data, from = x.data, to = found.data;
  if (n !== weight.width) throw new Error(`a product of ${n} and ${weight.width} numbers`);
  if (bias) for (let r = 0; r < x.rows; r++) to.set(bias, r * weight.rows);
  let o = 0;
  for (; o + 7 < weight.rows; o += 8) {
    const w0 = o * n, w1 = w0 + n, w2 = w1 + n, w3 = w2 + n, w4 = w3 + n, w5 = w4 + n, w6 = w5 + n, w7 = w6 + n;
    for (let r = 0; r < x.rows; r++) {
      const start = r * n, at = r * weight.rows + o;
      let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
      for (let i = 0; i < n; i++) {
        const one = from[start + i];
        a += w[w0 + i] * one;
        b += w[w1 + i] * one;
        c += w[w2 + i] * one;
        d += w[w3 + i] * one;
        e += w[w4 + i] * one;
        f += w[w5 + i] * one;
        g += w[w6 + i] * one;
        h += w[w7 + i] * one;
      }
      to[at] += a;
      to[at + 1] += b;
      to[at + 2] += c;
      to[at + 3] += d;
      to[at + 4] += e;
      to[at + 5] += f;
      to[at + 6] += g;
      to[at + 7] += h;
    }
  }
  for (; o < weight.rows; o++) {
    for (let r = 0; r < x.rows; r++) to[r * weight.rows + o] += dot(w.subarray(o * n, (o + 1) * n), row(x, r));
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
export function exactErf(x: number): number {
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

const STEP = 1 / 64, FURTHEST = 6;
let known: Float64Array | null = null; // erf at 0, STEP, 2 STEP …, and after each its slope times STEP

/** erf by cubics between known points (Hermite): within 1e-9, ten times as fast. */
export function erf(x: number): number {
  known ??= Float64Array.from({ length: 2 * (FURTHEST / STEP + 2) }, (_, i) => {
    const z = (i >> 1) * STEP;
    return i % 2 ? (STEP * 2 * Math.exp(-z * z)) / Math.sqrt(Math.PI) : exactErf(z);
  });
  const z = Math.abs(x) / STEP;
  if (!(z < FURTHEST / STEP)) return Math.sign(x);
  const i = Math.trunc(z), t = z - i, from = known[2 * i], slope = known[2 * i + 1], rise = known[2 * i + 2] - from;
  const found = from + t * (slope + t * (3 * rise - 2 * slope - known[2 * i + 3] + t * (slope + known[2 * i + 3] - 2 * rise)));
  return x < 0 ? -found : found;
}

export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** The logarithm of sigmoid(x), exact also where that is almost 1. */
export const logSigmoid = (x: number): number => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));

/** The activations of regard.layers.transformer.ACTIVATIONS, by name. */
export const ACTIVATIONS: Record<string, (x: number) => number> = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  "gelu-sigmoid": (x) => x * sigmoid(1.702 * x),
  silu: (x) => x * sigmoid(x),
  tanh: Math.tanh,
};
