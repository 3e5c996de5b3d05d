// The arithmetic of a cell against a calculator, sampling against its definition, and the questions of the views.

import assert from "node:assert/strict";
import { test } from "node:test";
import { question } from "../src/core/question.ts";
import { drawn, sample } from "../src/core/sampling.ts";
import type { Answer, Token, TraceLine } from "../src/engine/api.ts";
import { softmax } from "../src/engine/math.ts";
import { agreeing, arithmetic, digits, folded, readBack } from "../src/views/arithmetic.ts";
import { fills } from "../src/views/fill.ts";
import { tidy } from "../src/views/masks.ts";
import { force, forcing, own } from "../src/views/next.ts";
import { alike } from "../src/views/outcome.ts";
import { flipped } from "../src/views/toggles.ts";

/** A calculator: what an expression of a line comes to. */
function calculated(text: string): number {
  const code = text.replaceAll("−", "-").replaceAll("·", "*").replaceAll("×", "*").replaceAll("÷", "/")
    .replaceAll(/√(\d+)/g, "Math.sqrt($1)").replaceAll(/e\^\(/g, "Math.exp(").replaceAll(/e\^([\d.e-]+)/g, "Math.exp($1)").replaceAll("tanh", "Math.tanh");
  return Number(new Function(`return ${code}`)());
}

/** Every "a = b" of a text holds within the digits of b. Returns how many there are. */
function holds(text: string): number {
  let count = 0;
  for (const line of text.replaceAll("\n= ", " = ").split("\n")) {
    const sides = line.split(" = ");
    for (let at = 1; at < sides.length; at++, count++) {
      const found = calculated(sides[at - 1]), result = sides[at].replaceAll("−", "-");
      if (sides[at].includes("/")) continue; // e^… / Σ = the two numbers: the next side checks their quotient
      const figures = result.replace(/^-?0?\.?0*/, "").replace(/e.*/, "").replace(/\D/g, "").length;
      assert.ok(Math.abs(Number(result) - found) <= Math.abs(found) * 10 ** (1 - Math.max(1, figures)) + 1e-12, `${line}: ${found}`);
    }
  }
  return count;
}

/** Numbers that look random and are the same at each run. */
const numbers = (count: number, seed: number, size = 1): number[] => Array.from({ length: count }, (_, i) => Math.fround(size * Math.sin((i + 1) * 12.9898 * seed)));

const line = (name: string, values: number[], at?: number): TraceLine => ({ name, how: name, values, ...(at === undefined ? {} : { at }) });

/** From the logit of the cell at place 2 to the context. */
function after(logits: number[], masked: boolean): TraceLine[] {
  const seen = masked ? logits.map((one, j) => (j > 3 ? -Infinity : one)) : logits, weights = [...softmax(seen)];
  const v = numbers(8, 3), others = numbers(8, 5);
  return [
    line("logits", logits, 2), ...(masked ? [line("mask", seen, 2)] : []), line("softmax", weights, 2), line("v", v),
    line("weight · v", v.map((one) => weights[2] * one)), line("the other keys", others),
    line("Σ over keys", v.map((one, d) => weights[2] * one + others[d])), line("W^O", numbers(4, 7)),
  ];
}

function dotted(width: number, size: number, masked: boolean): TraceLine[] {
  const q = numbers(width, 1, size), k = numbers(width, 2, size), products = q.map((one, d) => one * k[d]);
  const total = products.reduce((a, b) => a + b, 0), logit = total / Math.sqrt(width), logits = numbers(6, 4, size * size);
  logits[2] = logit + 0.25;
  return [
    line("q", q), line("k", k), line("q ⊙ k", products), line("Σ", [total]), line(`÷ √${width}`, [logit]),
    line("bias", [0.25]), line("+ bias", [logit + 0.25]), ...after(logits, masked),
  ];
}

function additive(width: number): TraceLine[] {
  const q = numbers(width, 1, 2), k = numbers(width, 2, 2), v = numbers(width, 6), sums = q.map((one, d) => one + k[d]), bent = sums.map(Math.tanh);
  const parts = bent.map((one, d) => v[d] * one), total = parts.reduce((a, b) => a + b, 0), logits = numbers(6, 4);
  logits[2] = total;
  return [
    line("s", numbers(width, 9)), line("Wq", q), line("Uk", k), line("Wq + Uk", sums), line("tanh", bent), line("vector v", v),
    line("v ⊙ tanh", parts), line("Σ", [total]), ...after(logits, false),
  ];
}

test("every line of a cell holds on a calculator, with four digits at least", () => {
  for (const trace of [dotted(4, 1, false), dotted(64, 1, true), dotted(16, 4, false), additive(8), additive(128)]) {
    const lines = arithmetic(trace), named = (name: string) => lines.find((one) => one.name === name)!;
    assert.equal(lines.length, trace.length);
    const checked = lines.reduce((count, { long }) => count + holds(long), 0);
    assert.ok(checked > 10, String(checked));
    const weight = named("softmax").long.split(" = ").at(-1)!;
    assert.ok(Math.abs(readBack(weight) / trace.find(({ name }) => name === "softmax")!.values[2] - 1) < 1e-3, weight);
    assert.ok(named("weight · v").long.startsWith(digits(trace.find(({ name }) => name === "softmax")!.values[2]))); // the value, not the vector v of the score
  }
});

test("long sums are folded, and a masked cell says so", () => {
  assert.equal(folded(["1", "2", "3", "4", "5", "6", "7"], " + ").short, "1 + 2 + 3 + 4 + … + 7");
  assert.equal(folded(["1", "2", "3"], " + ").short, "1 + 2 + 3");
  const hidden = dotted(4, 1, true).map((one) => (one.at === undefined ? one : { ...one, at: 4 }));
  assert.match(arithmetic(hidden).find(({ name }) => name === "softmax")!.short, /may not be looked at/);
  assert.equal(agreeing(0.123456, 0.12349), "0.1235");
  assert.equal(agreeing(2, 2.0000001), "2");
});

test("sampling: temperature, then top-k, then top-p of what is left", () => {
  const logps = [0.5, 0.25, 0.125, 0.1, 0.025].map(Math.log), none = new Set<number>(), all = { temperature: 1, topK: null, topP: null };
  const near = (found: ArrayLike<number>, expected: number[]) => expected.forEach((one, id) => assert.ok(Math.abs(found[id] - one) < 1e-12, `${String(found[id])} ${one}`));
  near(sample(logps, all, none).chances, [0.5, 0.25, 0.125, 0.1, 0.025]);
  near(sample(logps, { ...all, topK: 2 }, none).chances, [2 / 3, 1 / 3, 0, 0, 0]);
  near(sample(logps, { ...all, topP: 0.5 }, none).chances, [1, 0, 0, 0, 0]); // one token has the probability already
  near(sample(logps, { ...all, topP: 0.51 }, none).chances, [2 / 3, 1 / 3, 0, 0, 0]);
  near(sample(logps, { ...all, topK: 2, topP: 0.6 }, none).chances, [1, 0, 0, 0, 0]); // 2/3 of the two that are left
  near(sample(logps, { ...all, temperature: 0.5 }, none).chances, [0.25, 0.0625, 0.015625, 0.01, 0.000625].map((one) => one / 0.33875));
  near(sample(logps, { ...all, temperature: 1e-9 }, none).chances, [1, 0, 0, 0, 0]);
  near(sample(logps, all, new Set([0])).chances, [0, 0.5, 0.25, 0.2, 0.05]);
  const half = sample(logps, { ...all, topK: 2 }, none);
  assert.deepEqual([0, 0.6, 0.7, 0.9999].map((random) => drawn(half, random)), [0, 0, 1, 1]);
});

const token = (id: number): Token => ({ id, piece: String(id), text: String(id), score: 0 });
const answer = (ids: number[], given: number): Answer => ({
  text: "", tokens: ids.map(token), score: 0, given, candidates: [], source: { ids: [], pieces: [], unknown: [], special: [] }, parts: [], frames: [], notes: [], cut: false, milliseconds: 0,
});

test("a forced token follows what was generated before it", () => {
  const settings = { translates: true, bos: true, more: 5 };
  assert.deepEqual(force(answer([7, 8, 9], 0), {}, 1, 4, settings), { forced: [7, 4] });
  const text = { ...settings, translates: false };
  assert.deepEqual(force(answer([7, 8, 9], 3), {}, 1, 4, text), { forced: [4], prefix: 1, limit: 6 });
  assert.deepEqual(force(answer([7, 8, 9], 3), {}, 1, 4, { ...text, bos: false }), { forced: [4], prefix: 2, limit: 6 });
  const again = { forced: [4], prefix: 1, limit: 6 };
  assert.deepEqual(force(answer([7, 4, 5, 6], 2), again, 3, 1, text), { forced: [4, 5, 1], limit: 8 }); // one token of text, then generated ones
});

test("a choice is a forced token that the model would not have taken", () => {
  const row = (best: number) => Float32Array.from({ length: 4 }, (_, id) => (id === best ? 0 : -5)), none = new Set<number>();
  assert.equal(own(row(0), new Set([0])), 1);
  const found = { ...answer([1, 3, 2], 3), distributions: [row(1), row(2), row(2)] };
  assert.deepEqual(forcing(found, [1, 3, 2], none), { text: 0, mine: [1] });
  assert.deepEqual(forcing(found, [3, 2], none), { text: 1, mine: [1] });
});

test("what a masked model guesses, beside the truth", () => {
  const found = { ...answer([], 0), source: { ids: [5, 9, 9], pieces: [], unknown: [], special: [] }, distributions: [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]].map((row) => Float32Array.from(row, Math.log)) };
  const [hidden, given] = fills(found, [5, 2, 9], 9, 3);
  assert.deepEqual([hidden.place, hidden.best.map(([id]) => id), hidden.truth!.rank, hidden.truth!.chance.toFixed(3)], [1, [1, 2, 0], 2, "0.300"]);
  assert.deepEqual([given.place, given.truth], [2, null]);
});

test("masks that change nothing are not asked; two answers are alike up to a token", () => {
  assert.equal(tidy({ columns: undefined, window: undefined }), undefined);
  assert.deepEqual(tidy({ columns: undefined, window: 2 }), { window: 2 });
  assert.deepEqual([flipped(undefined, 3), flipped([3], 1), flipped([3], 3)], [[3], [1, 3], undefined]);
  const ids = (text: string) => [...text].map((one) => ({ id: one.charCodeAt(0) }));
  assert.deepEqual([alike(ids("abcd"), ids("abxd")), alike(ids("aa"), ids("aaa")), alike([], ids("a"))], [2, 2, 0]);
});

test("an address asks nothing that is no question", () => {
  const whole = {
    text: "é <b>", second: "x", target: "", forced: [1], prefix: 2, beam: 3, limit: 4, hidden: [0], top: 0, score: "dot",
    heads: [{ part: "cross", layer: 0, head: 1, kind: "row", row: 2, weights: [0.5, -1] }], masks: { columns: [1], causal: false },
    cell: { part: "", layer: 0, head: 0, row: 1, column: 2 },
  };
  assert.deepEqual(question(JSON.stringify(whole)), whole);
  const wrong = { text: 5, forced: "1", hidden: [-1], limit: 1.5, heads: [{ part: "cross" }], masks: { columns: 3 }, score: "cosine", cell: null, __proto__: null, more: 1 };
  assert.deepEqual(question(JSON.stringify(wrong)), {});
  for (const none of ["", "[", "[1]", "null", "7"]) assert.equal(question(none), null);
});
