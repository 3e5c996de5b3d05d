// The Transformer: an encoder, and a decoder that attends to it (Vaswani et al. 2017). Marian and T5 are settings.

import { TokenEmbedding } from "./embedding.ts";
import { headed } from "./heads.ts";
import { linear, mapped } from "./math.ts";
import type { Build, Matrix, State, Taps } from "./model.ts";
import type { Memory } from "./multihead.ts";
import { shapeOf, type Shape } from "./shape.ts";
import { Stack } from "./stack.ts";

/** What the decoder has read, and the memory of the source for each of its layers. */
interface Read extends State {
  readonly memories: readonly Memory[];
  readonly sources: readonly Memory[];
}

interface Settings extends Shape {
  decoder_layers: number;
  decoder_heads: number;
  scaled: boolean;
  readout_scale: number;
}

export const transformer: Build = (config, weights, head) => {
  const shape = shapeOf(config) as Settings, at = head ? "body." : "";
  const scale = shape.scaled ? Math.sqrt(shape.width) : 1;
  const embedding = new TokenEmbedding(weights, `${at}embedding`, shape, scale);
  const shared = !weights.has(`${at}source_embedding.tokens.weight`);
  const sourceEmbedding = shared ? embedding : new TokenEmbedding(weights, `${at}source_embedding`, shape, scale);
  const encoder = new Stack(weights, `${at}encoder`, shape, "encoder");
  const decoderShape = { ...shape, layers: shape.decoder_layers || shape.layers, heads: shape.decoder_heads || shape.heads };
  const decoder = new Stack(weights, `${at}decoder`, decoderShape, "decoder");

  function start(source: number[], taps: Taps): Read {
    const { states } = encoder.run(sourceEmbedding.vectors(source), 0, [], [], taps);
    return { at: 0, memories: [], sources: decoder.sources(states, taps) };
  }

  function read(tokens: number[], { at, memories, sources }: Read, taps: Taps): { states: Matrix; state: Read } {
    const found = decoder.run(embedding.vectors(tokens, at), at, memories, sources, taps);
    return { states: found.states, state: { at: at + tokens.length, memories: found.memories, sources } };
  }

  if (head) {
    // Both sides read the text; the decoder begins with token 0 and is one token behind (Lewis et al. 2020, §3.1).
    return headed(head, weights, (tokens, _, taps) =>
      read([0, ...tokens.slice(0, -1)], start(tokens, taps), taps).states,
    );
  }
  const output = weights.has("readout_.weight") ? weights.matrix("readout_.weight") : embedding.tokens;
  const bias = weights.has("readout_bias") ? weights.vector("readout_bias") : null;
  const factor = shape.readout_scale || shape.width ** -0.5;
  return {
    kind: "generator",
    start,
    advance(tokens, before, taps) {
      const { states, state } = read(tokens, before as Read, taps);
      const logits = linear(factor === 1 ? states : mapped(states, (one) => one * factor), output, bias);
      return { logits, states, before: null, state };
    },
  };
};
