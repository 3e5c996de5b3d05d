// The matrix of many cells: on a canvas, because a browser lays out a hundred thousand cells in a second at best.

import { Heat } from "../core/heat.ts";
import { make } from "../core/dom.ts";
import type { Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import { chooseCell, type Context } from "./view.ts";

const SIDE = 15; // pixels of a cell

export class LargeMatrix {
  private readonly heat: Heat;
  readonly box: HTMLElement;

  constructor(context: Context) {
    this.heat = new Heat(
      "Attention weights",
      ({ row, column }) => chooseCell(context, row, column, "step"),
      ({ row, column }) => chooseCell(context, row, column, "choice"),
    );
    this.box = make("div", { class: "scroll stage" }, this.heat.element);
  }

  update(shown: Shown, { row, column, step }: State): void {
    this.heat.draw(shown, SIDE, { row, column }, shown.stepped ? step : -1);
  }
}
