// A matrix as comma-separated values.

import { places } from "./places.ts";
import { at, isMasked, type Shown, written } from "./shown.ts";

/** A cell of text. One that a spreadsheet would compute as a formula begins with an apostrophe. */
export function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The columns name what is looked at; a cell that may not look is empty. */
export function csv(shown: Shown): string {
  const { part } = shown, columns = places(shown, "columns");
  const lines = places(shown, "rows").map((i) => [
    cell(part.rows[i]),
    ...columns.map((j) => (isMasked(shown, i, j) ? "" : written(shown, at(shown, i, j)))),
  ]);
  return [["", ...columns.map((j) => cell(part.columns[j]))], ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}
