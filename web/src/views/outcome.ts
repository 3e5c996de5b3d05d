// What a change does to an answer: the answer before and after, token by token.

import { apart } from "../core/axes.ts";
import { make } from "../core/dom.ts";
import { formatNumber } from "../core/scale.ts";
import type { Answer, Token } from "../engine/api.ts";

/** How many tokens two answers begin with in common, and how many of the rest they end with. */
export function common(a: readonly { id: number }[], b: readonly { id: number }[]): { first: number; last: number } {
  const most = Math.min(a.length, b.length);
  let first = 0, last = 0;
  while (first < most && a[first].id === b[first].id) first++;
  while (last < most - first && a[a.length - 1 - last].id === b[b.length - 1 - last].id) last++;
  return { first, last };
}

const total = (tokens: readonly Token[]): number => tokens.reduce((sum, { score }) => sum + score, 0);

/** One answer: its tokens with their log-probabilities, those that differ marked. */
function line(title: string, tokens: readonly Token[], from: number, { first, last }: { first: number; last: number }, forced: ReadonlySet<number>): HTMLElement {
  const shown = tokens.slice(from).map((token, index) => {
    const at = from + index, differs = at >= first && at < tokens.length - last, mine = forced.has(at);
    const text = `${apart(token.piece)}: log p ${formatNumber(token.score)}${mine ? ", forced" : ""}${differs ? ", differs" : ""}`;
    return make("li", { class: `${differs ? "differs" : ""}${mine ? " forced" : ""}`, "data-tip": text, "aria-label": text },
      make("span", { dir: "auto" }, token.piece), make("small", {}, token.score.toFixed(2).replace("-", "−")));
  });
  const sum = make("span", { class: "total" }, `log p ${formatNumber(total(tokens.slice(from)))}`);
  return make("div", { class: "answer" }, make("p", {}, make("b", {}, title), " ", sum), make("ol", { class: "pieces" }, ...shown));
}

/** Two answers, one below the other; `from`: the tokens before it are not shown. */
export function outcome(before: Answer, after: Answer, titles: [string, string], from = 0, forced: ReadonlySet<number> = new Set()): HTMLElement {
  const both = common(before.tokens, after.tokens), none = new Set<number>();
  const same = both.first === before.tokens.length && both.first === after.tokens.length;
  const said = same ? "The answer is the same." : `The answers differ from token ${both.first + 1} on.`;
  return make("div", { class: "outcome" }, line(titles[0], before.tokens, from, both, none), line(titles[1], after.tokens, from, both, forced), make("p", { class: "quiet" }, said));
}
