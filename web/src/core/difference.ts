// The difference of two matrices of attention whose tokens are not all the same.

import { align, type Pair } from "./align.ts";
import { looks, named, type Axis } from "./axes.ts";
import { formatNumber, minus } from "./scale.ts";
import { at, isMasked, type Shown, written } from "./shown.ts";

export interface Difference {
  rows: Pair[];
  columns: Pair[];
  /** rows × columns: the new weight minus the old one; a token that is missing has no weight. NaN: neither has the cell. */
  values: Float64Array;
  /** The largest change in a row that both have. */
  bound: number;
}

export function difference(old: Shown, now: Shown): Difference {
  const pairs = (axis: Axis): Pair[] =>
    align(old.part[axis], now.part[axis]).filter((one) => !(one.old !== null && old.hidden?.[axis].has(one.old)) && !(one.now !== null && now.hidden?.[axis].has(one.now)));
  const rows = pairs("rows"), columns = pairs("columns"), values = new Float64Array(rows.length * columns.length);
  let bound = 0;
  rows.forEach((row, i) => columns.forEach((column, j) => {
    const [before, after] = weights(old, now, row, column), value = before === null && after === null ? NaN : (after ?? 0) - (before ?? 0);
    values[i * columns.length + j] = value;
    if (row.old !== null && row.now !== null && Math.abs(value) > bound) bound = Math.abs(value);
  }));
  return { rows, columns, values, bound };
}

/** The old weight and the new one; null: the matrix has no such cell. */
function weights(old: Shown, now: Shown, row: Pair, column: Pair): [number | null, number | null] {
  const before = row.old === null || column.old === null ? null : at(old, row.old, column.old);
  return [before, row.now === null || column.now === null ? null : at(now, row.now, column.now)];
}

/** The change of a number with its sign. */
export const signed = (value: number): string => `${value > 0 ? "+" : ""}${minus(formatNumber(value))}`;

/** The tip of a cell: "“2” looks at “0”: 0.91 before, 0.4 now, −0.51". */
export function tellDifference(old: Shown, now: Shown, row: Pair, column: Pair): string {
  const [before, after] = weights(old, now, row, column);
  const say = (shown: Shown, i: number, j: number): string => (isMasked(shown, i, j) ? "may not look" : written(shown, at(shown, i, j)));
  const name = (axis: Axis, pair: Pair): string => {
    if (axis === "rows") return pair.now === null ? looks(old.part, pair.old!) : looks(now.part, pair.now);
    return pair.now === null ? named(old.part, axis, pair.old!) : named(now.part, axis, pair.now);
  };
  const start = `${name("rows", row)} ${name("columns", column)}`;
  if (before === null && after === null) return `${start}: one of them is only in the old text, the other only in the new one`;
  if (before === null) return `${start}: ${say(now, row.now!, column.now!)}, and not there before`;
  if (after === null) return `${start}: ${say(old, row.old!, column.old!)} before, and not there now`;
  const words = [say(old, row.old!, column.old!), say(now, row.now!, column.now!)];
  return `${start}: ${words[0]} before, ${words[1]} now, ${signed(Number((Number(written(now, after)) - Number(written(old, before))).toPrecision(6)))}`;
}
