// The choices of what is shown: part, layer, heads, scale, special tokens.

import type { Context } from "../views/view.ts";
import { button, fill, make } from "./dom.ts";
import { COLOURS, percent } from "./scale.ts";
import { strongest } from "./scores.ts";
import { MEAN } from "./store.ts";

const ADDS = "Shift+click adds or removes a head";

export class Controls {
  private parts = make("div", { class: "group parts", role: "group", "aria-label": "Part" });
  private layer = make("select", { class: "layer" });
  private layers = make("label", { class: "choice" }, "Layer ", this.layer);
  private heads = make("div", { class: "heads", role: "group", "aria-label": "Heads: click to show one, Shift+click to add one" });
  private fitted = button("Fitted scale", () => this.context.store.set({ fixed: false }), { "data-scale": "fitted", title: "Scale from 0 to the largest weight shown (s)" }, true);
  private fixed = button("0–1", () => this.context.store.set({ fixed: true }), { "data-scale": "fixed", title: "Scale from 0 to 1 (s)" }, false);
  private special = button("Hide special tokens", () => this.context.store.set({ hide: !this.context.store.state.hide }), { class: "special", title: "Tokens such as <bos> and [SEP] (x)" }, false);
  readonly element: HTMLElement;

  constructor(private readonly context: Context, ...more: HTMLElement[]) {
    const scales = make("div", { class: "group scales", role: "group", "aria-label": "Colour scale" }, this.fitted, this.fixed);
    this.element = make("div", { class: "controls" }, this.parts, this.layers, scales, this.special, ...more, this.heads);
    let pointed = false; // after a choice with the mouse, the arrow keys step again; after one with keys, they stay in the menu
    this.layer.addEventListener("pointerdown", () => { pointed = true; });
    this.layer.addEventListener("keydown", (event) => {
      pointed = false;
      if (event.key === "Escape") this.layer.blur();
    });
    this.layer.addEventListener("change", () => {
      this.goLayer(Number(this.layer.value));
      if (pointed) this.layer.blur();
    });
    const several = (): boolean => this.drawn.some(({ layers }) => layers.length > 1);
    const headed = (): boolean => this.drawn.some(({ layers }) => layers.some(({ heads }) => heads.length > 1));
    const { store } = context;
    context.keys?.add(
      { keys: ["s"], help: "colour scale", act: () => store.set({ fixed: !store.state.fixed }) },
      { keys: ["x"], help: "hide special tokens", offered: () => this.hideable, when: () => this.hideable, act: () => store.set({ hide: !store.state.hide }) },
      { keys: ["p", "P"], help: "next or previous part", offered: () => this.drawn.length > 1, act: (key) => this.goPart(key === "p" ? 1 : -1) },
      { keys: ["l", "L"], help: "next or previous layer", offered: several, act: (key) => this.goLayer(store.state.layer + (key === "l" ? 1 : -1)) },
      { keys: ["h", "H"], help: "next or previous head", offered: headed, act: (key) => this.goHead(key === "h" ? 1 : -1) },
    );
  }

  private get drawn() {
    return this.context.session.drawn.parts;
  }

  private get hideable(): boolean {
    return this.drawn.some(({ special }) => special && special.rows.length + special.columns.length > 0);
  }

  update(): void {
    const { store } = this.context, { state } = store, { part, hidden } = this.context.shown();
    this.parts.hidden = this.drawn.length < 2;
    fill(this.parts, this.drawn.map((one, i) => button(one.name || "all", () => this.goPart(i - store.state.part), {}, i === state.part)));
    this.layers.hidden = part.layers.length < 2;
    const options = part.layers.map((one, i) => make("option", { value: i }, one.number === null ? one.label : String(one.number)));
    this.layer.replaceChildren(...options, make("option", { value: MEAN }, "mean of all"));
    this.layer.value = String(state.layer);
    for (const [one, on] of [[this.fitted, !state.fixed], [this.fixed, state.fixed]] as const) one.setAttribute("aria-pressed", String(on));
    this.special.hidden = !this.hideable;
    this.special.setAttribute("aria-pressed", String(state.hide));
    this.special.textContent = hidden ? `Special tokens hidden: ${percent(hidden.weight)} of the weight` : "Hide special tokens";
    const own = state.layer === MEAN ? [] : part.layers[state.layer].heads;
    this.heads.hidden = own.length < 2;
    const chips = own.map((number, h) => button(String(number), (event) => this.pick(h, event.shiftKey), { "--hue": `var(--h${h % COLOURS})`, title: ADDS }, state.heads.includes(h)));
    const every = button("mean", () => this.pick(null, false), { title: "The mean of all heads; as lines, all heads" }, !state.heads.length);
    fill(this.heads, [make("span", {}, "Head"), ...chips, every]);
  }

  private pick(head: number | null, more: boolean): void {
    const { heads } = this.context.store.state;
    if (head === null) this.context.store.set({ heads: [] });
    else if (!more) this.context.store.set({ heads: [head] });
    else this.context.store.set({ heads: heads.includes(head) ? heads.filter((one) => one !== head) : [...heads, head] });
  }

  private goPart(by: number): void {
    const { state } = this.context.store, to = (state.part + by + this.drawn.length) % this.drawn.length;
    const [layer, head] = strongest(this.drawn[to]);
    this.context.store.set({ part: to, layer, heads: this.drawn[to].layers[layer].heads.length > 1 ? [head] : [], row: Math.min(state.row, this.drawn[to].rows.length - 1), column: 0 });
  }

  /** The layers in turn, then their mean. */
  private goLayer(to: number): void {
    const { layers } = this.context.shown().part, { state } = this.context.store, count = layers.length;
    if (count < 2) return;
    const layer = to > count - 1 ? MEAN : to < MEAN ? count - 1 : to;
    this.context.store.set({ layer, heads: layer === MEAN ? [] : state.heads.filter((h) => h < layers[layer].heads.length) });
  }

  /** The heads in turn, then their mean. */
  private goHead(by: number): void {
    const { state } = this.context.store;
    const count = state.layer === MEAN ? 0 : this.context.shown().part.layers[state.layer].heads.length;
    if (count < 2) return;
    const next = (state.heads.length === 1 ? state.heads[0] : by > 0 ? -1 : count) + by;
    this.pick(next < 0 || next >= count ? null : next, false);
  }
}
