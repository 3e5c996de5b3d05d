// The tokens of the axes: isolated, so that those written from right to left do not reorder the numbers beside them.

import type { Part } from "../data.ts";

export type Axis = "rows" | "columns";

export const apart = (piece: string): string => `\u2068${piece}\u2069`;

export const isUnknown = (part: Part, axis: Axis, index: number): boolean => part.unknown[axis].includes(index);

/** A token in a sentence. */
export const named = (part: Part, axis: Axis, index: number): string =>
  `${apart(part[axis][index])}${isUnknown(part, axis, index) ? " (unknown)" : ""}`;

/** The row of a translator's cross-attention is what is written, one of filters is a filter, any other row is what looks. */
export function looks(part: Part, row: number): string {
  const name = named(part, "rows", row);
  if (part.name === "filters") return `${name} on`;
  return part.name === "cross" ? `writing ${name}, looks at` : `${name} looks at`;
}
