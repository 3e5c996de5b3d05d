import assert from "node:assert/strict";
import { test } from "node:test";
import { cell } from "../src/core/csv.ts";
import { npz, numbers, texts } from "../src/core/npz.ts";
import { command, python, quote, repr } from "../src/core/python.ts";
import { select } from "../src/core/shown.ts";
import type { Part } from "../src/data.ts";
import type { Ask, HeadChange } from "../src/engine/api.ts";

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

test("the code has the changed heads and the beam, or says what it has not", () => {
  const axes = { rows: ["r"], columns: ["c"] }, layers = [0, 1].map((number) => ({ label: `cross · layer ${number}`, number, heads: [0, 1], weights: [[[1]], [[1]]], masked: null, contexts: null }));
  const part: Part = { name: "cross", ...axes, labels: axes, widest: { rows: 1, columns: 1 }, tall: false, unknown: { rows: [], columns: [] }, steps: false, chain: [], captions: ["", ""], layers };
  const state = { view: "matrix", panel: "", part: 0, layer: 1, heads: [0], fixed: false, hide: false, step: 0, row: 0, column: 0, ask: {}, more: {} };
  const shown = select({ parts: [part], frames: [] }, state), head = { part: "cross", layer: 0, head: 1 }, chosen = "--part cross --layer 1 --head 0 -o look.html";
  const both = (ask: Ask): string[] => [command("dates", ask, shown, state), python("dates", ask, shown, state)];
  const heads: HeadChange[] = [{ ...head, kind: "off" }, { ...head, head: 0, kind: "uniform" }, { ...head, layer: 1, kind: "one-hot" }, { part: "", layer: 0, head: 2, kind: "one-hot", key: 3 }];
  assert.deepEqual(both({ text: "a", beam: 5, heads }), [
    `regard look dates a --off cross:L0H1 --off cross:L0H0=uniform --off cross:L1H1=one-hot --off L0H2=3 --beam 5 ${chosen}`,
    "import regard.verbs; regard.verbs.look_ablated(regard.load('dates'), 'a', ['cross:L0H1', 'cross:L0H0=uniform', 'cross:L1H1=one-hot', 'L0H2=3'], beam=5).only(part='cross', layer=1, head=0)",
  ]);
  const look = "import regard; regard.look(regard.load('dates'), 'a'";
  assert.deepEqual(both({ text: "a", heads: [{ ...head, kind: "row", row: 0, weights: [1] }] }), [
    `regard look dates a ${chosen}  # without the changed heads, because no name of a head has the weights of a row`,
    `${look}).only(part='cross', layer=1, head=0)  # without the changed heads, because no name of a head has the weights of a row`,
  ]);
  assert.match(both({ text: "a", target: "b", beam: 5, heads })[0], /a --target=b --part .*# without the changed heads, because the target is given$/);
  assert.match(both({ text: "a", masks: { window: 1 }, heads })[1], /look_ablated.*# without the other changes made in the page$/);
});
