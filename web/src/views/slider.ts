// A slider whose value is in the address.

import { make } from "../core/dom.ts";
import type { State } from "../core/store.ts";
import type { Context } from "./view.ts";

interface Range { min: number; max: number; step: number; first: number }

/** `key` names the value in the address; one that is `first` is not written there. */
export function slider({ store }: Context, key: string, label: string, { min, max, step, first }: Range, write: (value: number) => string): { element: HTMLElement; update(state: State): void } {
  const input = make("input", { type: "range", min, max, step, value: first }), shown = make("output", {});
  input.addEventListener("input", () => {
    const { [key]: _, ...more } = store.state.more, value = Number(input.value);
    store.set({ more: value === first ? more : { ...more, [key]: input.value } }, "step");
  });
  const element = make("label", { class: "choice slider" }, make("span", {}, label), input, shown);
  return {
    element,
    update({ more }) {
      input.value = more[key] ?? String(first);
      shown.textContent = write(Number(input.value));
      input.setAttribute("aria-valuetext", shown.textContent);
    },
  };
}
