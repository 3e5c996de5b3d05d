// The engine of a page that can compute.

import type { LiveModel } from "./data.ts";
import type { Engine } from "./engine/api.ts";
import { startEngine } from "./engine/client.ts";

/** Starts the engine of the page, if the page has one: the model is in its data, the weights and the engine in elements. */
export function openEngine(live: LiveModel | undefined): Engine | null {
  const text = (id: string): string => document.getElementById(id)?.textContent ?? "";
  return live ? startEngine(live, text("weights").trim(), text("engine")) : null;
}
