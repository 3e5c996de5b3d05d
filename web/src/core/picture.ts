// The shown figure as a picture: SVG with real text, and PNG with two pixels for each of it.

import { apart, isUnknown } from "./axes.ts";
import { draw, make } from "./dom.ts";
import { places } from "./places.ts";
import { lookup, share } from "./scale.ts";
import { at, describe, isMasked, type Shown } from "./shown.ts";

const SIDE = 24, LETTER = 7.9, MARGIN = 20;
const FONT = "13px ui-monospace, 'DejaVu Sans Mono', monospace";

type Colour = (name: string) => string;

/** The colours of the page as it is now, light or dark, as rgb(r, g, b). */
const colours = (): Colour => (name) => {
  const probe = make("i", {});
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
};

const rgb = (colour: string): number[] => (colour.match(/[\d.]+/g) ?? []).slice(0, 3).map(Number);

function frame(width: number, height: number, title: string, colour: Colour, children: SVGElement[]): SVGSVGElement {
  const svg = draw("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const style = draw("style", {}, `text{font:${FONT};fill:${colour("text")}} .end{text-anchor:end} .now{font-weight:700} .gone{opacity:.25} .ring{fill:none;stroke:${colour("warm")}} line{stroke-width:2.2;stroke-linecap:round}`);
  svg.append(style, draw("rect", { width: "100%", height: "100%", fill: colour("card") }), draw("text", { x: MARGIN, y: 30 }, title), ...children);
  return svg;
}

/** The matrix. */
export function matrixPicture(shown: Shown): SVGSVGElement {
  const { part } = shown, rows = places(shown, "rows"), columns = places(shown, "columns"), colour = colours();
  const shades = lookup(rgb(colour("slot")), rgb(colour("ink"))), wide = (axis: "rows" | "columns"): number => LETTER * part.widest[axis];
  const left = MARGIN + 10 + wide("rows"), top = 56 + (part.tall ? wide("columns") : 14), body: SVGElement[] = [];
  rows.forEach((i, row) => {
    const y = top + row * SIDE;
    body.push(draw("text", { x: left - 8, y: y + SIDE / 2 + 4, class: "end" }, `${apart(part.labels.rows[i])}${isUnknown(part, "rows", i) ? " ?" : ""}`));
    columns.forEach((j, column) => {
      const x = left + column * SIDE, shade = shades[Math.round(255 * share(at(shown, i, j), shown.vmax))];
      const fill = isMasked(shown, i, j) ? colour("slot") : `rgb(${shade.join(",")})`;
      body.push(draw("rect", { x: x + 0.5, y: y + 0.5, width: SIDE - 1, height: SIDE - 1, rx: 2, fill }, draw("title", {}, describe(shown, i, j))));
      if (isMasked(shown, i, j)) body.push(draw("path", { d: `M${x + 2} ${y + SIDE - 2}l${SIDE - 4} ${4 - SIDE}`, stroke: colour("hatch") }));
    });
  });
  columns.forEach((j, column) => {
    const x = left + (column + 0.5) * SIDE, place = part.tall ? { transform: `translate(${x + 4} ${top - 8}) rotate(-90)` } : { x, y: top - 8, "text-anchor": "middle" };
    body.push(draw("text", place, `${apart(part.labels.columns[j])}${isUnknown(part, "columns", j) ? " ?" : ""}`));
  });
  const end = top + rows.length * SIDE + 14;
  shades.forEach((shade, step) => step % 8 === 0 && body.push(draw("rect", { x: left + step / 2, y: end, width: 4, height: 10, fill: `rgb(${shade.join(",")})` })));
  body.push(draw("text", { x: left - 14, y: end + 10 }, "0"), draw("text", { x: left + 136, y: end + 10 }, String(shown.vmax)));
  const width = Math.ceil(Math.max(left + columns.length * SIDE, left + 220, MARGIN + LETTER * shown.label.length) + MARGIN);
  return frame(width, Math.ceil(end + 30), shown.label, colour, body);
}

/** The lines, as they are drawn in the page. */
export function linesPicture(lines: SVGSVGElement, shown: Shown): SVGSVGElement {
  const colour = colours(), body = draw("g", { transform: "translate(0 48)" });
  for (const child of lines.children) {
    const copy = child.cloneNode(true) as SVGElement, stroke = /var\(--(\w+)\)/.exec(copy.getAttribute("stroke") ?? "");
    if (stroke) copy.setAttribute("stroke", colour(stroke[1]));
    const tip = copy.getAttribute("data-tip");
    if (tip) copy.append(draw("title", {}, tip));
    for (const name of ["data-tip", "tabindex", "role"]) copy.removeAttribute(name);
    body.append(copy);
  }
  const size = (name: string): number => Number(lines.getAttribute(name));
  return frame(Math.max(size("width"), Math.ceil(2 * MARGIN + LETTER * shown.label.length)), size("height") + 68, shown.label, colour, [body]);
}

export const svgText = (svg: SVGSVGElement): string => new XMLSerializer().serializeToString(svg);

/** The picture as PNG, at twice its size. */
export async function png(svg: SVGSVGElement): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large for this browser")))));
}
