// The colours of the style sheet for a canvas, which has no style of its own: they change with the theme of the reader.

import { make } from "./dom.ts";
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

function changed(): void {
  palette = null;
  for (const paint of painters) paint();
}

if (globalThis.document) {
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"]) matchMedia(query).addEventListener("change", changed);
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

/** The colours now. */
export function colours(): Palette {
  if (palette) return palette;
  const probe = document.body.appendChild(make("i", { hidden: true })), style = getComputedStyle(probe);
  const rgb = (name: string): Rgb => {
    probe.style.color = `var(${name})`;
    return style.color.match(/[\d.]+/g)?.slice(0, 3).map(Number) ?? [0, 0, 0]; // rgb(240, 242, 247)
  };
  const slot = rgb("--slot");
  palette = { more: lookup(slot, rgb("--ink")), less: lookup(slot, rgb("--warm")), hatch: rgb("--hatch"), ground: rgb("--card") };
  probe.remove();
  return palette;
}

export const css = ([red, green, blue]: Rgb): string => `rgb(${red} ${green} ${blue})`;
