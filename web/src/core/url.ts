// The state in the hash of the address: a link opens what is shown, and Back undoes a choice. Only what differs from
// the state in which the page opens is written.

import type { Part } from "../data.ts";
import { question } from "./question.ts";
import { MEAN, type State, type Store } from "./store.ts";

const layerName = (part: Part, at: number): string => (at === MEAN ? "mean" : String(part.layers[at].number ?? at));

/** The state as the hash of an address, without "#". */
export function toHash(state: State, first: State, parts: Part[]): string {
  const found = new URLSearchParams();
  const part = parts[state.part];
  const other = state.part !== first.part;
  if (other) found.set("part", part.name || String(state.part));
  if (other || state.layer !== first.layer) found.set("layer", layerName(part, state.layer));
  if (other || state.layer !== first.layer || String(state.heads) !== String(first.heads)) {
    const numbers = part.layers[state.layer]?.heads;
    if (numbers) found.set("heads", state.heads.map((at) => numbers[at]).join(",") || "mean");
  }
  if (state.view !== first.view) found.set("view", state.view);
  if (state.panel !== first.panel) found.set("panel", state.panel);
  if (state.fixed !== first.fixed) found.set("scale", state.fixed ? "fixed" : "fitted");
  if (state.hide !== first.hide) found.set("special", state.hide ? "hidden" : "shown");
  if (state.step !== first.step) found.set("step", String(state.step + 1));
  const ask = JSON.stringify(state.ask);
  if (ask !== JSON.stringify(first.ask)) found.set("ask", ask);
  for (const [name, value] of Object.entries(state.more)) found.set(name, value);
  return found.toString();
}

/** The state of an address. What names nothing is as when the page opens: an address is not to be trusted. */
export function fromHash(hash: string, first: State, parts: Part[]): State {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { ...first, more: {} };
  const known = ["part", "layer", "heads", "view", "panel", "scale", "special", "step", "ask"];
  const place = parts.findIndex((part, at) => (part.name || String(at)) === given.get("part"));
  if (place >= 0) state.part = place;
  const { layers } = parts[state.part];
  if (given.get("layer") === "mean" && layers.length > 1) [state.layer, state.heads] = [MEAN, []];
  else {
    const layer = layers.findIndex((_, at) => layerName(parts[state.part], at) === given.get("layer"));
    if (layer >= 0) state.layer = layer;
    else if (state.layer >= layers.length) state.layer = 0;
  }
  const numbers = layers[state.layer]?.heads ?? [];
  const named = (given.get("heads")?.split(",") ?? []).map((one) => numbers.indexOf(Number(one || NaN))).filter((at) => at >= 0);
  if (given.get("heads") === "mean") state.heads = [];
  else state.heads = (named.length ? named : state.heads).filter((at) => at < numbers.length);
  state.view = given.get("view") ?? first.view;
  state.panel = given.get("panel") ?? first.panel;
  if (given.has("scale")) state.fixed = given.get("scale") === "fixed";
  if (given.has("special")) state.hide = given.get("special") === "hidden";
  const step = Number(given.get("step"));
  if (Number.isInteger(step) && step > 0) state.step = step - 1;
  state.ask = question(given.get("ask") ?? "") ?? first.ask;
  for (const [name, value] of given) if (!known.includes(name)) state.more[name] = value;
  return state;
}

/** Keeps the address and the state equal. `parts` are those that are drawn now. */
export function follow(store: Store, first: State, parts: () => Part[]): void {
  const write = (hash: string, replace: boolean): void => {
    try {
      history[replace ? "replaceState" : "pushState"](null, "", hash ? `#${hash}` : location.pathname + location.search);
    } catch {
      // a frame without an address of its own, in a notebook, has no history to write
    }
  };
  let reading = false;
  store.subscribe((state, weight) => {
    if (reading || weight === "none") return;
    const hash = toHash(state, first, parts());
    if (hash !== location.hash.replace(/^#/, "")) write(hash, weight === "step");
  });
  const read = (): void => {
    reading = true;
    store.set(fromHash(location.hash, first, parts()), "choice");
    reading = false;
  };
  addEventListener("popstate", read);
}
