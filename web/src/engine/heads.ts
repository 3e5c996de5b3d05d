// Heads: output layers above the states of a body (regard/heads.py): a class or labels of a text, a tag of each token.

import { ACTIVATIONS, beside, linear, mapped, matrix, row } from "./math.ts";
import type { Head, Matrix, Reader, Taps } from "./model.ts";
import type { Weights } from "./weights.ts";

type Features = (tokens: number[], segments: number[], taps: Taps) => Matrix;

/** A body under a head, which reads a whole text: one row of logits for it, or one for each token. */
export function headed(head: Head, weights: Weights, features: Features): Reader {
  const output = outputOf(head, weights);
  return {
    kind: "reader",
    read(tokens, segments, taps) {
      const states = features(tokens, segments, taps);
      return { logits: output(states), states };
    },
  };
}

/** W₂ f(W₁ p + b₁) + b₂ of the pooled states p, where the hidden layer may be missing; or W x + b at each token. */
function outputOf({ name, config }: Head, weights: Weights): (states: Matrix) => Matrix {
  const out = weights.matrix("head.out.weight");
  const bias = weights.has("head.out.bias") ? weights.vector("head.out.bias") : null;
  if (name === "tag") return (states) => linear(states, out, bias);
  if (name !== "class" && name !== "labels") throw new Error(`the page does not compute a head of the kind ${name}`);
  const pool = String(config.pool), hidden = String(config.hidden);
  if (hidden === "none") return (states) => linear(pooled(states, pool), out, bias);
  const weight = weights.matrix("head.hidden.weight"), add = weights.vector("head.hidden.bias");
  return (states) => linear(mapped(linear(pooled(states, pool), weight, add), ACTIVATIONS[hidden]), out, bias);
}

/** One vector for the states of a text: the first, the last, their mean or maximum; concat: last, max and mean. */
export function pooled(states: Matrix, pool: string): Matrix {
  if (pool === "concat") return beside(...["last", "max", "mean"].map((one) => pooled(states, one)));
  const found = matrix(1, states.width), { data } = found;
  if (pool === "first" || pool === "last") {
    data.set(row(states, pool === "first" ? 0 : states.rows - 1));
    return found;
  }
  for (let i = 0; i < states.width; i++) {
    let total = 0, most = -Infinity;
    for (let r = 0; r < states.rows; r++) {
      total += states.data[r * states.width + i];
      most = Math.max(most, states.data[r * states.width + i]);
    }
    data[i] = pool === "mean" ? total / states.rows : most;
  }
  return found;
}
