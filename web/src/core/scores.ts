// The scores of a head, as `regard explain heads` computes them: how much of its weight is on the previous token, the
// next, the token itself, the first and the special ones, each beside even weights over the same keys.

import type { Part } from "../data.ts";
import { type Grid, grids } from "./weights.ts";

export interface Scores {
  previous: number;
  next: number;
  itself: number;
  first: number;
  special: number;
  /** The mean entropy of a row, in nats. */
  entropy: number;
  /** The mean of the largest weight of a row. */
  largest: number;
}

export const PATTERNS = ["previous", "next", "itself", "first", "special"] as const;
export type Pattern = (typeof PATTERNS)[number];

const known = new WeakMap<Grid, Scores>();

export function scores(part: Part, grid: Grid): Scores {
  let found = known.get(grid);
  if (!found) known.set(grid, (found = compute(part, grid)));
  return found;
}

function compute(part: Part, grid: Grid): Scores {
  const rows = part.rows.length, columns = part.columns.length, special = new Set(part.special?.columns ?? []);
  const sums: Scores = { previous: 0, next: 0, itself: 0, first: 0, special: 0, entropy: 0, largest: 0 };
  for (let i = 0; i < rows; i++) {
    let largest = 0;
    for (let j = 0; j < columns; j++) {
      const weight = grid[i * columns + j];
      if (!(weight > 0)) continue;
      if (j === i - 1) sums.previous += weight;
      if (j === i + 1) sums.next += weight;
      if (j === i) sums.itself += weight;
      if (j === 0) sums.first += weight;
      else if (special.has(j)) sums.special += weight;
      sums.entropy -= weight * Math.log(weight);
      largest = Math.max(largest, weight);
    }
    sums.largest += largest;
  }
  for (const name of Object.keys(sums) as (keyof Scores)[]) sums[name] /= Math.max(1, rows);
  return sums;
}

/** Even weights over the keys that some head looks at. */
export function uniform(part: Part): Grid {
  const columns = part.columns.length, all = part.layers.flatMap((layer) => grids(part, layer));
  const even = new Float64Array(part.rows.length * columns);
  for (let i = 0; i < part.rows.length; i++) {
    const seen = part.columns.map((_, j) => (all.some((grid) => grid[i * columns + j] > 0) ? 1 : 0));
    const count = seen.reduce<number>((sum, one) => sum + one, 0);
    seen.forEach((one, j) => (even[i * columns + j] = one / Math.max(1, count)));
  }
  return even;
}

/** Of cross-attention the layer that aligns best, as alignment_layer in alignment.py. */
export const alignmentLayer = (count: number): number => (count > 2 ? count - 2 : count - 1);

/**
 * The head with which a part opens: [layer, head]. In cross-attention it is the one with the largest weights, in the
 * layer that aligns best. Elsewhere it is the one that looks at the previous, the next or the same token by the most
 * above even weights; the first token and special ones count only where there is no such head, because they take the
 * weight that a head does not need.
 */
export function strongest(part: Part): [number, number] {
  const candidates = part.layers.flatMap((layer, at) => grids(part, layer).map((grid, head) => ({ at, head, found: scores(part, grid) })));
  if (!candidates.length) return [0, 0];
  if (part.name === "cross" || part.rows.length !== part.columns.length) {
    const layer = part.name === "cross" ? alignmentLayer(part.layers.length) : 0;
    const there = candidates.filter(({ at }) => at === layer);
    const best = there.reduce((found, one) => (one.found.largest > found.found.largest ? one : found));
    return [best.at, best.head];
  }
  const even = scores(part, uniform(part));
  const excess = (found: Scores, patterns: readonly Pattern[]): number => Math.max(...patterns.map((name) => found[name] - even[name]));
  for (const patterns of [["previous", "next", "itself"], PATTERNS] as const) {
    const best = candidates.reduce((found, one) => (excess(one.found, patterns) > excess(found.found, patterns) ? one : found));
    if (excess(best.found, patterns) > 0.05) return [best.at, best.head];
  }
  return [candidates[0].at, candidates[0].head];
}
