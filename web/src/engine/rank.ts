// All heads of a model, tried one after the other: what happens to the answer without each.

import type { Machine } from "./answer.ts";
import type { Answer, Ask, Damage, HeadName } from "./api.ts";
import { effectOf, outcomeOf } from "./effect.ts";

/** Yields after each head what was found so far, worst first. */
export function* rank(machine: Machine, ask: Ask, kind: "off" | "uniform" | "one-hot", check: () => void): Generator<{ damages: Damage[]; of: number }> {
  const { cell: _, ...asked } = ask, plain = { ...asked, top: 0 }, whole = machine.plain(plain, check), heads = headsOf(whole);
  const original = outcomeOf(machine, plain, whole, null, check), damages: Damage[] = [];
  for (const head of heads) {
    const changed = { ...plain, heads: [...(ask.heads ?? []), { ...head, kind }] };
    const effect = effectOf(original, outcomeOf(machine, changed, machine.plain(changed, check), original, check));
    const difference = effect.scores.reduce((sum, score, at) => sum + score - effect.tokens[at].score, 0);
    damages.push({ ...head, difference, text: effect.after, changed: effect.changed });
    damages.sort((a, b) => a.difference - b.difference);
    yield { damages: [...damages], of: heads.length };
  }
}

function headsOf({ parts }: Answer): HeadName[] {
  return parts.flatMap(({ name, layers }) =>
    layers.flatMap(({ number, heads, masked }) => (masked === null ? [] : heads.map((head) => ({ part: name, layer: number ?? 0, head })))),
  );
}
