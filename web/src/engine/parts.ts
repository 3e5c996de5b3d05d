// The parts of a page from what a question read: the shape of regard/render/page.py, with its wording.

import type { Axes, LiveModel, Part } from "../data.ts";
import type { Read } from "./model.ts";
import { graphemes, labels, visible, width } from "./text.ts";

/** The tokens of an axis: their names as they are, and which are unknown or special. */
export interface Axis {
  pieces: string[];
  unknown: number[];
  special: number[];
}

/** The parts, the first one first: attention to a source, if there is any. */
export function partsOf(live: LiveModel, reads: Map<string, Map<number, Read[]>>, axes: Record<string, Axes<Axis>>, steps: number): Part[] {
  const names = [...reads.keys()].sort((a, b) => Number(b === "cross") - Number(a === "cross"));
  if (!names.length) return [withoutAttention(live, axes, steps)];
  return names.map((name) => {
    const layers = [...reads.get(name)!].sort(([a], [b]) => a - b), part = { ...framed(live, name, axes[name], steps) };
    part.layers = layers.map(([number, own]) => layerOf(name, layers.length > 1 ? number : null, own, axes[name], part.steps));
    return part;
  });
}

function framed(live: LiveModel, name: string, axes: Axes<Axis>, frames: number): Part {
  const both = <T>(of: (axis: Axis) => T): Axes<T> => ({ rows: of(axes.rows), columns: of(axes.columns) });
  const shown = both((axis) => labels(axis.pieces)), pieces = both((axis) => axis.pieces.map(visible));
  const steps = name !== "encoder" && frames > 0 && axes.rows.pieces.length === frames;
  return {
    name,
    ...pieces,
    labels: shown,
    widest: both((axis) => Math.max(0, ...labels(axis.pieces).map(width))),
    tall: shown.columns.some((label) => graphemes(label).length > 2),
    unknown: both((axis) => axis.unknown),
    special: both((axis) => axis.special),
    steps,
    chain: steps ? live.chain : [],
    captions: live.captions[name],
    layers: [],
  };
}

/** A model without attention has rows, columns and steps all the same. */
function withoutAttention(live: LiveModel, axes: Record<string, Axes<Axis>>, steps: number): Part {
  const own = axes.cross ?? axes.decoder, part = framed(live, "", own, steps);
  const weights = new Float32Array(own.rows.pieces.length * own.columns.pieces.length);
  return { ...part, layers: [{ label: "no attention", number: null, heads: [0], weights, masked: null, contexts: null }] };
}

/** The reads of one layer, one below the other. */
function layerOf(part: string, number: number | null, reads: Read[], axes: Axes<Axis>, steps: boolean): Part["layers"][number] {
  const rows = axes.rows.pieces.length, columns = axes.columns.pieces.length, [{ heads }] = reads, last = reads[reads.length - 1];
  const weights = new Float32Array(heads * rows * columns), masked: [number, number][][] = [];
  const contexts: number[][][] = Array.from({ length: heads }, () => []);
  let row = 0;
  for (const read of reads) {
    for (let i = 0; i < read.queries && row < rows; i++, row++) {
      for (let h = 0; h < heads; h++) {
        const from = (h * read.queries + i) * read.keys, wide = read.contexts.length / heads / read.queries;
        weights.set(read.weights.subarray(from, from + Math.min(read.keys, columns)), (h * rows + row) * columns);
        if (steps) contexts[h].push([...read.contexts.subarray((h * read.queries + i) * wide, (h * read.queries + i + 1) * wide)]);
      }
      masked.push(hiddenRanges(read.visible.subarray(i * read.keys, (i + 1) * read.keys), columns));
    }
  }
  const norms = new Float32Array(heads * columns);
  for (let h = 0; h < heads; h++) norms.set(last.norms.subarray(h * last.keys, h * last.keys + Math.min(last.keys, columns)), h * columns);
  const label = number === null ? part : `${part} · layer ${number}`;
  return { label, number, heads: Array.from({ length: heads }, (_, h) => h), weights, masked, contexts: steps ? contexts : null, norms };
}

/** The columns that a row may not look at, as ranges: [first, end after the last]. */
function hiddenRanges(visible: Uint8Array, columns: number): [number, number][] {
  const found: [number, number][] = [];
  for (let at = 0; at < columns; at++) {
    if (visible[at]) continue;
    const open = found[found.length - 1];
    if (open && open[1] === at) open[1]++;
    else found.push([at, at + 1]);
  }
  return found;
}
