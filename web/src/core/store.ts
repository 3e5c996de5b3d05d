// The state of a figure: what is chosen. Views read it and change it here alone, and are told of each change.

import type { Ask } from "../engine/api.ts";

export const MEAN = -1; // the value of `layer` for the mean over all layers

export interface State {
  /** The name of the view in the main column, and of the panel in the side column. */
  view: string;
  panel: string;
  /** Places among the parts and among the layers of the part. */
  part: number;
  layer: number;
  /** Places among the heads of the layer; none: the mean of all. */
  heads: number[];
  /** The colour scale reaches from 0 to 1, instead of fitting what is shown. */
  fixed: boolean;
  /** Special tokens are hidden. */
  hide: boolean;
  step: number;
  row: number;
  column: number;
  /** What the engine is asked, where it differs from the page as it was made. */
  ask: Partial<Ask>;
  /** What views keep in the address: by "view.name". */
  more: Record<string, string>;
}

/** A choice is an entry of the browser's history; a step replaces the entry; a place of the cursor is not in the address. */
export type Weight = "choice" | "step" | "none";
export type Listener = (state: State, weight: Weight) => void;

export class Store {
  private listeners: Listener[] = [];

  constructor(public state: State) {}

  set(change: Partial<State>, weight: Weight = "choice"): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener(this.state, weight);
  }

  subscribe(listener: Listener): void {
    this.listeners.push(listener);
  }
}
