import assert from "node:assert/strict";
import { test } from "node:test";
import { described, rebalanced, sentence } from "../src/core/changes.ts";
import { difference, tellDifference } from "../src/core/difference.ts";
import { select, type Shown } from "../src/core/shown.ts";
import type { State } from "../src/core/store.ts";
import type { HeadChange, Token } from "../src/engine/api.ts";

const head = (part: string, layer: number, number: number, kind: HeadChange["kind"], more: Partial<HeadChange> = {}): HeadChange => ({ part, layer, head: number, kind, ...more });
const token = (score: number): Token => ({ id: 5, piece: "x", text: "x", score });

test("changes of heads in words, as Python says them", () => {
  const changes = [head("cross", 1, 2, "off"), head("encoder", 0, 1, "off"), head("cross", 0, 0, "one-hot", { key: 3 }), head("cross", 0, 1, "row", { row: 4 })];
  assert.equal(described("cross", changes), "without L1·H2 and encoder L0·H1 and with L0·H0 at key 3 and L0·H1 at given weights in row 5");
  const effect = { before: "a", after: "a", changed: false, tokens: [token(-0.004), token(-1)], scores: [-0.5, -1.75] };
  const said = (text: string): string => text.replace(/[\u2068\u2069]/g, "");
  assert.equal(said(sentence("cross", changes.slice(0, 1), effect, "target")), "Without L1·H2 the answer is still a (log p −1.00 → −2.25).");
  assert.equal(said(sentence("cross", changes.slice(0, 1), { ...effect, after: "", changed: true }, "tag")), "Without L1·H2 the tags become empty; they were a (log p −1.00 → −2.25).");
  assert.match(said(sentence("decoder", changes.slice(0, 1), effect, "next")), /^Without cross L1·H2 the likeliest token after the text is still a \(of the text log p /);
});

test("one weight of a row is set: the others keep their ratios, and hidden keys get nothing", () => {
  const seen = [true, true, true, false];
  assert.deepEqual(rebalanced([0.5, 0.3, 0.2, 0], 0, 0, seen, false), [0, 0.6, 0.4, 0]);
  assert.deepEqual(rebalanced([1, 0, 0, 0], 0, 0.5, seen, false), [0.5, 0.25, 0.25, 0]); // nothing to scale: even shares
  assert.deepEqual(rebalanced([0.5, 0.3, 0.2, 0], 0, 0.9, seen, true), [0.9, 0.3, 0.2, 0]);
});

const STATE: State = { view: "matrix", panel: "", part: 0, layer: 0, heads: [], fixed: false, hide: false, step: 0, row: 0, column: 0, ask: {}, more: {} };

function shown(tokens: string, weights: number[][]): Shown {
  const names = [...tokens], axes = { rows: names, columns: names };
  const part = {
    name: "encoder", ...axes, labels: axes, widest: { rows: 1, columns: 1 }, tall: false, unknown: { rows: [], columns: [] }, steps: false, chain: [], captions: ["", ""] as [string, string],
    layers: [{ label: "encoder", number: null, heads: [0], weights: [weights], masked: null, contexts: null }],
  };
  return select({ parts: [part], frames: [] }, STATE);
}

test("the difference of two matrices follows the alignment of their tokens", () => {
  const old = shown("ab", [[0.75, 0.25], [0.5, 0.5]]), now = shown("axb", [[0.5, 0.25, 0.25], [1, 0, 0], [0, 0.25, 0.75]]);
  const { rows, columns, values, bound } = difference(old, now);
  assert.deepEqual([...values], [-0.25, 0.25, 0, 1, 0, 0, -0.5, 0.25, 0.25]);
  assert.equal(bound, 0.5); // the row that is new does not count
  const said = (i: number, j: number): string => tellDifference(old, now, rows[i], columns[j]).replace(/[\u2068\u2069]/g, "");
  assert.equal(said(0, 0), "a looks at a: 0.75 before, 0.5 now, −0.25");
  assert.equal(said(2, 1), "b looks at x: 0.25, and not there before");
  const other = difference(shown("ab", [[1, 0], [0, 1]]), shown("xab", [[1, 0, 0], [0, 1, 0], [0, 0, 1]]));
  assert.deepEqual(other.rows.map(({ old, now }) => [old, now]), [[null, 0], [0, 1], [1, 2]]);
});
