// A slider whose value is in the address.

import { make } from "../core/dom.ts";
import type { State } from "../core/store.ts";
import type { Context } from "./view.ts";

export interface Range { min: number; max: number; step: number; first: number }

/** The value of a slider in the address; one that is none is the first. */
export function valueOf({ more }: State, key: string, { min, max, first }: Range): number {
  const value = Number(more[key] ?? NaN);
  return value >= min && value <= max ? value : first;
}

/** `key` names the value in the address; one that is `first` is not written there. */
export function slider({ store }: Context, key: string, label: string, range: Range, write: (value: number) => string): { element: HTMLElement; update(state: State): void } {
  const { min, max, step, first } = range;
  const input = make("input", { type: "range", min, max, step, value: first }), shown = make("output", {});
  input.addEventListener("input", () => {
    const { [key]: _, ...more } = store.state.more, value = Number(input.value);
    store.set({ more: value === first ? more : { ...more, [key]: input.value } }, "step");
  });
  const element = make("label", { class: "choice slider" }, make("span", {}, label), input, shown);
  return {
    element,
    update(state) {
      const value = valueOf(state, key, range);
      input.value = String(value);
      shown.textContent = write(value);
      input.setAttribute("aria-valuetext", shown.textContent);
    },
  };
}
