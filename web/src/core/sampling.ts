// What sampling does to a distribution: the same as `Sampler` of regard/decode/sample.py, in the same order.

export interface Sampling {
  /** Logits are divided by it. */
  temperature: number;
  /** The number of tokens that are kept; null: all. */
  topK: number | null;
  /** The probability of the tokens that are kept; null: all. */
  topP: number | null;
}

export interface Sampled {
  /** The ids, the likeliest first, those that are never generated left out. */
  order: number[];
  /** By id: the probability of a draw. */
  chances: Float64Array;
  /** How many of `order` pass top-k, and how many of those pass top-p. */
  byK: number;
  byP: number;
}

/**
 * The probability of each token in a draw. The temperature comes first, then top-k keeps the k likeliest tokens, then
 * top-p the smallest set of the likeliest of them whose probability is at least p. `forbidden` tokens are never drawn.
 */
export function sample(logps: ArrayLike<number>, { temperature, topK, topP }: Sampling, forbidden: ReadonlySet<number>): Sampled {
  const order = Array.from(logps, (_, id) => id).filter((id) => !forbidden.has(id));
  order.sort((a, b) => logps[b] - logps[a] || a - b);
  const best = logps[order[0]], scaled = order.map((id) => (logps[id] - best) / Math.max(temperature, 1e-30));
  const byK = Math.min(topK ?? order.length, order.length), kept = scaled.slice(0, byK).map(Math.exp);
  const total = kept.reduce((sum, one) => sum + one, 0);
  let before = 0, byP = 0; // the probability of all tokens before one decides whether it is kept
  while (byP < byK && (topP === null || before < topP)) before += kept[byP++] / total;
  const rest = kept.slice(0, byP).reduce((sum, one) => sum + one, 0), chances = new Float64Array(logps.length);
  for (let at = 0; at < byP; at++) chances[order[at]] = kept[at] / rest;
  return { order, chances, byK, byP };
}

/** The token that a number between 0 and 1 draws. */
export function drawn({ order, chances, byP }: Sampled, random: number): number {
  let sum = 0;
  for (const id of order.slice(0, byP)) {
    sum += chances[id];
    if (random < sum) return id;
  }
  return order[byP - 1];
}
