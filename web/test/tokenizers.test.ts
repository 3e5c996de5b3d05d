import assert from "node:assert/strict";
import { test } from "node:test";
import { width } from "../src/engine/text.ts";
import { Tokenizer } from "../src/engine/tokenizers.ts";
import type { TokenizerData } from "../src/data.ts";

const SPECIAL: TokenizerData["special"] = {
  pad: 0, bos: 1, eos: 2, unk: 3, mask: null, prefix: null, suffix: null, separator: [], second_segment: 1,
};

function tokenizer(kind: string, names: string[], own: Partial<TokenizerData> = {}): Tokenizer {
  const vocab = ["< pad >", "< bos >", "< eos >", "< unk >", ...names];
  const surfaces = ["", "", "", "�", ...names.map((name) => (kind === "bpe" ? name.replaceAll("▁", " ") : kind === "char" ? name : ` ${name}`))];
  return new Tokenizer({ kind, vocab, merges: [], display: vocab, surfaces, special: SPECIAL, forbidden: [0, 1, 3], direction: "forward", ...own });
}

test("the merge that was learned first is applied first, at its leftmost place", () => {
  const pieces = tokenizer("bpe", ["▁", "a", "b", "aa", "ab", "▁a"], { merges: [["a", "a"], ["a", "b"], ["▁", "a"]] });
  const named = (text: string) => pieces.pieces(pieces.encode(text).ids);
  assert.deepEqual(named("aaab"), ["▁", "aa", "ab"]);
  assert.deepEqual(named("ab"), ["▁", "ab"]);
  assert.deepEqual(named("a!"), ["▁a", "< unk >"]);
  assert.deepEqual(pieces.encode("a!"), { ids: [9, 3], unknown: ["!"] });
  assert.equal(pieces.decode(pieces.encode(" aab").ids), " aab");
});

test("ten thousand characters of one word are merged in a moment", () => {
  const pieces = tokenizer("bpe", ["▁", "a", "aa", "aaaa"], { merges: [["a", "a"], ["aa", "aa"]] });
  const start = performance.now();
  assert.equal(pieces.encode("a".repeat(10_000)).ids.length, 2501);
  assert.ok(performance.now() - start < 1000);
});

test("a lone surrogate is an unknown character", () => {
  assert.deepEqual(tokenizer("char", ["a"]).encode("a\ud800"), { ids: [4, 3], unknown: ["\ud800"] });
});

test("the mask takes the spaces beside it", () => {
  const words = tokenizer("word", ["[MASK]", "a"], { special: { ...SPECIAL, mask: 4 } });
  assert.deepEqual(words.encode("a  [MASK]a b").ids, [5, 4, 5, 3]);
});

test("bytes that are no text give �, and parts of a character give it with the last one", () => {
  const bytes = tokenizer("byte-bpe", ["Ã", "©", "ÿ"], { surfaces: ["", "", "", "", "\udcc3", "\udca9", "\udcff"] });
  assert.equal(bytes.decode([4, 5, 6]), "é�");
  assert.deepEqual(bytes.parts([4, 5, 6]), ["", "é", "�"]);
  assert.deepEqual(bytes.encode("é").ids, [4, 5]);
});

test("a backward tokenizer has the last token first", () => {
  const back = tokenizer("word", ["a", "b"], { direction: "backward" });
  assert.deepEqual(back.encode("a b").ids, [5, 4]);
  assert.equal(back.decode([5, 4]), "a b");
  assert.deepEqual(back.parts([5, 4]), [" b", "a"]);
});

test("letters that are joined to one are as wide as one", () => {
  assert.deepEqual(["ab", "犬", "👩‍👩‍👧", "é", "", "a👩‍👩‍👧b"].map(width), [2, 2, 2, 1, 0, 4]);
});
