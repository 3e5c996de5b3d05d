// Recurrent cells by their equations: the definitions of regard/layers/cells.py.

import { sigmoid } from "./math.ts";

/** The parts of the state of one layer: h, or h and c. */
export type Parts = Float32Array[];

/** Given the products x = W input + b and h = U state + b', with the gates one after the other: the next parts. */
type Update = (x: Float32Array, h: Float32Array, before: Parts) => Parts;

export const PARTS: Record<string, number> = { rnn: 1, lstm: 2, gru: 1 };

export const CELLS: Record<string, Update> = {
  /** h' = tanh(x + h) (Elman 1990) */
  rnn(x, h) {
    return [x.map((one, i) => Math.tanh(one + h[i]))];
  },

  /** i, f, o = σ(x + h), g = tanh(x + h); c' = f c + i g, h' = o tanh(c') (Hochreiter & Schmidhuber 1997) */
  lstm(x, h, [, c]) {
    const width = c.length, next = new Float32Array(width), output = new Float32Array(width);
    for (let d = 0; d < width; d++) {
      const [i, f, g, o] = [0, 1, 2, 3].map((gate) => x[gate * width + d] + h[gate * width + d]);
      next[d] = sigmoid(f) * c[d] + sigmoid(i) * Math.tanh(g);
      output[d] = sigmoid(o) * Math.tanh(next[d]);
    }
    return [output, next];
  },

  /** r, z = σ(x + h), n = tanh(x + r h); h' = (1 − z) n + z h (Cho et al. 2014; r after the product) */
  gru(x, h, [before]) {
    const width = before.length, next = new Float32Array(width);
    for (let d = 0; d < width; d++) {
      const r = sigmoid(x[d] + h[d]), z = sigmoid(x[width + d] + h[width + d]);
      const n = Math.tanh(x[2 * width + d] + r * h[2 * width + d]);
      next[d] = (1 - z) * n + z * before[d];
    }
    return [next];
  },
};
