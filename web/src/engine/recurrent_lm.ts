// Recurrent language models: regard/models/recurrent_lm.py. They have no attention.

import { headed } from "./heads.ts";
import { linear, row, stacked } from "./math.ts";
import type { Build, Generator, Matrix, State } from "./model.ts";
import { Stack, top, type Hidden } from "./recurrent.ts";
import { embedded } from "./seq2seq.ts";

interface LmState extends State {
  readonly hidden: Hidden;
}

/** Embedding, recurrent stack, output layer, which may be the embedding (tied); or, under a head, the stack alone. */
export const recurrentLm: Build = (config, weights, head) => {
  const at = head ? "body." : "";
  const embedding = weights.matrix(`${at}embedding.weight`), rnn = new Stack(weights, `${at}rnn`, String(config.cell));
  if (head) return headed(head, weights, (tokens, _, taps) => rnn.read(embedded(embedding, tokens), taps).states);
  const tied = Boolean(config.tied);
  const output = tied ? embedding : weights.matrix("readout_.weight");
  const bias = tied ? null : weights.vector("readout_.bias");
  const model: Generator<LmState> = {
    kind: "generator",
    start: () => ({ at: 0, hidden: rnn.zeros() }),
    advance(tokens, state, taps) {
      const states: Matrix[] = [], before: Matrix[] = [];
      let { hidden } = state;
      for (const token of tokens) {
        taps.breathe();
        before.push(single(top(hidden)));
        hidden = rnn.step(row(embedding, token), hidden);
        states.push(single(top(hidden)));
      }
      const read = stacked(...states);
      return { logits: linear(read, output, bias), states: read, before: stacked(...before), state: { at: state.at + tokens.length, hidden } };
    },
  };
  return model;
};

const single = (data: Float32Array): Matrix => ({ rows: 1, width: data.length, data });
