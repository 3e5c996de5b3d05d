// The colours of the style sheet for a canvas, which has no style of its own: they change with the theme of the reader.

import { lookup } from "./scale.ts";

export type Rgb = readonly number[];

export interface Palette {
  /** The 256 colours of a weight, from none to the end of the scale, and those of a number below 0. */
  more: Rgb[];
  less: Rgb[];
  hatch: Rgb;
  /** Between the cells. */
  ground: Rgb;
}

let palette: Palette | null = null;
const painters = new Set<() => void>();

/** Draws again whenever the theme changes. */
export function repainted(paint: () => void): void {
  painters.add(paint);
}

for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"]) {
  globalThis.matchMedia?.(query).addEventListener("change", () => {
    palette = null;
    for (const paint of painters) paint();
  });
}

/** The colours now. */
export function colours(): Palette {
  if (palette) return palette;
  const style = getComputedStyle(document.documentElement), brush = document.createElement("canvas").getContext("2d");
  const rgb = (name: string): Rgb => {
    if (!brush) return [0, 0, 0];
    brush.fillStyle = style.getPropertyValue(name).trim(); // in any notation of CSS; a canvas answers with #rrggbb
    return [1, 3, 5].map((at) => parseInt(String(brush.fillStyle).slice(at, at + 2), 16));
  };
  const slot = rgb("--slot");
  palette = { more: lookup(slot, rgb("--ink")), less: lookup(slot, rgb("--warm")), hatch: rgb("--hatch"), ground: rgb("--card") };
  return palette;
}

export const css = ([red, green, blue]: Rgb): string => `rgb(${red} ${green} ${blue})`;
