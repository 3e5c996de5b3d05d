// Computes the cases of a folder with the engine, for the tests that compare it with PyTorch: `node run.mjs FOLDER`.
// cases.json has the models and their runs, weights.bin all weights; the results are written to results.json.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { HeadChange, MaskChange, TraceLine } from "../src/engine/api.ts";
import { bert } from "../src/engine/bert.ts";
import { gpt } from "../src/engine/gpt.ts";
import { logSoftmax, row } from "../src/engine/math.ts";
import type { Build, Head, Matrix, Read, Taps } from "../src/engine/model.ts";
import { transformer } from "../src/engine/transformer.ts";
import { Weights } from "../src/engine/weights.ts";
import type { LiveModel } from "../src/data.ts";

interface Run {
  source: number[];
  tokens: number[];
  segments: number[];
  /** How many tokens each call of `advance` reads. */
  strides: number[];
  heads: HeadChange[];
  masks: MaskChange;
  score: Taps["score"];
  cell: Taps["cell"];
}

interface Case {
  family: string;
  config: Record<string, unknown>;
  head: Head | null;
  tensors: LiveModel["tensors"];
  runs: Run[];
}

const BUILDS: Record<string, Build> = { bert, gpt, transformer };

/** Taps that record every read, and change weights as the run says. */
function tapsOf(run: Run, reads: Read[], lines: TraceLine[]): Taps {
  return {
    cell: run.cell,
    score: run.score,
    breathe() {},
    trace: (line) => void lines.push(line),
    read: (one) => void reads.push(one),
    visible: (_, query, key, own) => own && Math.abs(query - key) <= (run.masks.window ?? Infinity) && !run.masks.columns?.includes(key),
    change(part, layer, head, _, weights, visible) {
      for (const one of run.heads) {
        if (one.part !== part || one.layer !== layer || one.head !== head) continue;
        const seen = visible.reduce((count, each) => count + each, 0), best = weights.indexOf(Math.max(...weights));
        if (one.kind === "off") weights.fill(0);
        if (one.kind === "uniform") visible.forEach((each, j) => (weights[j] = each / seen));
        if (one.kind === "one-hot") weights.forEach((_, j) => (weights[j] = Number(j === best)));
      }
    },
  };
}

/** The reads of each part and layer as one: heads × queries × keys, with 0 for keys that were not there yet. */
function joinedReads(reads: Read[]): { part: string; layer: number; weights: number[][][]; norms: number[][]; contexts: number[][][] }[] {
  const found = new Map<string, Read[]>();
  for (const one of reads) found.set(`${one.part} ${one.layer}`, [...(found.get(`${one.part} ${one.layer}`) ?? []), one]);
  return [...found.values()].map((some) => {
    const { part, layer, heads } = some[0], last = some[some.length - 1];
    const rowsOf = (h: number, each: (one: Read, at: number) => number[]): number[][] =>
      some.flatMap((one) => Array.from({ length: one.queries }, (_, i) => each(one, h * one.queries + i)));
    return {
      part,
      layer,
      weights: Array.from({ length: heads }, (_, h) =>
        rowsOf(h, ({ weights, keys }, at) => Array.from({ length: last.keys }, (_, j) => (j < keys ? weights[at * keys + j] : 0))),
      ),
      contexts: Array.from({ length: heads }, (_, h) =>
        rowsOf(h, ({ contexts, queries }, at) => [...contexts.subarray((at * contexts.length) / heads / queries, ((at + 1) * contexts.length) / heads / queries)]),
      ),
      norms: Array.from({ length: heads }, (_, h) => [...last.norms.subarray(h * last.keys, (h + 1) * last.keys)]),
    };
  });
}

function compute({ family, config, head, tensors, runs }: Case, bytes: ArrayBuffer): unknown[] {
  const model = BUILDS[family](config, new Weights(tensors, bytes, "float32"), head);
  return runs.map((run) => {
    const reads: Read[] = [], lines: TraceLine[] = [], taps = tapsOf(run, reads, lines), logits: Matrix[] = [];
    if (model.kind === "reader") {
      logits.push(model.read(run.tokens, run.segments, taps).logits);
    } else {
      let state = model.start(run.source, taps), at = 0;
      for (const stride of run.strides) {
        const found = model.advance(run.tokens.slice(at, (at += stride)), state, taps);
        state = found.state;
        logits.push(found.logits);
      }
    }
    const rows = logits.flatMap((one) => Array.from({ length: one.rows }, (_, r) => row(one, r)));
    return { logits: rows.map((one) => [...one]), logs: rows.map((one) => [...logSoftmax(one)]), reads: joinedReads(reads), trace: lines };
  });
}

const folder = process.argv[2], bytes = readFileSync(join(folder, "weights.bin"));
const cases: Case[] = JSON.parse(readFileSync(join(folder, "cases.json"), "utf8"));
const weights = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
writeFileSync(join(folder, "results.json"), JSON.stringify(cases.map((one) => compute(one, weights))));
