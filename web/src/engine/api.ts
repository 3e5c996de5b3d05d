// What a page asks of the engine, and what the engine answers. The studio's server answers the same.

import type { Frame, Part } from "../data.ts";

/** One question to the engine. Everything but the text is optional and may be combined. */
export interface Ask {
  /** The source of a translator, else the text. */
  text: string;
  /** The second text of a model of pairs. */
  second?: string;
  /** A translator predicts this target instead of its own: its text. */
  target?: string;
  /** The ids that the model is made to generate first; decoding goes on after them, and a given target does not count. */
  forced?: number[];
  /** A language model reads only the first tokens of its text, so many; what is forced follows them. */
  prefix?: number;
  /** The size of the beam; 1 or absent: greedy. */
  beam?: number;
  /** The most new tokens. A language model without `limit` and `forced` predicts the tokens of the text alone. */
  limit?: number;
  /** Changes of heads, in this order. */
  heads?: HeadChange[];
  /** Changes of what may be looked at. */
  masks?: MaskChange;
  /** Places of the text whose token is replaced by the mask token: for a masked model. */
  hidden?: number[];
  /** Another score instead of the model's own: dot (÷√d off) or scaled_dot (÷√d on). */
  score?: "dot" | "scaled_dot";
  /** A cell whose computation is traced. */
  cell?: Cell;
  /** How many of the likeliest tokens a step has; default 5. 0: as many, and the whole distribution in `distributions`. */
  top?: number;
}

/** A head by its part, layer and number, each as in the page's data. */
export interface HeadName {
  part: string;
  layer: number;
  head: number;
}

/**
 * A change of the weights of one head at every read: off makes them 0; uniform gives each visible key the same; one-hot
 * gives all to the strongest key (the first of equals), or to `key`; row gives explicit weights to one query or to all.
 * Nothing is normalised afterwards, and masked keys stay 0: a query that may not look at `key` reads nothing. It is the
 * definition of regard/verbs/head_changes.py.
 */
export interface HeadChange extends HeadName {
  kind: "off" | "uniform" | "one-hot" | "row";
  /** one-hot: the key, instead of the strongest. */
  key?: number;
  /** row: the query (absent: all of them), and its weights. */
  row?: number;
  weights?: number[];
}

export interface MaskChange {
  /** Columns (places of the source, or of the text) that nobody may look at. */
  columns?: number[];
  /** Self-attention sees this many tokens to each side at most. */
  window?: number;
  /** Self-attention of an encoder sees earlier tokens alone (true), or that of a decoder all tokens (false). */
  causal?: boolean;
}

export interface Cell extends HeadName {
  row: number;
  column: number;
}

/** A predicted token, class, tag or fill. */
export interface Token {
  id: number;
  /** What it is called on an axis. */
  piece: string;
  /** What it adds to the output. */
  text: string;
  /** Its log-probability. */
  score: number;
}

export interface Answer {
  /** The predicted text; for a classifier the class; for a masked model the text with its places filled in. */
  text: string;
  /** The tokens that were predicted, or scored; for a classifier or tagger its classes. */
  tokens: Token[];
  /** The sum of their log-probabilities. */
  score: number;
  /** How many of them were given: forced, those of a target, or those of the text of a language model. */
  given: number;
  /** For each predicted token the likeliest ones, best first. */
  candidates: Token[][];
  /** For each predicted token the log-probability of every token; only if `top` is 0. */
  distributions?: Float32Array[];
  /** The ids of the source, or of the text. */
  source: { ids: number[]; pieces: string[]; unknown: number[]; special: number[] };
  parts: Part[];
  frames: Frame[];
  /** The likeliest tokens after the text: only of a language model that was not asked to go on. */
  next?: Token[];
  /** Whether the limit cut the answer; the end of a translator's answer is then a token that it did not predict. */
  cut: boolean;
  /** What the changes of heads do; only if there are any. */
  effect?: Effect;
  trace?: Trace;
  /** Remarks: the answer was cut at the limit, a text too long …. */
  notes: string[];
  milliseconds: number;
}

/** What changes of heads do. The original answer is the one without them; see engine/effect.ts for its definition. */
export interface Effect {
  /** The original answer, and that with the changes: of a language model the token after the text. */
  before: string;
  after: string;
  /** Whether they are different answers. */
  changed: boolean;
  /** The tokens of the original answer, with their log-probabilities without the changes. */
  tokens: Token[];
  /** Their log-probabilities with the changes. */
  scores: number[];
  /** The answer was given: it is a target, and not what the model writes by itself. */
  given?: true;
}

/** The computation of one cell of attention, line by line; every number can be computed again from those above it. */
export interface Trace {
  lines: TraceLine[];
}

export interface TraceLine {
  /** What is computed: "q", "k", "q ⊙ k", "Σ", "÷ √64", "+ bias", "mask", "softmax", "v", "weight · v", "Σ over keys", "W^O". */
  name: string;
  /** A sentence that says how, with the names of the lines it uses. */
  how: string;
  /** One number, or a vector drawn as a strip. */
  values: number[];
  /** Which of the values belongs to the cell; absent: all of them do. */
  at?: number;
  /** Names of the values, if they are tokens. */
  names?: string[];
}

/** A head, and what happens without it. */
export interface Damage extends HeadName {
  /** The change of the log-probability of the original answer, in sum. */
  difference: number;
  /** The new answer, if it differs from the original one. */
  text: string;
  changed: boolean;
}

/** Messages to the worker: the client sends one when the one before has its answer, or is cancelled (client.ts). */
export type ToWorker =
  | { type: "load"; model: import("../data.ts").LiveModel; weights: ArrayBuffer }
  | { type: "ask"; number: number; ask: Ask }
  | { type: "rank"; number: number; ask: Ask; kind: "off" | "uniform" | "one-hot" };

export type FromWorker =
  | { type: "ready"; milliseconds: number }
  | { type: "answer"; number: number; answer: Answer }
  | { type: "ranked"; number: number; damages: Damage[]; done: number; of: number }
  | { type: "error"; number: number; message: string };

/** A model that answers: in the page (a worker), or behind an address (the studio). */
export interface Engine {
  /** Rejects with a message for the reader of the page; a question that a later one overtook rejects with "cancelled". */
  ask(ask: Ask): Promise<Answer>;
  /** The heads that were tried so far are given to `progress`, worst first. */
  rank(ask: Ask, kind: "off" | "uniform" | "one-hot", progress: (damages: Damage[], of: number) => void): Promise<Damage[]>;
}
