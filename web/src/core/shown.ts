// What is shown: the tables of the chosen part, layer and heads, with everything that a view needs to draw them.

import type { Frame, Layer, Part } from "../data.ts";
import { looks, named } from "./axes.ts";
import { formatNumber, scaleMax } from "./scale.ts";
import { MEAN, type State } from "./store.ts";
import { digits, type Grid, grids, mean } from "./weights.ts";

/** What can be drawn: of the page as it was made, or of an answer of the engine. */
export interface Drawn {
  parts: Part[];
  frames: Frame[];
}

export interface Shown {
  part: Part;
  /** Whether it is the only part. */
  lone: boolean;
  frames: Frame[];
  layers: Layer[];
  /** Whether the rows are the decoding steps. */
  stepped: boolean;
  /** The tables that are drawn as lines, one for each head, and their colours; in other views their mean. */
  tables: Grid[];
  hues: number[];
  weights: Grid;
  /** The end of the colour scale of the matrix, and of the lines. */
  vmax: number;
  bound: number;
  /** row · columns + column: 1 where the row may not look. */
  masked: Uint8Array;
  anyMasked: boolean;
  /** The contexts of the chosen heads, by row; null: there are none. */
  contexts: (number | null)[][] | null;
  /** How many heads are shown. */
  heads: number;
  label: string;
  /** Where the numbers are from, in a tip: "L4 · H0". */
  where: string;
  /** Places that are hidden, and the part of the weight that is on hidden columns. */
  hidden: { rows: Set<number>; columns: Set<number>; weight: number } | null;
  digits: number;
}

/** What the state shows; `vmax` is the end of a colour scale that figures share. */
export function select({ parts, frames }: Drawn, state: State, vmax?: number): Shown {
  const part = parts[Math.min(state.part, parts.length - 1)];
  const layer = Math.min(state.layer, part.layers.length - 1);
  const layers = layer === MEAN ? part.layers : [part.layers[layer]];
  const all = layers.flatMap((one) => grids(part, one));
  const heads = layer === MEAN ? [] : state.heads.filter((h) => h < all.length).sort((a, b) => a - b);
  const picked = heads.length ? heads.map((h) => all[h]) : all;
  const several = layer !== MEAN && picked.length > 1; // several heads, each in its own colour
  const weights = mean(picked), tables = several ? picked : [weights];
  const hidden = state.hide ? hiding(part, weights) : null;
  const fit = (some: Grid[]): number => (state.fixed ? 1 : vmax ?? scaleMax(some, part.columns.length, (j) => hidden?.columns.has(j) ?? false));
  const masked = maskOf(part, layers);
  return {
    part, lone: parts.length === 1, frames, layers, weights, tables, hidden, masked,
    stepped: frames.length > 0 && part.steps,
    hues: several ? (heads.length ? heads : all.map((_, h) => h)) : [heads.length === 1 ? heads[0] : 0],
    vmax: fit([weights]),
    bound: fit(tables),
    anyMasked: masked.includes(1),
    contexts: contextsOf(part, layers, heads, layer === MEAN),
    heads: picked.length,
    label: labelOf(part, layers, heads),
    where: whereOf(part, layers, heads),
    digits: Math.min(...layers.map(digits)),
  };
}

/** The cells that no chosen layer may look at; a layer without a mask hides none. */
export function maskOf(part: Part, layers: Layer[]): Uint8Array {
  const columns = part.columns.length, counts = new Uint8Array(part.rows.length * columns);
  for (const { masked } of layers) {
    if (masked === null) return new Uint8Array(counts.length);
    const own = new Uint8Array(counts.length);
    masked.forEach((ranges, i) => ranges.forEach(([first, end]) => own.fill(1, i * columns + first, i * columns + end)));
    own.forEach((one, at) => (counts[at] += one));
  }
  return counts.map((count) => (count === layers.length ? 1 : 0));
}

function hiding(part: Part, weights: Grid): Shown["hidden"] {
  const rows = new Set(part.special?.rows ?? []), columns = new Set(part.special?.columns ?? []), across = part.columns.length;
  let all = 0, gone = 0;
  part.rows.forEach((_, i) => {
    if (rows.has(i)) return;
    for (let j = 0; j < across; j++) {
      const weight = weights[i * across + j] || 0;
      all += weight;
      if (columns.has(j)) gone += weight;
    }
  });
  return { rows, columns, weight: all ? gone / all : 0 };
}

/** The contexts of the chosen heads side by side; a mean of layers has none. */
function contextsOf(part: Part, layers: Layer[], heads: number[], means: boolean): Shown["contexts"] {
  const { contexts } = layers[0];
  if (means || !contexts) return null;
  const picked = heads.length ? heads.map((h) => contexts[h]) : contexts;
  return part.rows.map((_, i) => picked.flatMap((head) => head[i]));
}

function labelOf(part: Part, layers: Layer[], heads: number[]): string {
  if (layers.length > 1) return `${part.name ? `${part.name} · ` : ""}mean of ${layers.length} layers, all heads`;
  const own = layers[0].heads;
  if (own.length === 1) return layers[0].label;
  return `${layers[0].label} · ${heads.length === 1 ? `head ${own[heads[0]]}` : `mean of ${heads.length || own.length} heads`}`;
}

function whereOf(part: Part, layers: Layer[], heads: number[]): string {
  if (layers.length > 1) return `mean of ${layers.length} layers`;
  const [{ number, heads: own }] = layers;
  const head = own.length === 1 && part.layers.length === 1 ? [] : [heads.length === 1 || own.length === 1 ? `H${own[heads[0] ?? 0]}` : `mean of ${heads.length || own.length} heads`];
  return [...(number === null ? [] : [`L${number}`]), ...head].join(" · ");
}

export const at = (shown: Shown, row: number, column: number): number => shown.weights[row * shown.part.columns.length + column];

export const isMasked = (shown: Shown, row: number, column: number): boolean => shown.masked[row * shown.part.columns.length + column] === 1;

/** A weight as it is written everywhere: in a tip, in a table, in a file. */
export const written = (shown: Shown, weight: number): string => formatNumber(Number.isFinite(weight) ? Number(weight.toPrecision(shown.digits)) : null);

/** The tip of a cell; of one head, if `weight` is given. */
export function describe(shown: Shown, row: number, column: number, weight = at(shown, row, column), where = shown.where): string {
  const { part } = shown;
  if (isMasked(shown, row, column)) return `${named(part, "rows", row)} may not look at ${named(part, "columns", column)}`;
  return `${looks(part, row)} ${named(part, "columns", column)}: ${written(shown, weight)}${where ? ` (${where})` : ""}`;
}

/** What a token looks at, or what looks at it, strongest first. */
export function sentence(shown: Shown, side: "row" | "column", index: number): string {
  const { part } = shown, columns = part.columns.length;
  const line = side === "row" ? shown.weights.subarray(index * columns, (index + 1) * columns) : part.rows.map((_, i) => at(shown, i, index));
  const other = side === "row" ? "columns" : "rows";
  const best = Array.from(line, (_, j) => j).filter((j) => line[j] > 0).sort((a, b) => line[b] - line[a]).slice(0, 3);
  const list = best.map((j) => `${named(part, other, j)} ${written(shown, line[j])}`).join(", ") || "nothing";
  return side === "row" ? `${looks(part, index)} ${list}` : `${named(part, "columns", index)} is looked at by ${list}`;
}

/** The column with the largest weight of a row; -1: none. */
export function hottest(shown: Shown, row: number): number {
  const columns = shown.part.columns.length;
  let best = -1;
  for (let j = 0; j < columns; j++) if (!shown.hidden?.columns.has(j) && at(shown, row, j) > (best < 0 ? 0 : at(shown, row, best))) best = j;
  return best;
}
