// Numbers as text, and the colour scale.

/** Six significant digits, as format_number in formatting.py: 0.00000506 is 5.06e-06. */
export function formatNumber(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return "not finite";
  const short = Number(value.toPrecision(6));
  const small = short !== 0 && Math.abs(short) < 1e-4;
  return small ? short.toExponential().replace(/-(\d)$/, "-0$1") : String(short);
}

/** A number with a minus sign instead of a hyphen. */
export const minus = (text: string): string => text.replace(/^-/, "−");

/** A log-probability with four decimals, so that a column of them is aligned. */
export const four = (value: number): string => minus(value.toFixed(4).replace(/^-(?=0\.0000$)/, ""));

/** A change of a log-probability, with its sign. */
export const plus = (value: number): string => (value >= 0.00005 ? `+${four(value)}` : four(value));

/** A share of a whole: 0.8312 is "83 %". */
export const percent = (value: number): string => `${Math.round(100 * value)} %`;

/** How dark a cell is: 0 to 1. */
export const share = (value: number, vmax: number): number => Math.min(1, Math.max(0, (value || 0) / vmax));

/** The end of the colour scale for tables of weights, each of rows × columns: the same as scale_max in view_data.py. */
export function scaleMax(tables: ArrayLike<number>[], columns: number, skip?: (column: number) => boolean): number {
  const rows: { seen: number; peak: number }[] = [];
  let across = 0;
  for (let j = 0; j < columns; j++) across += skip?.(j) ? 0 : 1;
  for (const table of tables) {
    for (let start = 0; start < table.length; start += columns) {
      let seen = 0, peak = 0;
      for (let j = 0; j < columns; j++) {
        const weight = table[start + j];
        if (skip?.(j) || !(weight > 0)) continue;
        seen++;
        if (weight > peak && weight < Infinity) peak = weight;
      }
      rows.push({ seen, peak });
    }
  }
  const most = rows.reduce((found, row) => Math.max(found, row.seen), 0);
  const peak = rows.reduce((found, row) => (2 * row.seen >= most ? Math.max(found, row.peak) : found), 0);
  const top = Math.max(peak, 2 / Math.max(1, across));
  if (top > 0.5 || peak < 1e-6) return Math.max(1, peak);
  const decade = 10 ** Math.floor(Math.log10(top));
  const end = [1, 2, 5, 10].map((step) => step * decade).find((value) => value >= top * (1 - 1e-6)) ?? 1;
  return Number(end.toPrecision(9));
}

/** How many head colours there are: --h0 … --h7 in page.css. */
export const COLOURS = 8;

/** The 256 colours between two, as [r, g, b]: for a canvas and for pictures. */
export function lookup(from: readonly number[], to: readonly number[]): number[][] {
  return Array.from({ length: 256 }, (_, at) => from.map((one, channel) => Math.round(one + ((to[channel] - one) * at) / 255)));
}
