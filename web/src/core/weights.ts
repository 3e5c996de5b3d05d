// The weights of a layer as numbers.

import type { Layer, Part } from "../data.ts";

/** One table, row by row; NaN: not finite. */
export type Grid = Float64Array | Float32Array;

const decoded = new WeakMap<Layer, Grid[]>();

/** The table of each head of a layer. */
export function grids(part: Part, layer: Layer): Grid[] {
  let found = decoded.get(layer);
  if (!found) decoded.set(layer, (found = decode(layer, part.rows.length * part.columns.length)));
  return found;
}

function decode({ weights, heads }: Layer, size: number): Grid[] {
  if (weights instanceof Float32Array) return heads.map((_, h) => weights.subarray(h * size, (h + 1) * size));
  if (typeof weights !== "string") return weights.map((head) => Float64Array.from(head.flat(), (one) => one ?? NaN));
  const bytes = atob(weights); // 16-bit integers, low byte first
  return heads.map((_, h) => {
    const grid = new Float64Array(size);
    for (let at = 0; at < size; at++) {
      const k = 2 * (h * size + at);
      grid[at] = (bytes.charCodeAt(k) + 256 * bytes.charCodeAt(k + 1)) / 65535;
    }
    return grid;
  });
}

/** The digits that a weight of a layer has: one that is packed into two bytes has four. */
export const digits = (layer: Layer): number => (typeof layer.weights === "string" ? 4 : 6);

export function mean(tables: Grid[]): Grid {
  if (tables.length === 1) return tables[0];
  return Float64Array.from(tables[0], (_, at) => tables.reduce((sum, table) => sum + (table[at] || 0), 0) / tables.length);
}

/** The norm of the value of each column, after the output projection of a head; null: not known. */
export function norms({ norms: all }: Layer, head: number, columns: number): ArrayLike<number> | null {
  if (all instanceof Float32Array) return all.subarray(head * columns, (head + 1) * columns);
  return all?.[head].map((one) => one ?? NaN) ?? null;
}
