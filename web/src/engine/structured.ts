// Structured self-attention (Lin et al. 2017): regard/models/structured.py.

import { read } from "./attention.ts";
import { headed } from "./heads.ts";
import { dot, linear, mapped, norm, row } from "./math.ts";
import type { Build, Reader } from "./model.ts";
import { product, Stack } from "./recurrent.ts";
import { embedded } from "./seq2seq.ts";

/** A = softmax(W₂ tanh(W₁ Hᵀ)), M = A H; the rows of W₂ are queries (hops). */
export const structured: Build = (config, weights, head) => {
  const at = head ? "body." : "", embedding = weights.matrix(`${at}embedding.weight`);
  const encoder = new Stack(weights, `${at}encoder`, String(config.cell));
  if (head) return headed(head, weights, (tokens, _, taps) => encoder.read(embedded(embedding, tokens), taps).states);
  const model: Reader = {
    kind: "reader",
    read(tokens, _segments, taps) {
      const { states } = encoder.read(embedded(embedding, tokens), taps);
      const keys = mapped(linear(states, weights.matrix("key.weight")), Math.tanh), hops = weights.matrix("hops");
      const contexts = read({
        part: "encoder",
        layer: 0,
        heads: 1,
        first: 0,
        queries: hops.rows,
        keys: states.rows,
        logits(_head, query, traced) {
          const q = row(hops, query), j = traced ? taps.cell!.column : 0;
          if (traced) {
            const products = Array.from(q, (one, d) => one * row(keys, j)[d]);
            taps.trace({ name: "q", how: "the learned query of the hop", values: [...q] });
            taps.trace({ name: "k", how: "tanh of the matrix W₁ times the state of the token", values: [...row(keys, j)] });
            taps.trace({ name: "q ⊙ k", how: "q times k, number by number", values: products });
            taps.trace({ name: "Σ", how: "the sum of q ⊙ k", values: [products.reduce((a, b) => a + b, 0)] });
          }
          return Array.from({ length: keys.rows }, (_, at) => dot(q, row(keys, at)));
        },
        visible: () => true,
        value: (_, key) => row(states, key),
        width: states.width,
        norm: (_, key) => norm(row(states, key)),
      }, taps);
      const hidden = product(contexts, weights.matrix("hidden.weight"), weights.vector("hidden.bias")).data.map((one) => Math.max(0, one));
      return { logits: product(hidden, weights.matrix("readout_.weight"), weights.vector("readout_.bias")), states };
    },
  };
  return model;
};
