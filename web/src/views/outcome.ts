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

/** Two answers, one below the other; `from`: the tokens before it are not shown. Equal ones have one line, with what changes. */
export function outcome(before: Answer, after: Answer, titles: [string, string], from = 0, forced: ReadonlySet<number> = new Set()): HTMLElement {
  const both = common(before.tokens, after.tokens), none = new Set<number>();
  if (both.first === before.tokens.length && both.first === after.tokens.length) return changes(before.tokens.slice(from), after.tokens.slice(from), titles);
  return make("div", { class: "outcome" },
    line(titles[0], before.tokens, from, both, none), line(titles[1], after.tokens, from, both, forced),
    make("p", { class: "quiet" }, `They differ from token ${both.first + 1} on.`));
}

/** The same tokens twice: how much the log-probability of each changes. */
function changes(before: readonly Token[], after: readonly Token[], titles: [string, string]): HTMLElement {
  const [old, now] = [before, after].map((tokens) => number(total(tokens)));
  const items = before.map((token, at) => {
    const text = `${apart(token.piece)}: log p ${number(token.score)}, then ${number(after[at].score)}`, change = after[at].score - token.score;
    const shown = Math.abs(change) < 0.005 ? "0" : `${change > 0 ? "+" : ""}${minus(change.toFixed(2))}`;
    return make("li", { "data-tip": text, "aria-label": text }, make("span", { dir: "auto" }, token.piece), make("small", {}, shown));
  });
  const totals = make("p", {}, ...([[titles[0], old], [titles[1], now]] as const).flatMap(([title, sum]) => [make("b", {}, title), make("span", { class: "total" }, ` log p ${sum} `)]));
  const said = old === now ? "The answer is the same." : "The tokens are the same. Below each: how its log-probability changes.";
  return make("div", { class: "outcome" }, totals, make("p", { class: "quiet" }, said), ...(old === now ? [] : [make("ol", { class: "pieces" }, ...items)]));
}

/** The log-probabilities of what an answer predicts at one place; null: it predicts nothing there. */
export function logpsOf({ distributions, candidates }: Answer, at: number): ArrayLike<number> | null {
  if (distributions) return distributions[at] ?? null;
  const found: number[] = [];
  for (const { id, score } of candidates[at] ?? []) found[id] = score;
  return candidates[at] ? Array.from(found, (one) => one ?? -Infinity) : null;
}

const LIKELY = 5;

/** The likeliest tokens before and after a change; `forbidden` ones are never generated. */
export function chances(before: ArrayLike<number>, after: ArrayLike<number>, name: (id: number) => string, titles: [string, string], forbidden: ReadonlySet<number>): HTMLElement {
  const best = (logps: ArrayLike<number>): number[] => largest(logps, LIKELY, (id) => !forbidden.has(id));
  const ids = [...new Set([...best(before), ...best(after)])].sort((a, b) => before[b] - before[a]), top = best(after)[0];
  const cell = (logp: number): HTMLElement => make("td", {}, formatNumber(Math.exp(logp)), make("div", { class: "gauge", "--share": Math.exp(logp) }));
  const head = make("tr", {}, ...["token", ...titles].map((title) => make("th", { scope: "col" }, title)));
  const rows = ids.map((id) => make("tr", { class: id === top ? "best" : "" }, make("td", { dir: "auto" }, name(id)), cell(before[id]), cell(after[id])));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Probabilities" }, make("table", { class: "ranking candidates" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}
