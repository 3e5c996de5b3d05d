// Language models that read from left to right: GPT, GPT-2 and GPT-3 (regard/models/gpt.py).

import { TokenEmbedding } from "./embedding.ts";
import { headed } from "./heads.ts";
import { linear } from "./math.ts";
import type { Build, State } from "./model.ts";
import type { Memory } from "./multihead.ts";
import { shapeOf } from "./shape.ts";
import { Stack } from "./stack.ts";

interface Read extends State {
  readonly memories: readonly Memory[];
}

/** Embedding, causal stack, output layer; under a head, the states of the whole text. */
export const gpt: Build = (config, weights, head) => {
  const shape = shapeOf(config), at = head ? "body." : "";
  const embedding = new TokenEmbedding(weights, `${at}embedding`, shape, config.scaled ? Math.sqrt(shape.width) : 1);
  const stack = new Stack(weights, `${at}stack`, shape, "decoder");
  const nothing: Read = { at: 0, memories: [] };
  if (head) {
    return headed(head, weights, (tokens, _, taps) =>
      stack.run(embedding.vectors(tokens), 0, [], [], taps).states,
    );
  }
  const output = weights.has("readout_.weight") ? weights.matrix("readout_.weight") : embedding.tokens;
  return {
    kind: "generator",
    start: () => nothing,
    advance(tokens, state, taps) {
      const { at, memories } = state as Read;
      const found = stack.run(embedding.vectors(tokens, at), at, memories, [], taps);
      const after: Read = { at: at + tokens.length, memories: found.memories };
      return { logits: linear(found.states, output), states: found.states, before: null, state: after };
    },
  };
};
