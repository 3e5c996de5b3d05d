// The families of models that the engine computes, by their names in Python's tables; regard/verbs/living.py names what
// each of them does not support.

import type { LiveModel } from "../data.ts";
import { bert } from "./bert.ts";
import { gpt } from "./gpt.ts";
import type { Build, Model } from "./model.ts";
import { recurrentLm } from "./recurrent_lm.ts";
import { seq2seq } from "./seq2seq.ts";
import { structured } from "./structured.ts";
import { transformer } from "./transformer.ts";
import { Weights } from "./weights.ts";

export const FAMILIES: Record<string, Build> = {
  seq2seq,
  recurrent: recurrentLm,
  structured,
  transformer,
  gpt,
  bert,
};

export function modelOf(live: LiveModel, bytes: ArrayBuffer): Model {
  const build = FAMILIES[live.family];
  if (!build) throw new Error(`this page cannot compute a model of the family ${live.family}`);
  return build(live.config, new Weights(live.tensors, bytes, live.dtype), live.head);
}
