import assert from "node:assert/strict";
import { test } from "node:test";
import { cell } from "../src/core/csv.ts";
import { npz, numbers, texts } from "../src/core/npz.ts";
import { quote, repr } from "../src/core/python.ts";

test("a spreadsheet computes no cell", () => {
  assert.deepEqual(["=1+1", "+1", "-1", "@x", "a", 'say "a, b"', "a\nb"].map(cell), ["'=1+1", "'+1", "'-1", "'@x", "a", '"say ""a, b"""', '"a\nb"']);
});

test("strings are those of Python's repr", () => {
  const written = [["a", "'a'"], ["it's", '"it\'s"'], ["'\"", "'\\'\"'"], ["\\\n\t\r", "'\\\\\\n\\t\\r'"], ["é 👩", "'é 👩'"], ["\u00a0\u202e\u{e0001}\x00", "'\\xa0\\u202e\\U000e0001\\x00'"], ["\ud800", "'\\ud800'"]];
  for (const [text, expected] of written) assert.equal(repr(text), expected);
});

test("words of a command are those of shlex.quote", () => {
  const written = [["a-b_c/d.e:f=g@h%i+j,k", "a-b_c/d.e:f=g@h%i+j,k"], ["", "''"], ["3 février", "'3 février'"], ["it's", `'it'"'"'s'`], ["$(rm)", "'$(rm)'"]];
  for (const [text, expected] of written) assert.equal(quote(text), expected);
});

test("an archive has its central directory and aligned headers", () => {
  const archive = npz({ weights: numbers([0.5, 1], 1, 2), rows: texts(["é", "👩‍👩"]) });
  const view = new DataView(archive.buffer);
  assert.equal(view.getUint32(0, true), 0x04034b50);
  assert.equal(view.getUint32(archive.length - 22, true), 0x06054b50);
  assert.equal(view.getUint16(archive.length - 12, true), 2);
  assert.equal((numbers([0.5, 1], 1, 2).length - 16) % 64, 0);
});
