// What a model that reads a text whole predicts: a class, labels, a tag for each token, or the hidden tokens.

import type { Answer, Token } from "./api.ts";
import type { LiveModel } from "../data.ts";
import { largest, logSigmoid, logSoftmax, row, sigmoid } from "./math.ts";
import type { Matrix } from "./model.ts";
import { visible } from "./text.ts";
import type { Tokenizer } from "./tokenizers.ts";

type Predicted = Pick<Answer, "text" | "tokens" | "score" | "candidates" | "distributions">;

export function predictions(live: LiveModel, tokenizer: Tokenizer, ids: number[], logits: Matrix, top: number, whole: boolean): Predicted {
  switch (live.predicts) {
    case "class":
      return classes(live.names, [row(logits, 0)], top, whole);
    case "labels":
      return labels(live, row(logits, 0));
    case "tag":
      return classes(live.names, Array.from({ length: logits.rows }, (_, at) => row(logits, at)), top, whole);
    case "masked":
      return fills(tokenizer, ids, logits, top, whole);
    default:
      throw new Error(`this page cannot show what a model of ${live.predicts} predicts`);
  }
}

/** The likeliest class of each row. */
function classes(names: string[], rows: Float32Array[], top: number, whole: boolean): Predicted {
  const scores = rows.map(logSoftmax), named = (id: number, score: number): Token => ({ id, piece: names[id], text: names[id], score });
  const candidates = scores.map((one) => largest(one, top).map((id) => named(id, one[id])));
  const tokens = candidates.map(([best]) => best);
  return {
    text: tokens.map(({ text }) => text).join(" "),
    tokens,
    score: sum(tokens),
    candidates,
    ...(whole ? { distributions: scores } : {}),
  };
}

/** The labels that are likely enough, the likeliest first; all of them as candidates. */
function labels({ names, threshold }: LiveModel, logits: Float32Array): Predicted {
  const chances = logits.map(sigmoid), order = largest(logits, logits.length);
  const all = order.map((id): Token => ({ id, piece: names[id], text: names[id], score: logSigmoid(logits[id]) }));
  const tokens = all.filter(({ id }) => chances[id] >= threshold);
  return { text: tokens.map(({ text }) => text).join(", "), tokens, score: sum(tokens), candidates: [all] };
}

/** The likeliest token at each mask, and the text with them. */
function fills(tokenizer: Tokenizer, ids: number[], logits: Matrix, top: number, whole: boolean): Predicted {
  const { mask } = tokenizer.data.special, places = ids.flatMap((id, at) => (id === mask ? [at] : []));
  const scores = places.map((at) => logSoftmax(row(logits, at)));
  const candidates = scores.map((one) =>
    largest(one, top, (id) => id < tokenizer.size).map((id): Token => {
      const piece = visible(tokenizer.pieces([id])[0]);
      return { id, piece, text: tokenizer.decode([id]).trim() || piece, score: one[id] };
    }),
  );
  const tokens = candidates.map(([best]) => best), filled = ids.slice();
  places.forEach((at, number) => (filled[at] = tokens[number].id));
  return { text: tokenizer.decode(filled), tokens, score: sum(tokens), candidates, ...(whole ? { distributions: scores } : {}) };
}

const sum = (tokens: Token[]): number => tokens.reduce((total, { score }) => total + score, 0);
