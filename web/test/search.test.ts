import assert from "node:assert/strict";
import { test } from "node:test";
import { largest, logSoftmax, softmax } from "../src/engine/math.ts";
import type { Generator, State, Taps } from "../src/engine/model.ts";
import { Recorder } from "../src/engine/recorder.ts";
import { search, type SearchOptions } from "../src/engine/search.ts";
import { widened } from "../src/engine/weights.ts";

const TAPS: Taps = new Recorder({ text: "" }, false, () => {});
const STOP = 0, WORDS = 4;

interface Past extends State {
  readonly ids: number[];
}

/** A model whose logits are random numbers that depend on all tokens before. */
function model(seed: number): Generator<Past> {
  const number = (ids: number[], word: number): number => {
    let found = seed + 1;
    for (const id of [...ids, word]) found = (found * 1103515245 + 12345 + id * 7919) % 2147483648;
    return (found % 1000) / 200;
  };
  return {
    kind: "generator",
    start: () => ({ at: 0, ids: [] }),
    advance(tokens, { at, ids }) {
      const all = [...ids, ...tokens], data = Float32Array.from({ length: WORDS }, (_, word) => number(all, word));
      const logits = { rows: 1, width: WORDS, data };
      return { logits, states: logits, before: null, state: { at: at + tokens.length, ids: all } };
    },
  };
}

/** The best text by log p / length of all that end, or have the greatest length. */
function exhaustive(of: Generator<Past>, limit: number): number[] {
  let best: number[] = [], most = -Infinity;
  const extend = (ids: number[], state: Past, last: number, logp: number): void => {
    const { logits, state: after } = of.advance([last], state, TAPS), scores = logSoftmax(logits.data);
    for (let id = 0; id < WORDS; id++) {
      const now = [...ids, id], total = logp + scores[id];
      if (id !== STOP && now.length < limit) extend(now, after, id, total);
      else if (total / now.length > most) [best, most] = [now, total / now.length];
    }
  };
  extend([], of.start([], TAPS), 1, 0);
  return best;
}

const OPTIONS: SearchOptions = { opening: [1], forced: [], beam: 1, limit: 4, stop: STOP, forbidden: new Set() };

test("a beam as large as all texts finds the best of them", () => {
  for (let seed = 0; seed < 40; seed++) {
    const of = model(seed), found = search(of, of.start([], TAPS), { ...OPTIONS, beam: WORDS ** 4 }, TAPS);
    assert.deepEqual(found.ids, exhaustive(of, 4));
    assert.equal(found.ids.length, found.scores.length);
  }
});

test("greedy takes the likeliest token that is allowed, after those that are forced", () => {
  const of = model(5), found = search(of, of.start([], TAPS), { ...OPTIONS, forced: [3, 2], limit: 6, stop: null, forbidden: new Set([1, 0]) }, TAPS);
  assert.deepEqual(found.ids.slice(0, 2), [3, 2]);
  assert.ok(found.cut);
  assert.ok(found.ids.slice(2).every((id) => id === 2 || id === 3));
});

test("head changes leave masked keys at 0", () => {
  const head = { part: "cross", layer: 0, head: 1 }, seen = Uint8Array.of(1, 0, 1, 1);
  const changed = (...heads: object[]): number[] => {
    const weights = Float32Array.of(0.2, 0, 0.5, 0.3);
    new Recorder({ text: "", heads: heads as never }, true, () => {}).change("cross", 0, 1, 2, weights, seen);
    return [...weights];
  };
  assert.deepEqual(changed({ ...head, kind: "off" }), [0, 0, 0, 0]);
  assert.deepEqual(changed({ ...head, kind: "uniform" }), [1, 0, 1, 1].map((one) => Math.fround(one / 3)));
  assert.deepEqual(changed({ ...head, kind: "one-hot" }), [0, 0, 1, 0]);
  assert.deepEqual(changed({ ...head, kind: "one-hot", key: 3 }), [0, 0, 0, 1]);
  assert.deepEqual(changed({ ...head, kind: "row", row: 2, weights: [0.5, 0.5, 0, 0] }), [0.5, 0, 0, 0]);
  assert.deepEqual(changed({ ...head, kind: "row", row: 1, weights: [1, 0, 0, 0] }), [0.2, 0, 0.5, 0.3].map(Math.fround));
  assert.deepEqual(changed({ ...head, layer: 1, kind: "off" }), [0.2, 0, 0.5, 0.3].map(Math.fround));
});

test("softmax, largest and float16", () => {
  assert.deepEqual([...softmax([-Infinity, -Infinity])], [0, 0]);
  assert.deepEqual([...softmax([1000, 1000, -Infinity])], [0.5, 0.5, 0]);
  assert.deepEqual(largest([1, 3, 3, 2], 3), [1, 2, 3]);
  const halves = Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000, 0x3555);
  assert.deepEqual([...widened(halves)], [1, -2, 2 ** -24, 65504, Infinity, -0, 0.333251953125]);
});
