// What changes of heads do to an answer. The original answer is the one without the changes; what it is compared by is
// defined in regard/verbs/outcomes.py, and is the same here:
// a translator is made to write its original target, its end included; a language model reads the text, and answers the
// token after it; a masked model fills its masks, or, in a text without any, each token hidden in turn; a classifier and
// a tagger keep their first decisions.

import type { Machine } from "./answer.ts";
import type { Answer, Ask, Effect, Token } from "./api.ts";

/** What one variant of the model says, and how likely it finds the original answer. */
export interface Outcome {
  /** Its own answer. */
  text: string;
  /** What decides whether two answers are the same. */
  ids: number[];
  /** The tokens of the original answer, with their log-probabilities. */
  tokens: Token[];
}

type Check = () => void;

export function effectOf(original: Outcome, now: Outcome): Effect {
  return {
    before: original.text,
    after: now.text,
    changed: original.ids.join() !== now.ids.join(),
    tokens: original.tokens,
    scores: now.tokens.map(({ score }) => score),
  };
}

/** The outcome of a question whose answer is known. `original` is null for the original answer itself. */
export function outcomeOf(machine: Machine, ask: Ask, answer: Answer, original: Outcome | null, check: Check): Outcome {
  const { predicts } = machine.live;
  if (predicts === "masked") return filled(machine, ask, answer, original, check);
  if (predicts === "class" || predicts === "tag") return decided(machine, ask, answer, original, check);
  if (predicts === "labels") return labelled(machine, answer, original);
  return answer.next ? read(machine, answer) : generated(machine, ask, answer, original, check);
}

/** A translation, or the continuation of a text: the original one is forced, if the own one is another. */
function generated(machine: Machine, ask: Ask, answer: Answer, original: Outcome | null, check: Check): Outcome {
  const kept = ({ tokens, cut }: Answer): Token[] => (cut && machine.live.source ? tokens.slice(0, -1) : tokens);
  const tokens = kept(answer), ids = tokens.map(({ id }) => id), { text } = answer;
  if (!original || original.ids.join() === ids.join()) return { text, ids, tokens };
  const start = machine.live.source ? 0 : answer.given - (ask.forced?.length ?? 0), forced = original.ids.slice(start);
  const { target: _, ...free } = ask;
  const again = machine.plain({ ...free, forced, beam: 1, limit: forced.length }, check);
  return { text, ids, tokens: again.tokens.slice(0, original.ids.length) };
}

/** The tokens of a text that a language model reads, without its end, and the likeliest token after it. */
function read(machine: Machine, { tokens, next = [] }: Answer): Outcome {
  const { eos } = machine.live.tokenizer.special, ends = eos !== null && tokens[tokens.length - 1]?.id === eos;
  return { text: next[0].piece, ids: [next[0].id], tokens: ends ? tokens.slice(0, -1) : tokens };
}

/** A class, or a tag of each token. */
function decided(machine: Machine, ask: Ask, answer: Answer, original: Outcome | null, check: Check): Outcome {
  const tags = machine.live.predicts === "tag", special = new Set(tags ? answer.source.special : []);
  const places = answer.tokens.map((_, at) => at).filter((at) => !special.has(at));
  const own = places.map((at) => answer.tokens[at]), ids = own.map(({ id }) => id);
  const wanted = original?.tokens ?? own.map((token, at) => (tags ? { ...token, piece: `${answer.source.pieces[places[at]]}/${token.piece}` } : token));
  return { text: own.map(({ text }) => text).join(" "), ids, tokens: scored(machine, ask, answer, places, wanted, check) };
}

/** Each label is given or not: the log-probability of that decision. */
function labelled(machine: Machine, answer: Answer, original: Outcome | null): Outcome {
  const given = answer.tokens.map(({ id }) => id).sort((a, b) => a - b), all = [...answer.candidates[0]].sort((a, b) => a.id - b.id);
  const first = original ? original.ids : given;
  const tokens = all.map((one) => ({ ...one, score: first.includes(one.id) ? one.score : Math.log(-Math.expm1(one.score)) }));
  return { text: given.map((id) => machine.live.names[id]).join(" | "), ids: given, tokens };
}

/** The tokens at the masks; in a text without any, each token hidden in turn. */
function filled(machine: Machine, ask: Ask, answer: Answer, original: Outcome | null, check: Check): Outcome {
  if (answer.tokens.length) {
    const places = answer.tokens.map((_, at) => at), ids = answer.tokens.map(({ id }) => id);
    return { text: answer.text, ids, tokens: scored(machine, ask, answer, places, original?.tokens ?? answer.tokens, check) };
  }
  const special = new Set(answer.source.special), own: Token[] = [], tokens: Token[] = [];
  answer.source.ids.forEach((id, at) => {
    if (special.has(at)) return;
    check();
    const one = machine.plain({ ...ask, hidden: [at], top: 0 }, check);
    own.push(one.tokens[0]);
    tokens.push({ id, piece: answer.source.pieces[at], text: answer.source.pieces[at], score: one.distributions![0][id] });
  });
  const ids = own.map(({ id }) => id);
  return { text: machine.decode(ids), ids, tokens };
}

/** Tokens with their log-probabilities by an answer, which may name only the likeliest ones. */
function scored(machine: Machine, ask: Ask, answer: Answer, places: number[], tokens: Token[], check: Check): Token[] {
  const found = (one: Answer, { id }: Token, at: number): number | undefined =>
    one.distributions?.[places[at]]?.[id] ?? one.candidates[places[at]]?.find((each) => each.id === id)?.score;
  const all = tokens.every((token, at) => found(answer, token, at) !== undefined) ? answer : machine.plain({ ...ask, top: 0 }, check);
  return tokens.map((token, at) => ({ ...token, score: found(all, token, at) ?? -Infinity }));
}
