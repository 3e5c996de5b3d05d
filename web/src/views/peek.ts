// A head drawn large, or two heads and their difference.

import { make } from "../core/dom.ts";
import { difference, tellHeads } from "../core/heads.ts";
import { Heat, type Place } from "../core/heat.ts";
import type { Shown } from "../core/shown.ts";
import type { Part } from "../data.ts";

const ONE = 460, EACH = 250; // pixels of a picture alone, and at least of one of three

export class Peek {
  private readonly title = make("b", {});
  private readonly words = make("span", {});
  private readonly about = make("p", { class: "peeked" }, this.title, " ", this.words);
  private readonly heats = ["Weights of the head", "Weights of the second head", "Difference"].map((label) => new Heat(label, () => undefined));
  private readonly captions = this.heats.map(() => make("figcaption", {}));
  private readonly figures = this.heats.map((heat, at) => make("figure", {}, this.captions[at], make("div", { class: "scroll" }, heat.element)));
  readonly element = make("div", { class: "peek" }, this.about, make("div", { class: "pictures" }, ...this.figures));

  /** Draws one head into a room of so many pixels, or two that are compared; `words` stand below the name of one. */
  draw(main: Shown, other: Shown | null, words: string, room: number, place: Place): void {
    const vmax = Math.max(main.vmax, other?.vmax ?? 0), tables = other ? [{ ...main, vmax }, { ...other, vmax }, difference(main, other)] : [main];
    this.title.textContent = main.label;
    this.words.textContent = words;
    this.about.hidden = other !== null;
    const side = sideOf(main.part, other ? Math.min(room, Math.max(EACH, room / 3 - 24)) : Math.min(ONE, room));
    this.heats.forEach((heat, at) => {
      const table = tables[at];
      this.figures[at].hidden = !table;
      if (!table) return;
      const scale = `${at === 2 ? `−${table.vmax}` : 0} to ${table.vmax}`;
      this.captions[at].textContent = other ? `${table.where} (${scale})` : `Scale: ${scale}`;
      heat.draw(table, side, place, -1, at === 2 && other ? (_, row, column) => tellHeads(main, other, row, column) : undefined);
    });
  }
}

/** The side of a cell of a matrix in a room of so many pixels. */
function sideOf({ rows, columns, widest }: Part, room: number): number {
  const cell = (room - Math.min(200, 12 + 8 * widest.rows)) / Math.max(rows.length, columns.length, 1);
  return Math.max(1, Math.min(30, Math.floor(cell)));
}
