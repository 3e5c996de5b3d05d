// What every family of the engine is: the protocol of `advance` of the Python models, for one text at a time.

import type { Cell, TraceLine } from "./api.ts";
import type { Weights } from "./weights.ts";

/** A matrix of floats: rows × width, row by row. */
export interface Matrix {
  rows: number;
  width: number;
  data: Float32Array;
}

/** One read of an attention: queries look at keys. The same indices as in Python: heads × queries × keys. */
export interface Read {
  /** encoder, decoder, cross, or empty for a model with one kind of attention. */
  part: string;
  layer: number;
  heads: number;
  /** The place of the first query: a decoder that reads token by token has one row at each read. */
  first: number;
  queries: number;
  keys: number;
  /** heads × queries × keys, after the changes. */
  weights: Float32Array;
  /** queries × keys: 1 where a query may look. */
  visible: Uint8Array;
  /** heads × queries × width: the sum of the values, weighted. */
  contexts: Float32Array;
  /** heads × keys: the norm of each value after the output projection of its head. */
  norms: Float32Array;
}

/** What one question listens to and changes. A model calls it at each read; it holds no state of the model. */
export interface Taps {
  /** Whether a query may look at a key, besides the mask of the model: hides columns, narrows a window. */
  visible(part: string, query: number, key: number, own: boolean): boolean;
  /** The weights of one head and one query after the softmax, changed in place. */
  change(part: string, layer: number, head: number, query: number, weights: Float32Array, visible: Uint8Array): void;
  /** After a read. */
  read(read: Read): void;
  /** Whether the computation of a cell is traced, and where its lines go. */
  cell: Cell | null;
  trace(line: TraceLine): void;
  /** The score of the question instead of the model's own; null: the model's own. */
  score: "dot" | "scaled_dot" | null;
  /** Throws if the question was overtaken or took too long. Called between layers. */
  breathe(): void;
}

/** The state of a decoder: what it has read. It is never changed in place, so that beams can share it. */
export interface State {
  /** The number of tokens read so far. */
  readonly at: number;
}

/** A model that generates: a translator or a language model. */
export interface Generator<S extends State = State> {
  kind: "generator";
  /** Reads the source (ids; empty for a language model): the state before the first target token. */
  start(source: number[], taps: Taps): S;
  /** Reads some tokens from a state on: their states and logits, and the state after them. */
  advance(tokens: number[], state: S, taps: Taps): { logits: Matrix; states: Matrix; before: Matrix | null; state: S };
}

/** A model that reads a whole text: masked, class, labels or tag. */
export interface Reader {
  kind: "reader";
  /** Reads the ids of a text with their segments: the logits, one row for a text or for each token, and the states. */
  read(tokens: number[], segments: number[], taps: Taps): { logits: Matrix; states: Matrix };
}

export type Model = Generator | Reader;

/** Builds the model of a family from its settings and weights. */
export type Build = (config: Record<string, unknown>, weights: Weights, head: Head | null) => Model;

export interface Head {
  name: string;
  config: Record<string, unknown>;
}
