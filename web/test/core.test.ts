import assert from "node:assert/strict";
import { test } from "node:test";
import { sentence } from "../src/core/changes.ts";
import { strongest } from "../src/core/scores.ts";
import { formatNumber, plus, scaleMax } from "../src/core/scale.ts";
import { describe, select } from "../src/core/shown.ts";
import { MEAN, type State } from "../src/core/store.ts";
import { fromHash, toHash } from "../src/core/url.ts";
import type { Layer, Part } from "../src/data.ts";

function part(name: string, tables: number[][][][], more: Partial<Part> = {}): Part {
  const rows = tables[0][0].map((_, i) => `r${i}`), columns = tables[0][0][0].map((_, j) => `c${j}`);
  const layers: Layer[] = tables.map((weights, number) => ({
    label: `${name} · layer ${number}`, number, heads: weights.map((_, h) => h), weights, masked: null, contexts: null,
  }));
  const axes = { rows, columns };
  return {
    name, ...axes, labels: axes, widest: { rows: 2, columns: 2 }, tall: false, unknown: { rows: [], columns: [] }, steps: false,
    chain: [], captions: ["", ""], layers, ...more,
  };
}

const EVEN = [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]];
const PREVIOUS = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]];
const FIRST = [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]];
const STATE: State = { view: "matrix", panel: "", part: 0, layer: 0, heads: [1], fixed: false, hide: false, step: 0, row: 0, column: 0, ask: {}, more: {} };

test("numbers are written as Python writes them", () => {
  const written: [number, string][] = [
    [0, "0"], [1, "1"], [-2.5, "-2.5"], [0.25, "0.25"], [0.0001, "0.0001"], [5.06408e-6, "5.06408e-06"], [-3.2e-11, "-3.2e-11"],
    [-9e-5, "-9e-05"], [0.123456789, "0.123457"],
  ];
  for (const [value, text] of written) assert.equal(formatNumber(value), text);
  assert.equal(formatNumber(null), "not finite");
  assert.deepEqual([1.5, 0.00001, -0.00001, -0.25].map(plus), ["+1.5000", "0.0000", "0.0000", "−0.2500"]);
});

test("the scale ends at a round number, and rows with few keys do not count", () => {
  assert.equal(scaleMax([[0.3, 0.1, 0.1, 0.1]], 4), 0.5);
  assert.equal(scaleMax([[0.01, 0.01, 0.01, 0.01]], 4), 0.5); // twice the even weight
  assert.equal(scaleMax([[1, 0, 0, 0, 0.12, 0.1, 0.1, 0.1]], 4), 0.5);
  assert.equal(scaleMax([[0.9, 0.1]], 2), 1);
  assert.equal(scaleMax([[0.9, 0.04, 0.02, 0.02, 0.02]], 5, (column) => column === 0), 0.5); // without what is hidden
});

test("a part opens on a head with a pattern, not on one that looks at the first token", () => {
  assert.deepEqual(strongest(part("encoder", [[EVEN, FIRST], [EVEN, PREVIOUS]])), [1, 1]);
  assert.deepEqual(strongest(part("encoder", [[EVEN, FIRST], [EVEN, EVEN]])), [0, 1]);
});

test("cross-attention opens on the sharpest head of the layer that aligns", () => {
  assert.deepEqual(strongest(part("cross", [[FIRST, FIRST], [EVEN, PREVIOUS], [FIRST, FIRST]])), [1, 1]);
});

test("a tip says who looks at what, and where", () => {
  const drawn = { parts: [part("encoder", [[EVEN, PREVIOUS]])], frames: [] };
  assert.equal(describe(select(drawn, { ...STATE, heads: [1] }), 2, 1), "\u2068r2\u2069 looks at \u2068c1\u2069: 1 (L0 · H1)");
  assert.equal(describe(select({ parts: [part("cross", [[EVEN]])], frames: [] }, STATE), 0, 0), "writing \u2068r0\u2069, looks at \u2068c0\u2069: 0.25 (L0)");
  const masked = part("encoder", [[PREVIOUS]]);
  masked.layers[0].masked = [[[1, 4]], [], [], []];
  assert.equal(describe(select({ parts: [masked], frames: [] }, STATE), 0, 2), "\u2068r0\u2069 may not look at \u2068c2\u2069");
});

test("hidden tokens take their weight with them, and the scale fits the rest", () => {
  const rows = [[0.8, 0.1, 0.05, 0.05], [0.8, 0.1, 0.05, 0.05], [0.8, 0.05, 0.1, 0.05], [0.8, 0.05, 0.05, 0.1]];
  const one = part("encoder", [[rows]], { special: { rows: [0], columns: [0] } });
  const shown = select({ parts: [one], frames: [] }, { ...STATE, hide: true });
  assert.ok(Math.abs((shown.hidden?.weight ?? 0) - 0.8) < 1e-12);
  assert.equal(shown.vmax, 1); // twice the even weight over three columns
  assert.equal(select({ parts: [one], frames: [] }, STATE).vmax, 1);
});

test("two bytes a weight are four digits", () => {
  const one = part("encoder", [[EVEN]]);
  one.layers[0].weights = Buffer.from(Uint16Array.from(EVEN.flat(), (weight) => Math.round(weight * 65535)).buffer).toString("base64");
  assert.equal(describe(select({ parts: [one], frames: [] }, STATE), 0, 0), "\u2068r0\u2069 looks at \u2068c0\u2069: 0.25 (L0)");
});

test("an address has what differs, and gives the state back", () => {
  const parts = [part("cross", [[EVEN, EVEN]]), part("encoder", [[EVEN, EVEN], [EVEN, EVEN]])];
  assert.equal(toHash(STATE, STATE, parts), "");
  const state: State = { ...STATE, part: 1, layer: 1, heads: [0, 1], view: "lines", step: 2, hide: true, ask: { text: "é & #" }, more: { "grid.sort": "entropy" } };
  assert.deepEqual(fromHash(`#${toHash(state, STATE, parts)}`, STATE, parts), state);
  const mean: State = { ...STATE, part: 1, layer: MEAN, heads: [] };
  assert.deepEqual(fromHash(toHash(mean, STATE, parts), STATE, parts), mean);
  assert.deepEqual(fromHash("#part=none&layer=99&heads=7&step=x&ask=[", STATE, parts), STATE);
});

test("an address keeps what the page asked when it opened, and nothing that is no question", () => {
  const parts = [part("cross", [[EVEN, PREVIOUS]])], heads = [{ part: "cross", layer: 0, head: 1, kind: "off" as const }];
  const first: State = { ...STATE, ask: { heads } };
  assert.equal(toHash(first, first, parts), "");
  assert.deepEqual(fromHash("", first, parts).ask, { heads });
  assert.equal(toHash({ ...first, ask: {} }, first, parts), "ask=%7B%7D");
  assert.deepEqual(fromHash("ask=%7B%7D", first, parts).ask, {});
  const asked = (ask: unknown): unknown => fromHash(new URLSearchParams({ ask: JSON.stringify(ask) }).toString(), STATE, parts).ask;
  const whole = { text: "a", second: "", target: "b", forced: [1], limit: 5, heads: [{ ...heads[0], kind: "row", row: 0, weights: [-0.5] }], masks: { window: 2, causal: true, columns: [0] }, score: "dot" };
  assert.deepEqual(asked(whole), whole);
  for (const wrong of [{ text: 3 }, { heads: "x" }, { heads: [null] }, { heads: [{ part: "cross", layer: 0, kind: "off" }] }, { forced: [-1] }, { limit: "9" }, { masks: [] }, { masks: { columns: 1 } }, { score: "toString" }, { constructor: "x" }, { cell: {} }]) {
    assert.deepEqual(asked(wrong), {}, JSON.stringify(wrong));
  }
  for (const wrong of [null, [], 3, "x"]) assert.deepEqual(asked(wrong), STATE.ask);
  assert.deepEqual(fromHash("ask=%7B%22__proto__%22%3A%7B%22text%22%3A1%7D%7D", STATE, parts).ask, {});
});

test("a given target is not said to be the answer of the model", () => {
  const token = { id: 4, piece: "x", text: "x", score: -0.5 }, effect = { before: "x", after: "x", changed: false, tokens: [token], scores: [-1.5] };
  const off = [{ part: "cross", layer: 1, head: 2, kind: "off" as const }];
  assert.equal(sentence("cross", off, effect, "target"), "Without L1·H2 the answer is still \u2068x\u2069 (log p −0.50 → −1.50).");
  assert.equal(sentence("cross", off, { ...effect, given: true }, "target"), "Without L1·H2 the given target \u2068x\u2069 has log p −0.50 → −1.50.");
});
