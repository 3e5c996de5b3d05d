// Weights beside weight × norm of the value.

import { apart, isUnknown } from "../core/axes.ts";
import { make } from "../core/dom.ts";
import { Heat } from "../core/heat.ts";
import { normed, said } from "../core/normed.ts";
import { formatNumber, percent, share } from "../core/scale.ts";
import type { Shown } from "../core/shown.ts";
import type { View } from "./view.ts";

const HONEST = "A weight says how much of a value is read. It does not say how large the value is, nor what it does to the output: to measure that, change the weight.";
const READ_ON = "Read on: the pages Interventions and Attention of the documentation; Jain & Wallace 2019, Attention is not Explanation; Wiegreffe & Pinter 2019, Attention is not not Explanation; " +
  "Kobayashi et al. 2020, Attention is Not Only a Weight.";

export const norms: View = {
  name: "norms",
  title: "Norms",
  place: "side",
  available: (context) => context.full && context.shown().layers.every((layer) => layer.norms !== undefined),
  mount(root, context) {
    const note = (text: string): HTMLElement => make("small", {}, text);
    const heading = make("h2", {}, "Weight × norm of the value ", note("the length of what a token adds to the output of the head"));
    const sentence = make("p", { class: "sink" }), body = make("tbody"), heat = new Heat("Weight × norm of the value", () => undefined);
    const names = ["token", "‖value‖", "of the weight", "of weight × norm"].map((name) => make("th", { scope: "col" }, name));
    const table = make("table", { class: "ranking shares" }, make("thead", {}, make("tr", {}, ...names)), body);
    const scale = make("p", { class: "quiet limits" });
    root.append(
      heading, sentence, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Shares of each token" }, table), make("div", { class: "scroll picture" }, heat.element), scale,
      make("p", { class: "limits" }, HONEST), make("p", { class: "quiet limits" }, READ_ON),
    );
    let drawn: Shown | null = null;
    return ({ heads, row, column }) => {
      const shown = context.shown();
      if (shown === drawn) return;
      drawn = shown;
      const found = normed(shown, heads), { part, hidden } = shown;
      if (!found) return;
      sentence.textContent = said(found);
      const cell = (value: number): HTMLElement => make("td", {}, make("span", { class: "gauge", "--share": share(value, 1) }), make("span", { class: "share" }, percent(value)));
      body.replaceChildren(...part.columns.flatMap((name, j) => {
        if (hidden?.columns.has(j)) return [];
        const piece = make("span", isUnknown(part, "columns", j) ? { class: "unknown" } : {}, apart(name));
        const norm = formatNumber(Number(found.norms[j].toPrecision(shown.digits)));
        return [make("tr", {}, make("th", { scope: "row" }, piece), make("td", {}, norm), cell(found.weight[j]), cell(found.product[j]))];
      }));
      const room = Math.min(440, root.clientWidth || 300) - Math.min(200, 12 + 8 * part.widest.rows);
      heat.draw(found.shown, Math.max(1, Math.min(24, Math.floor(room / Math.max(1, part.columns.length)))), { row, column });
      scale.textContent = `The picture has a scale from 0 to ${formatNumber(found.shown.vmax)}.`;
    };
  },
};
