// What a change does to an answer: the answer before and after, token by token.

import { apart } from "../core/axes.ts";
import { make } from "../core/dom.ts";
import { formatNumber, minus } from "../core/scale.ts";
import type { Answer, Token } from "../engine/api.ts";
import { largest } from "../engine/math.ts";

/** How many tokens two answers begin with in common, and how many of the rest they end with. */
export function common(a: readonly { id: number }[], b: readonly { id: number }[]): { first: number; last: number } {
  const most = Math.min(a.length, b.length);
  let first = 0, last = 0;
  while (first < most && a[first].id === b[first].id) first++;
  while (last < most - first && a[a.length - 1 - last].id === b[b.length - 1 - last].id) last++;
  return { first, last };
}

const total = (tokens: readonly Token[]): number => tokens.reduce((sum, { score }) => sum + score, 0);

const number = (value: number): string => minus(formatNumber(value));

/** A log-probability below its token. */
const brief = (score: number): string => (score > -0.005 ? "0" : minus(score.toFixed(2)));

/** One answer: its tokens with their log-probabilities, those that differ marked. */
function line(title: string, tokens: readonly Token[], from: number, { first, last }: { first: number; last: number }, forced: ReadonlySet<number>): HTMLElement {
  const shown = tokens.slice(from).map((token, index) => {
    const at = from + index, differs = at >= first && at < tokens.length - last, mine = forced.has(at);
    const text = `${apart(token.piece)}: log p ${number(token.score)}${mine ? ", forced" : ""}${differs ? ", differs" : ""}`;
    return make("li", { class: `${differs ? "differs" : ""}${mine ? " forced" : ""}`, "data-tip": text, "aria-label": text },
      make("span", { dir: "auto" }, token.piece), make("small", {}, brief(token.score)));
  });
  const sum = make("span", { class: "total" }, `log p ${number(total(tokens.slice(from)))}`);
  return make("div", { class: "continuation" }, make("p", {}, make("b", {}, title), " ", sum), make("ol", { class: "pieces" }, ...shown));
}

/** Two answers, one below the other; `from`: the tokens before it are not shown. */
export function outcome(before: Answer, after: Answer, titles: [string, string], from = 0, forced: ReadonlySet<number> = new Set()): HTMLElement {
  const both = common(before.tokens, after.tokens), none = new Set<number>();
  const same = both.first === before.tokens.length && both.first === after.tokens.length;
  const [old, now] = [before, after].map(({ tokens }) => number(total(tokens.slice(from))));
  const said = !same ? `They differ from token ${both.first + 1} on.` : old === now ? "The answer is the same." : `The tokens are the same. Their log-probability changes from ${old} to ${now}.`;
  return make("div", { class: "outcome" }, line(titles[0], before.tokens, from, both, none), line(titles[1], after.tokens, from, both, forced), make("p", { class: "quiet" }, said));
}

/** The log-probabilities of what an answer predicts at one place; null: it predicts nothing there. */
export function logpsOf({ distributions, candidates }: Answer, at: number): ArrayLike<number> | null {
  if (distributions) return distributions[at] ?? null;
  const found: number[] = [];
  for (const { id, score } of candidates[at] ?? []) found[id] = score;
  return candidates[at] ? Array.from(found, (one) => one ?? -Infinity) : null;
}

const LIKELY = 5;

/** The likeliest tokens before and after a change. */
export function chances(before: ArrayLike<number>, after: ArrayLike<number>, name: (id: number) => string, titles: [string, string]): HTMLElement {
  const best = (logps: ArrayLike<number>): number[] => largest(logps, LIKELY);
  const ids = [...new Set([...best(before), ...best(after)])].sort((a, b) => before[b] - before[a]), top = best(after)[0];
  const cell = (logp: number): HTMLElement => make("td", {}, formatNumber(Math.exp(logp)), make("div", { class: "gauge", "--share": Math.exp(logp) }));
  const head = make("tr", {}, ...["token", ...titles].map((title) => make("th", { scope: "col" }, title)));
  const rows = ids.map((id) => make("tr", { class: id === top ? "best" : "" }, make("td", { dir: "auto" }, name(id)), cell(before[id]), cell(after[id])));
  return make("div", { class: "scroll" }, make("table", { class: "ranking candidates" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}
