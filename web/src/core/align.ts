// Two lists of tokens side by side: the longest common subsequence, and what stands between its tokens.

/** One place of the aligned lists: the places in each of them; null: the list has nothing there. */
export interface Pair {
  old: number | null;
  now: number | null;
  /** Whether both have the same token. */
  same: boolean;
}

const MOST = 4_000_000; // cells of the table of lengths; longer lists are aligned place by place

/**
 * Aligns two lists: no alignment has more tokens in common. Between two common tokens, the first old token stands beside
 * the first new one, and so on; what remains was added or removed.
 */
export function align(old: readonly string[], now: readonly string[]): Pair[] {
  let start = 0, end = 0;
  const shorter = Math.min(old.length, now.length);
  while (start < shorter && old[start] === now[start]) start++;
  while (end < shorter - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end++;
  const common = between(old.slice(start, old.length - end), now.slice(start, now.length - end));
  const matches: [number, number][] = [
    ...Array.from({ length: start }, (_, at): [number, number] => [at, at]),
    ...common.map(([i, j]): [number, number] => [i + start, j + start]),
    ...Array.from({ length: end }, (_, at): [number, number] => [old.length - end + at, now.length - end + at]),
    [old.length, now.length],
  ];
  const found: Pair[] = [];
  let i = 0, j = 0;
  for (const [a, b] of matches) {
    while (i < a || j < b) found.push({ old: i < a ? i++ : null, now: j < b ? j++ : null, same: false });
    if (a < old.length) found.push({ old: i++, now: j++, same: true });
  }
  return found;
}

/** The places of a longest common subsequence. */
function between(old: readonly string[], now: readonly string[]): [number, number][] {
  const rows = old.length, columns = now.length, wide = columns + 1;
  if (!rows || !columns || rows * columns > MOST) return [];
  const lengths = new Uint16Array((rows + 1) * wide); // of the rest of both lists
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const at = i * wide + j;
      lengths[at] = old[i] === now[j] ? lengths[at + wide + 1] + 1 : Math.max(lengths[at + wide], lengths[at + 1]);
    }
  }
  const found: [number, number][] = [];
  for (let i = 0, j = 0; i < rows && j < columns;) {
    const at = i * wide + j;
    if (old[i] === now[j]) found.push([i++, j++]);
    else if (lengths[at + wide] >= lengths[at + 1]) i++;
    else j++;
  }
  return found;
}
