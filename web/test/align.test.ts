import assert from "node:assert/strict";
import { test } from "node:test";
import { align, type Pair } from "../src/core/align.ts";

const show = (old: string, now: string): string =>
  align([...old], [...now]).map(({ old: i, now: j, same }) => (same ? old[i!] : `(${i === null ? "" : old[i]}>${j === null ? "" : now[j]})`)).join("");

test("equal tokens stand beside each other; between them, one changes into another", () => {
  assert.equal(show("2021-02-03", "2021-02-04"), "2021-02-0(3>4)");
  assert.equal(show("kitten", "sitting"), "(k>s)itt(e>i)n(>g)");
  assert.equal(show("abc", ""), "(a>)(b>)(c>)");
  assert.equal(show("", "ab"), "(>a)(>b)");
  assert.equal(show("", ""), "");
  assert.equal(show("aXc", "abbc"), "a(X>b)(>b)c");
});

/** The length of a longest common subsequence, by its definition. */
function longest(old: string, now: string): number {
  if (!old || !now) return 0;
  if (old[0] === now[0]) return 1 + longest(old.slice(1), now.slice(1));
  return Math.max(longest(old.slice(1), now), longest(old, now.slice(1)));
}

test("no alignment has more in common, and each token stands once, in order", () => {
  let seed = 7;
  const random = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
  const word = (): string => Array.from({ length: random(9) }, () => "abc"[random(3)]).join("");
  for (let turn = 0; turn < 300; turn++) {
    const old = word(), now = word(), pairs = align([...old], [...now]);
    const places = (side: "old" | "now"): number[] => pairs.map((pair: Pair) => pair[side]).filter((at) => at !== null);
    assert.deepEqual(places("old"), [...old].map((_, at) => at));
    assert.deepEqual(places("now"), [...now].map((_, at) => at));
    for (const pair of pairs) assert.equal(pair.same, pair.old !== null && pair.now !== null && old[pair.old] === now[pair.now] && pair.same);
    assert.equal(pairs.filter(({ same }) => same).length, longest(old, now));
  }
});

test("very long lists are aligned in time", () => {
  const old = Array.from({ length: 10_000 }, (_, at) => `a${at}`), now = old.map((one, at) => (at === 5000 ? "b" : one));
  assert.deepEqual(align(old, now).filter(({ same }) => !same), [{ old: 5000, now: 5000, same: false }]);
  assert.equal(align(old, old.map((one) => `${one}!`)).length, 10_000);
});
