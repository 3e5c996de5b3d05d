// The heads of a part: their names, their order by a score, and the difference of two.

import type { Part } from "../data.ts";
import { scaleMax } from "./scale.ts";
import { type Scores, scores } from "./scores.ts";
import type { Shown } from "./shown.ts";
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
  { name: "special", title: "special tokens", word: "special", offered: (part) => (part.special?.columns ?? []).some((at) => at > 0), score: (found) => found.special },
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
  const weights = Float64Array.from(one.weights, (weight, at) => weight - other.weights[at]);
  const vmax = scaleMax([weights.map(Math.abs)], one.part.columns.length);
  const masked = one.masked.map((first, at) => first & other.masked[at]);
  return { ...one, weights, tables: [weights], vmax, bound: vmax, masked, anyMasked: masked.includes(1), where: `${one.where} − ${other.where}` };
}
