import assert from "node:assert/strict";
import { test } from "node:test";
import { difference, headName, orderOf, sorted } from "../src/core/heads.ts";
import { normed, said, shares } from "../src/core/normed.ts";
import { select } from "../src/core/shown.ts";
import type { State } from "../src/core/store.ts";
import { blocks, pool, sizeOf } from "../src/core/thumbnail.ts";
import type { Part } from "../src/data.ts";

const STATE: State = { view: "grid", panel: "", part: 0, layer: 0, heads: [0], fixed: false, hide: false, step: 0, row: 0, column: 0, ask: {}, more: {} };
const EVEN = [[0.5, 0.5], [0.5, 0.5]], FIRST = [[1, 0], [1, 0]], SAME = [[1, 0], [0, 1]];

function part(tables: number[][][][], more: Partial<Part> = {}): Part {
  const axes = { rows: tables[0][0].map((_, i) => `r${i}`), columns: tables[0][0][0].map((_, j) => `c${j}`) };
  const layers = tables.map((weights, number) => ({ label: `layer ${number}`, number, heads: weights.map((_, h) => h), weights, masked: null, contexts: null }));
  return {
    name: "encoder", ...axes, labels: axes, widest: { rows: 2, columns: 2 }, tall: false, unknown: { rows: [], columns: [] }, steps: false,
    chain: [], captions: ["", ""], layers, ...more,
  };
}

test("a pixel has the largest weight of its block, and a block without a visible cell has none", () => {
  const grid = Float64Array.from({ length: 16 }, (_, at) => (at % 5 === 0 ? 0.9 : 0.01)); // a diagonal
  const mask = new Uint8Array(16);
  const near = (found: Float32Array, wanted: number[]): void => wanted.forEach((one, at) => assert.ok(Object.is(found[at], one) || Math.abs(found[at] - one) < 1e-6));
  near(pool(grid, mask, 4, 2, 2), [0.9, 0.01, 0.01, 0.9]);
  for (const at of [2, 3, 6, 7]) mask[at] = 1;
  near(pool(grid, mask, 4, 2, 2), [0.9, NaN, 0.01, 0.9]);
  const large = pool(Float64Array.of(0.25, 0.75), new Uint8Array(2), 2, 3, 6); // more pixels than cells
  assert.deepEqual([...large], [0.25, 0.25, 0.25, 0.75, 0.75, 0.75, 0.25, 0.25, 0.25, 0.75, 0.75, 0.75, 0.25, 0.25, 0.25, 0.75, 0.75, 0.75]);
});

test("every cell is in a block", () => {
  for (const [cells, pixels] of [[128, 40], [7, 5], [3, 40], [1, 1]]) {
    const edges = blocks(cells, pixels);
    assert.equal(edges[0], 0);
    assert.equal(edges[pixels], cells);
    for (let at = 0; at < pixels; at++) assert.ok(edges[at] <= edges[at + 1]);
  }
  assert.deepEqual(sizeOf(12, 6, 40), { width: 20, height: 40 });
});

test("heads are sorted by a score, and by entropy with the sharpest first", () => {
  const two = part([[EVEN, FIRST], [SAME, EVEN]]), names = (order: string): string[] => sorted(two, orderOf(two, order)).map((place) => headName(two, place));
  assert.deepEqual(names("layer"), ["L0·H0", "L0·H1", "L1·H0", "L1·H1"]);
  assert.deepEqual(names("itself")[0], "L1·H0");
  assert.deepEqual(names("first")[0], "L0·H1");
  assert.deepEqual(names("entropy").slice(0, 2).sort(), ["L0·H1", "L1·H0"]);
  assert.equal(orderOf(two, "special"), "layer"); // a part without special tokens
  assert.equal(orderOf({ ...two, name: "cross" }, "previous"), "layer"); // rows and columns are other tokens
});

test("a difference has its sign, and a scale that fits it", () => {
  const drawn = { parts: [part([[SAME, [[0.8, 0.2], [0.2, 0.8]]]])], frames: [] };
  const [one, other] = [0, 1].map((head) => select(drawn, { ...STATE, heads: [head] })), found = difference(one, other);
  assert.deepEqual([...found.weights].map((value) => Number(value.toFixed(6))), [0.2, -0.2, -0.2, 0.2]);
  assert.equal(found.where, "L0 · H0 − L0 · H1");
  assert.equal(found.vmax, 1); // twice the even weight of two columns
});

test("weight × norm takes the share of a key whose value is small", () => {
  const one = part([[FIRST, SAME]]);
  one.layers[0].norms = [[0.1, 2], [1, 3]];
  const found = normed(select({ parts: [one], frames: [] }, { ...STATE, heads: [0] }), [0]);
  assert.ok(found);
  assert.deepEqual([...found.shown.weights], [0.1, 0, 0.1, 0]);
  const both = normed(select({ parts: [one], frames: [] }, { ...STATE, heads: [] }), []);
  assert.deepEqual(both?.norms, [0.55, 2.5]);
  assert.deepEqual(both?.weight, [0.75, 0.25]);
  assert.deepEqual(both?.product.map((value) => Number(value.toFixed(4))), [1.2 / 4.2, 3 / 4.2].map((value) => Number(value.toFixed(4))));
  assert.equal(both && said(both), "\u2068c0\u2069 has 75 % of the weight and 29 % of weight × norm.");
  delete one.layers[0].norms;
  assert.equal(normed(select({ parts: [one], frames: [] }, STATE), [0]), null);
  assert.deepEqual(shares(new Float64Array(4), 2), [0, 0]);
});
