// The heads of a part: their names, their order by a score, and the difference of two.

import type { Part } from "../data.ts";
import { looks, named } from "./axes.ts";
import { signed } from "./difference.ts";
import { scaleMax } from "./scale.ts";
import { type Scores, scores } from "./scores.ts";
import { at, describe, isMasked, type Shown, written } from "./shown.ts";
import { grids } from "./weights.ts";

/** A head by its places among the layers of the part and the heads of the layer. */
export interface HeadPlace {
  layer: number;
  head: number;
}

export const heads = (part: Part): HeadPlace[] => part.layers.flatMap(({ heads: own }, layer) => own.map((_, head) => ({ layer, head })));

/** "L3·H5"; of an only layer "H5". */
export function headName(part: Part, { layer, head }: HeadPlace): string {
  const { number, heads: own } = part.layers[layer];
  return [...(number === null ? [] : [`L${number}`]), `H${own[head]}`].join("·");
}

export type Order = "layer" | keyof Scores;

interface Ordering {
  name: Order;
  /** In the menu, and before a score. */
  title: string;
  word: string;
  offered(part: Part): boolean;
  score?(found: Scores): number;
}

const always = (): boolean => true;
/** Whether a row and a column of the same number are the same token. */
const square = (part: Part): boolean => part.name !== "cross" && part.rows.length === part.columns.length;

/** The orders of the heads: by layer, or by a score, largest first; by entropy, sharpest first. */
export const ORDERS: Ordering[] = [
  { name: "layer", title: "layer", word: "", offered: always },
  { name: "previous", title: "previous token", word: "previous", offered: square, score: (found) => found.previous },
  { name: "itself", title: "same token", word: "same", offered: square, score: (found) => found.itself },
  { name: "next", title: "next token", word: "next", offered: square, score: (found) => found.next },
  { name: "first", title: "first token", word: "first", offered: always, score: (found) => found.first },
  { name: "special", title: "special tokens", word: "special", offered: (part) => (part.special?.columns ?? []).some((place) => place > 0), score: (found) => found.special },
  { name: "largest", title: "largest weight", word: "largest", offered: always, score: (found) => found.largest },
  { name: "entropy", title: "entropy, lowest first", word: "entropy", offered: always, score: (found) => found.entropy },
];

/** The order of a name in the address; by layer, if it names none that this part has. */
export const orderOf = (part: Part, name: string | undefined): Order => ORDERS.find((one) => one.name === name && one.offered(part))?.name ?? "layer";

export function sorted(part: Part, order: Order): HeadPlace[] {
  const found = heads(part), score = ORDERS.find(({ name }) => name === order)?.score;
  if (!score) return found;
  const value = new Map(found.map((place) => [place, score(scores(part, grids(part, part.layers[place.layer])[place.head]))]));
  const sign = order === "entropy" ? 1 : -1;
  return found.sort((one, other) => sign * ((value.get(one) ?? 0) - (value.get(other) ?? 0)));
}

/** The weights of one head less those of another, on a scale that fits the difference. */
export function difference(one: Shown, other: Shown): Shown {
  const weights = Float64Array.from(one.weights, (weight, place) => weight - other.weights[place]);
  const vmax = scaleMax([weights.map(Math.abs)], one.part.columns.length);
  const masked = one.masked.map((first, place) => first & other.masked[place]);
  return { ...one, weights, tables: [weights], vmax, bound: vmax, masked, anyMasked: masked.includes(1), where: `${one.where} − ${other.where}` };
}

/** The tip of a cell of the difference: "it looks at the: 0.91 (L0 · H1), 0.12 (L1 · H0), +0.79". */
export function tellHeads(one: Shown, other: Shown, row: number, column: number): string {
  if (isMasked(one, row, column) && isMasked(other, row, column)) return describe(one, row, column);
  const [first, second] = [one, other].map((shown) => written(shown, at(shown, row, column)));
  const change = signed(Number((Number(first) - Number(second)).toPrecision(6)));
  return `${looks(one.part, row)} ${named(one.part, "columns", column)}: ${first} (${one.where}), ${second} (${other.where}), ${change}`;
}

/** The cell in which two heads differ most, in words. */
export function largestDifference(one: Shown, other: Shown): string {
  const apart = one.weights.map((weight, place) => Math.abs(weight - other.weights[place]) || 0), across = one.part.columns.length;
  let best = 0;
  apart.forEach((value, place) => {
    if (value > apart[best]) best = place;
  });
  return `${one.where} and ${other.where} differ most here: ${tellHeads(one, other, Math.floor(best / across), best % across)}`;
}
