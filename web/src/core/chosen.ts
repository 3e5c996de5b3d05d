// The cell that is chosen: the view of one cell computes it, and the matrix marks it.

import type { Cell } from "../engine/api.ts";
import { hottest, type Shown } from "./shown.ts";
import { MEAN, type State } from "./store.ts";

/** The cell that the state chooses: without a column, that with the largest weight of the row. */
export function chosen(state: State, shown: Shown): Cell {
  const { part } = shown, rows = part.rows.length, columns = part.columns.length;
  const inside = (text: string | undefined, count: number): number => {
    const place = Number(text ?? NaN);
    return Number.isInteger(place) && place >= 0 && place < count ? place : -1;
  };
  const own = inside(state.more["cell.row"], rows), row = shown.stepped ? Math.min(state.step, rows - 1) : own < 0 ? Math.min(state.row, rows - 1) : own;
  const column = inside(state.more["cell.column"], columns);
  const layer = part.layers[state.layer === MEAN ? 0 : Math.min(state.layer, part.layers.length - 1)];
  const head = layer.heads[state.layer === MEAN ? 0 : state.heads[0] ?? 0] ?? 0;
  return { part: part.name, layer: layer.number ?? 0, head, row, column: column < 0 ? Math.max(0, hottest(shown, row)) : column };
}
