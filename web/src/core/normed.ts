// Weights beside weight × norm of the value (Kobayashi et al. 2020): what a key adds to the output of a head is its value,
// times its weight, so that a key with a large weight and a small value adds little.

import { apart } from "./axes.ts";
import { percent, scaleMax } from "./scale.ts";
import type { Shown } from "./shown.ts";
import { type Grid, grids, mean, norms } from "./weights.ts";

export interface Normed {
  /** Weight × norm, by row and column; the mean of the heads that are shown. */
  shown: Shown;
  /** For each column the norm of its value, and its share of all weight and of all weight × norm. */
  norms: number[];
  weight: number[];
  product: number[];
}

/** Each weight times the norm of the value of its column. */
export const times = (grid: Grid, factors: ArrayLike<number>): Float64Array => Float64Array.from(grid, (weight, at) => weight * factors[at % factors.length]);

/** The share of each column of a table. */
export function shares(grid: Grid, columns: number): number[] {
  const sums = new Array<number>(columns).fill(0);
  grid.forEach((one, at) => (sums[at % columns] += one || 0));
  const all = sums.reduce((sum, one) => sum + one, 0);
  return sums.map((one) => (all ? one / all : 0));
}

/** Of the heads that are shown, by their places (none: all); null: the norms of the values are not known. */
export function normed(shown: Shown, places: number[]): Normed | null {
  const { part, layers } = shown, columns = part.columns.length;
  const found = layers.flatMap((layer) => grids(part, layer).flatMap((grid, head) => {
    if (layers.length === 1 && places.length && !places.includes(head)) return [];
    return [{ grid, norms: norms(layer, head, columns) }];
  }));
  const known = found.flatMap(({ grid, norms }) => (norms ? [{ grid, norms }] : []));
  if (!known.length || known.length < found.length) return null;
  const weights = mean(known.map(({ grid, norms }) => times(grid, norms)));
  const vmax = scaleOf(weights, columns);
  return {
    shown: { ...shown, weights, tables: [weights], vmax, bound: vmax, where: [shown.where, "weight × norm"].filter(Boolean).join(", ") },
    norms: part.columns.map((_, j) => known.reduce((sum, { norms }) => sum + norms[j], 0) / known.length),
    weight: shares(shown.weights, columns),
    product: shares(weights, columns),
  };
}

/** The end of the colour scale for numbers of any size: 1, 2 or 5 times a power of ten. */
function scaleOf(table: Grid, columns: number): number {
  let most = 0;
  for (const one of table) most = Math.max(most, one || 0);
  if (!(most > 0)) return 1;
  const power = 10 ** Math.ceil(Math.log10(most));
  return Number((power * scaleMax([Float64Array.from(table, (one) => one / power)], columns)).toPrecision(3));
}

/** The column whose share falls most, in words: "[SEP] has 61 % of the weight and 4 % of weight × norm". */
export function said({ shown: { part }, weight, product }: Normed): string {
  const falls = weight.map((one, j) => one - product[j]), most = falls.indexOf(Math.max(...falls));
  if (!(falls[most] > 0.02)) return "Every token has about the same share of both.";
  return `${apart(part.columns[most])} has ${percent(weight[most])} of the weight and ${percent(product[most])} of weight × norm.`;
}
