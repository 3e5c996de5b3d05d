// Norms of states: layer norm (Ba et al. 2016) and root mean square norm (Zhang & Sennrich 2019).

import { matrix } from "./math.ts";
import type { Matrix } from "./model.ts";
import type { Weights } from "./weights.ts";

export type Norm = (x: Matrix) => Matrix;

/** The norm whose weights are at a path. */
export function normAt(weights: Weights, path: string, kind: "layer" | "rms", epsilon: number): Norm {
  const scale = weights.vector(`${path}.weight`);
  if (kind === "rms") return (x) => rmsNorm(x, scale, epsilon);
  const bias = weights.vector(`${path}.bias`);
  return (x) => layerNorm(x, scale, bias, epsilon);
}

/** (x − mean) / √(variance + ε) ⊙ scale + bias, for each row. */
export function layerNorm(x: Matrix, scale: Float32Array, bias: Float32Array, epsilon: number): Matrix {
  const found = matrix(x.rows, x.width), { width, data } = x;
  for (let from = 0; from < data.length; from += width) {
    let mean = 0, variance = 0;
    for (let i = 0; i < width; i++) mean += data[from + i];
    mean /= width;
    for (let i = 0; i < width; i++) variance += (data[from + i] - mean) ** 2;
    const factor = 1 / Math.sqrt(variance / width + epsilon);
    for (let i = 0; i < width; i++) found.data[from + i] = (data[from + i] - mean) * factor * scale[i] + bias[i];
  }
  return found;
}

/** x / √(mean of x² + ε) ⊙ scale, for each row. */
export function rmsNorm(x: Matrix, scale: Float32Array, epsilon: number): Matrix {
  const found = matrix(x.rows, x.width), { width, data } = x;
  for (let from = 0; from < data.length; from += width) {
    let squares = 0;
    for (let i = 0; i < width; i++) squares += data[from + i] ** 2;
    const factor = 1 / Math.sqrt(squares / width + epsilon);
    for (let i = 0; i < width; i++) found.data[from + i] = data[from + i] * factor * scale[i];
  }
  return found;
}
