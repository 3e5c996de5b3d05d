// Models that read a text in both directions at once: BERT, RoBERTa, ALBERT, ELECTRA (regard/models/bert.py).

import { TokenEmbedding } from "./embedding.ts";
import { headed } from "./heads.ts";
import { ACTIVATIONS, linear, mapped } from "./math.ts";
import type { Build, Matrix, Taps } from "./model.ts";
import { normAt } from "./norms.ts";
import { shapeOf, type Shape } from "./shape.ts";
import { Stack } from "./stack.ts";
import type { Weights } from "./weights.ts";

interface Settings extends Shape {
  first_position: number;
  head_activation: string;
}

/** Embedding and encoder; above them BERT's own output layer for masked tokens, or a head. */
export const bert: Build = (config, weights, head) => {
  const shape = shapeOf(config) as Settings, at = head ? "body." : "";
  const embedding = new TokenEmbedding(weights, `${at}embedding`, shape, 1, shape.first_position);
  const stack = new Stack(weights, `${at}stack`, shape, "encoder");
  const features = (tokens: number[], segments: number[], taps: Taps): Matrix =>
    stack.run(embedding.vectors(tokens, 0, segments), 0, [], [], taps).states;
  if (head) return headed(head, weights, features);
  const output = masked(shape, weights, embedding.tokens);
  return {
    kind: "reader",
    read(tokens, segments, taps) {
      const states = features(tokens, segments, taps);
      return { logits: output(states), states };
    },
  };
};

/** The logits of the vocabulary: E norm(f(W x + b)) + c, where E is the table of the token embeddings if it is shared. */
function masked(shape: Settings, weights: Weights, tokens: Matrix): (x: Matrix) => Matrix {
  const dense = weights.matrix("masked.dense.weight"), bias = weights.vector("masked.dense.bias");
  const f = ACTIVATIONS[shape.head_activation || shape.activation];
  const norm = normAt(weights, "masked.norm", "layer", shape.epsilon);
  const output = weights.has("masked.weight") ? weights.matrix("masked.weight") : tokens;
  const offset = weights.vector("masked.bias");
  return (x) => linear(norm(mapped(linear(x, dense, bias), f)), output, offset);
}
