// A small picture of one head. Each pixel is the largest weight of its block of cells: a mean would wipe out thin
// diagonals.

import { colours, type Rgb } from "./colours.ts";
import type { Grid } from "./weights.ts";

/** The first cell of each pixel, and the end of the last one, for `cells` cells on `pixels` pixels. */
export function blocks(cells: number, pixels: number): number[] {
  return Array.from({ length: pixels + 1 }, (_, at) => Math.floor((at * cells) / pixels));
}

/** The largest weight of each block, row by row. NaN: no cell of the block may be looked at. */
export function pool(grid: Grid, masked: Uint8Array, columns: number, height: number, width: number): Float32Array {
  const pooled = new Float32Array(height * width), rows = grid.length / columns;
  const [down, across] = [blocks(rows, height), blocks(columns, width)];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let most = NaN;
      for (let i = down[y]; i < Math.max(down[y] + 1, down[y + 1]); i++) {
        for (let j = across[x]; j < Math.max(across[x] + 1, across[x + 1]); j++) {
          const at = i * columns + j;
          if (masked[at] === 0 && !(grid[at] <= most)) most = grid[at] || 0;
        }
      }
      pooled[y * width + x] = most;
    }
  }
  return pooled;
}

/** The size of a thumbnail in pixels of the screen: its longer side has `side` of them. */
export function sizeOf(rows: number, columns: number, side: number): { width: number; height: number } {
  const most = Math.max(rows, columns), along = (cells: number): number => Math.max(Math.min(cells, side, 4), Math.round((side * cells) / most));
  return { width: along(columns), height: along(rows) };
}

/** Draws a head on the scale from 0 to 1, `side` pixels of the style sheet long. */
export function paintThumbnail(canvas: HTMLCanvasElement, grid: Grid, masked: Uint8Array, columns: number, side: number): void {
  const sharp = devicePixelRatio || 1, { width, height } = sizeOf(grid.length / columns, columns, Math.round(side * sharp));
  const pixels = new ImageData(width, height), { more, hatch } = colours(), pooled = pool(grid, masked, columns, height, width);
  const put = (at: number, [red, green, blue]: Rgb): void => pixels.data.set([red, green, blue, 255], 4 * at);
  pooled.forEach((weight, at) => {
    const striped = Number.isNaN(weight) && ((at % width) + Math.floor(at / width)) % Math.round(5 * sharp) < 1.5 * sharp;
    put(at, striped ? hatch : more[Math.min(255, Math.round(255 * (weight || 0)))]);
  });
  Object.assign(canvas, { width, height });
  canvas.style.width = `${width / sharp}px`;
  canvas.style.height = `${height / sharp}px`;
  canvas.getContext("2d")?.putImageData(pixels, 0, 0);
}
