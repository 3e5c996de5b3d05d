// The parts of a Transformer against numbers that follow from their definitions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ACTIVATIONS, erf, exactErf, linear, matrix } from "../src/engine/math.ts";
import { layerNorm, rmsNorm } from "../src/engine/norms.ts";
import { bucketOf, Buckets, sinusoid } from "../src/engine/positions.ts";
import type { Shape } from "../src/engine/shape.ts";
import { Weights } from "../src/engine/weights.ts";

const near = (found: number, expected: number, limit: number): void =>
  assert.ok(Math.abs(found - expected) <= limit, `${found} instead of ${expected}`);

test("erf: known values, odd, and the quick one within 1e-9 of the exact one", () => {
  // 2/√π ∫ exp(−t²) dt by Simpson's rule
  const integral = (x: number): number => {
    const n = 2000, h = x / n, f = (i: number): number => Math.exp(-((i * h) ** 2));
    let total = f(0) + f(n);
    for (let i = 1; i < n; i++) total += f(i) * (i % 2 ? 4 : 2);
    return (2 / Math.sqrt(Math.PI)) * (h / 3) * total;
  };
  for (let x = 0; x < 8; x += 0.0137) {
    near(exactErf(x), integral(x), 1e-12);
    near(erf(x), exactErf(x), 1e-9);
    near(erf(-x), -erf(x), 0);
  }
  assert.deepEqual([erf(0), erf(100), erf(-Infinity)], [0, 1, -1]);
  assert.ok(Number.isNaN(erf(NaN)));
});

test("gelu: x times the normal distribution, and the two approximations near it", () => {
  near(ACTIVATIONS.gelu(1), 0.8413447460685429, 1e-9);
  near(ACTIVATIONS.gelu(-2), -2 * 0.022750131948179195, 1e-9);
  for (let x = -6; x <= 6; x += 0.1) {
    near(ACTIVATIONS["gelu-tanh"](x), ACTIVATIONS.gelu(x), 5e-4);
    near(ACTIVATIONS["gelu-sigmoid"](x), ACTIVATIONS.gelu(x), 2.1e-2);
  }
});

test("norms: mean 0 and variance 1, or mean square 1, before the scale", () => {
  const x = { rows: 2, width: 4, data: Float32Array.of(1, 2, 3, 6, -5, 0, 0, 5) };
  const ones = new Float32Array(4).fill(1), scale = Float32Array.of(1, 2, 3, 4), bias = Float32Array.of(0, 0, 0, 7);
  const plain = layerNorm(x, ones, new Float32Array(4), 0), root = Math.sqrt(3.5);
  [-2 / root, -1 / root, 0, 3 / root].forEach((one, i) => near(plain.data[i], one, 1e-7));
  const scaled = layerNorm(x, scale, bias, 0);
  scaled.data.forEach((one, i) => near(one, plain.data[i] * scale[i % 4] + bias[i % 4], 1e-6));
  const squares = rmsNorm(x, scale, 0);
  squares.data.forEach((one, i) => near(one, (x.data[i] / Math.sqrt(12.5)) * scale[i % 4], 1e-6));
  near(layerNorm(matrix(1, 4), ones, bias, 1e-5).data[3], 7, 0);
});

test("sinusoids: frequencies from 1 to nearly 1/10000, alternating or in halves, of odd widths too", () => {
  const alternating = sinusoid(3, 5, true), halves = sinusoid(3, 5, false);
  const rates = [1, 10_000 ** -0.4, 10_000 ** -0.8];
  rates.forEach((rate, i) => near(alternating[2 * i], Math.sin(3 * rate), 1e-6));
  [0, 1].forEach((i) => near(alternating[2 * i + 1], Math.cos(3 * rates[i]), 1e-6));
  assert.deepEqual([...halves], [alternating[0], alternating[2], alternating[4], alternating[1], alternating[3]]);
  assert.deepEqual([...sinusoid(0, 4, true)], [0, 1, 0, 1]);
});

test("buckets of T5: one for each near distance, then wider ones, and one for all that are further", () => {
  const found = Array.from({ length: 200 }, (_, distance) => bucketOf(distance, 16, 128));
  assert.deepEqual(found.slice(0, 9), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual([found[15], found[16], found[32], found[64], found[127], found[128], found[199]], [9, 10, 12, 14, 15, 15, 15]);
  found.forEach((one, i) => assert.ok(i === 0 || (one >= found[i - 1] && one <= found[i - 1] + 1)));
  const weights = new Weights({ "bias.table.weight": { shape: [8, 1], offset: 0 } }, Float32Array.of(0, 1, 2, 3, 4, 5, 6, 7).buffer, "float32");
  const shape = { buckets: 8, furthest: 9 } as Shape, both = new Buckets(weights, "bias", shape, true), past = new Buckets(weights, "bias", shape, false);
  assert.deepEqual([both.bias(0, 5, 4), both.bias(0, 4, 5), both.bias(0, 0, 50)], [1, 5, 7]);
  assert.deepEqual([past.bias(0, 5, 4), past.bias(0, 4, 5), past.bias(0, 50, 0)], [1, 0, 7]);
});

test("linear: x Wᵀ + b for any number of outputs", () => {
  for (const outputs of [1, 7, 8, 9, 17]) {
    const x = { rows: 3, width: 5, data: Float32Array.from({ length: 15 }, (_, i) => Math.sin(i)) };
    const w = { rows: outputs, width: 5, data: Float32Array.from({ length: 5 * outputs }, (_, i) => Math.cos(i)) };
    const b = Float32Array.from({ length: outputs }, (_, i) => i / 3), found = linear(x, w, b);
    for (let r = 0; r < 3; r++) {
      for (let o = 0; o < outputs; o++) {
        let sum = b[o];
        for (let i = 0; i < 5; i++) sum += x.data[r * 5 + i] * w.data[o * 5 + i];
        near(found.data[r * outputs + o], sum, 1e-6);
      }
    }
  }
  assert.throws(() => linear(matrix(1, 3), matrix(2, 4)), /3 and 4/);
});

test("weights that are not complete are refused", () => {
  const tensors = { a: { shape: [2, 2], offset: 0 }, b: { shape: [2], offset: 4 } };
  const cut = new Weights(tensors, new ArrayBuffer(23), "float32"); // a number is half there
  assert.equal(cut.vector("a").length, 4);
  assert.throws(() => cut.vector("b"), /not complete/);
  assert.throws(() => new Weights(tensors, new ArrayBuffer(0), "float16").matrix("a"), /not complete/);
});
