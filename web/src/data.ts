// The data of a page. Python writes it as JSON (regard/render/page_data.py), and the engine makes the same from an answer,
// so that one piece of code draws both. A page whose data has another version says so and draws nothing.

import type { HeadChange } from "./engine/api.ts";

export const VERSION = 1;

/** The data of one page: what is drawn, and, if the page can compute, the model. */
export interface PageData {
  version: number;
  /** The parts of attention with their layers, first the one that is shown first. */
  parts: Part[];
  /** The decoding steps; empty if there are none. */
  frames: Frame[];
  /** Lines below this part of the colour scale are not drawn. */
  faintest: number;
  /** The most lines of a picture. */
  most: number;
  /** The end of the colour scale, if several figures share one. */
  vmax?: number;
  /** How the page was made, for "copy as Python". */
  origin?: Origin;
  /** The model, if the page can compute; its weights are in an element of their own. */
  live?: LiveModel;
  /** Why the page cannot compute, if it cannot. */
  still?: string;
}

/** The run and the texts of a page, and how the model read them. */
export interface Origin {
  run: string;
  texts: string[];
  target: string | null;
  /** The size of the beam with which a translator searched for its target; 1: greedy. */
  beam: number;
  /** The heads that were changed. */
  heads: HeadChange[];
  /** The part, and the numbers of the layer and head, that the page shows first. */
  opens: { part?: string; layer?: number; head?: number };
}

/** One kind of attention: encoder, decoder or cross; a model with one kind has one part without a name. */
export interface Part {
  name: string;
  rows: string[];
  columns: string[];
  /** Short names of the tokens for the axes. */
  labels: Axes<string[]>;
  /** The width of the widest label in letters. */
  widest: Axes<number>;
  /** Whether the headings of the columns stand upright. */
  tall: boolean;
  /** The places of tokens that are not in the vocabulary. */
  unknown: Axes<number[]>;
  /** The places of special tokens: they can be hidden. */
  special?: Axes<number[]>;
  /** Whether the rows are the decoding steps. */
  steps: boolean;
  /** The panels of a decoding step in the order in which the model computes them: what it shows, title, note. */
  chain: [Shows, string, string][];
  /** How to read the matrix, and the lines. */
  captions: [string, string];
  layers: Layer[];
}

export interface Axes<T> {
  rows: T;
  columns: T;
}

export type Shows = "before" | "state" | "weights" | "context" | "logits";

export interface Layer {
  label: string;
  /** Among the layers of its part, from 0; null: it is the only one. */
  number: number | null;
  /** The numbers of its heads. */
  heads: number[];
  /** (heads, rows, columns): numbers, or 16-bit integers in base 64; an array of floats from the engine. */
  weights: (number | null)[][][] | string | Float32Array;
  /** For each row the ranges [first, end) of columns that it may not look at; null: not known. */
  masked: [number, number][][] | null;
  /** (heads, rows, width): the sum of the values, weighted; null: not stored. */
  contexts: (number | null)[][][] | null;
  /** (heads, columns): the norm of each value after the output projection of its head; absent: not known. */
  norms?: (number | null)[][] | Float32Array;
}

export interface Frame {
  token: string;
  /** What the token adds to the output, with its spaces. */
  text: string;
  /** The likeliest tokens, best first: piece, logit, probability. */
  top: [string, number | null, number | null][];
  state: (number | null)[];
  before: (number | null)[] | null;
}

/** A model that the engine computes. Python writes it (regard/verbs/living.py), with all that follows from the model. */
export interface LiveModel {
  /** The family, by its name in the table MODELS of Python: seq2seq, transformer, gpt, bert, rnn …. */
  family: string;
  /** The settings of the model, as recipe.json has them. */
  config: Record<string, unknown>;
  /** The head above the body: its name in the table HEADS and its settings; null: the family's own output layer. */
  head: { name: string; config: Record<string, unknown> } | null;
  /** What the model predicts. */
  predicts: "target" | "next" | "masked" | "class" | "labels" | "tag";
  /** The tokenizer of the text, or of the target; and that of the source. */
  tokenizer: TokenizerData;
  source: TokenizerData | null;
  /** The names of the classes or tags. */
  names: string[];
  /** The probability from which a text gets a label, of a model that gives several. */
  threshold: number;
  /** Whether a text has two parts. */
  pairs: boolean;
  /** The most tokens of a text or source, special tokens not counted; null: any number. */
  longest: number | null;
  /** The most tokens of an answer or target, its end included; null: any number. */
  limit: number | null;
  /** The names of the rows of an attention matrix; empty: the rows are the tokens of the text. */
  rows: string[];
  /** The panels of a decoding step, as a part has them. */
  chain: Part["chain"];
  /** How to read the matrix and the lines, by the name of the part. */
  captions: Record<string, Part["captions"]>;
  /** Tensors by their names in the state of the module: shape, and offset in numbers. */
  tensors: Record<string, { shape: number[]; offset: number }>;
  dtype: "float32" | "float16";
  parameters: number;
}

export interface TokenizerData {
  /** char, word, word-eos, word-lower, bpe, byte-bpe …: see KINDS in regard/data/tokenizers.py. */
  kind: string;
  /** The tokens by id, as tokenizer.json has them. */
  vocab: string[];
  /** The merges of byte-pair encoding, best first; empty for other kinds. */
  merges: [string, string][];
  /** What each token is called on an axis, by id. */
  display: string[];
  /** The text that each token adds to an output, by id; the bytes 0x80 … 0xFF that are no text are \uDC80 … \uDCFF. */
  surfaces: string[];
  special: {
    pad: number;
    bos: number | null;
    eos: number | null;
    unk: number | null;
    mask: number | null;
    prefix: number | null;
    suffix: number | null;
    separator: number[];
    second_segment: number;
  };
  /** Tokens that decoding never produces. */
  forbidden: number[];
  direction: "forward" | "backward" | "both";
}

/** The attention of the words of one caption over the cells of an image. */
export interface ImageData {
  rows: number;
  columns: number;
  /** For each word the weights of the cells, row by row, divided by the largest one. */
  maps: (number | null)[][];
  /** Where each word looks, as a sentence. */
  said: string[];
}
