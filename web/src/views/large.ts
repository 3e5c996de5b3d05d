// The matrix of many cells: on a canvas, because a browser lays out a hundred thousand cells in a second at best.

import { Heat } from "../core/heat.ts";
import { make } from "../core/dom.ts";
import type { Shown } from "../core/shown.ts";
import type { State } from "../core/store.ts";
import { type Context, goStep } from "./view.ts";

const SIDE = 15; // pixels of a cell

export class LargeMatrix {
  private readonly heat: Heat;
  readonly box: HTMLElement;

  constructor(context: Context) {
    const stepped = (): boolean => context.shown().stepped;
    this.heat = new Heat(
      "Attention weights",
      ({ row, column }) => (stepped() ? context.store.set({ step: row, row, column }, "step") : context.store.set({ row, column }, "none")),
      ({ row, column }) => {
        if (!stepped()) return;
        context.store.set({ column }, "none");
        goStep(context, row);
      },
    );
    this.box = make("div", { class: "scroll stage" }, this.heat.element);
  }

  update(shown: Shown, { row, column, step }: State): void {
    this.heat.draw(shown, SIDE, { row, column }, shown.stepped ? step : -1);
  }
}
