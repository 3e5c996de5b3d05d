// The engine of a page that can compute.

import type { LiveModel } from "./data.ts";
import type { Engine } from "./engine/api.ts";

export type StartEngine = (live: LiveModel, weights: string, engine: string) => Engine;

/** Starts the engine of the page, if the page has one: the model is in its data, the weights and the engine in elements. */
export function openEngine(live: LiveModel | undefined, start: StartEngine | null): Engine | null {
  const text = (id: string): string => document.getElementById(id)?.textContent ?? "";
  return live && start ? start(live, text("weights").trim(), text("engine")) : null;
}
