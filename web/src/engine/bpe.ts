// Byte-pair encoding (Sennrich et al. 2016): the merge that was learned first is applied first, at its leftmost place.

import type { TokenizerData } from "../data.ts";

interface Merge {
  rank: number;
  id: number;
}

/** A pair of neighbours that may be merged: of the same rank, the leftmost one is first. */
interface Candidate {
  rank: number;
  at: number;
  left: number;
  right: number;
  id: number;
}

export class Merges {
  private readonly pairs = new Map<number, Merge>();
  private readonly size: number;

  constructor(private readonly data: TokenizerData, private readonly ids: Map<string, number>) {
    this.size = data.vocab.length;
    data.merges.forEach(([left, right], rank) => {
      const a = ids.get(left), b = ids.get(right), id = ids.get(left + right);
      if (a !== undefined && b !== undefined && id !== undefined) this.pairs.set(a * this.size + b, { rank, id });
    });
  }

  /** Gives the names of the sub-words of a word; a character without an id is given as it is. */
  encode(characters: string[], add: (name: string) => void): void {
    const symbols = characters.map((character) => this.ids.get(character) ?? -1);
    const previous = symbols.map((_, at) => at - 1), next = symbols.map((_, at) => at + 1);
    const queue: Candidate[] = [];
    const consider = (at: number): void => {
      const after = next[at];
      if (at < 0 || after >= symbols.length || symbols[at] < 0 || symbols[after] < 0) return;
      const merge = this.pairs.get(symbols[at] * this.size + symbols[after]);
      if (merge) push(queue, { rank: merge.rank, at, left: symbols[at], right: symbols[after], id: merge.id });
    };
    for (let at = 0; at < symbols.length; at++) consider(at);
    for (let best = pop(queue); best; best = pop(queue)) {
      const { at, left, right, id } = best, after = next[at];
      if (symbols[at] !== left || after >= symbols.length || symbols[after] !== right) continue; // merged before
      symbols[at] = id;
      symbols[after] = -2; // part of the one before it
      next[at] = next[after];
      if (next[at] < symbols.length) previous[next[at]] = at;
      consider(at);
      if (previous[at] >= 0) consider(previous[at]);
    }
    for (let at = 0; at < symbols.length; at = next[at]) add(symbols[at] < 0 ? characters[at] : this.data.vocab[symbols[at]]);
  }
}

const before = (a: Candidate, b: Candidate): boolean => a.rank < b.rank || (a.rank === b.rank && a.at < b.at);

/** Adds an item to a binary heap. */
function push(heap: Candidate[], item: Candidate): void {
  let at = heap.push(item) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!before(item, heap[parent])) break;
    heap[at] = heap[parent];
    at = parent;
  }
  heap[at] = item;
}

/** Removes the first item of a binary heap. */
function pop(heap: Candidate[]): Candidate | undefined {
  const first = heap[0], last = heap.pop();
  if (!heap.length || last === undefined) return first;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && before(heap[child + 1], heap[child])) child++;
    if (!before(heap[child], last)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return first;
}
