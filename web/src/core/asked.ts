// The question in an address. An address is not to be trusted: a field that is not what a question has is left out.

import type { Ask, HeadChange, MaskChange } from "../engine/api.ts";

type Check = (value: unknown) => boolean;
type Checks<T> = { [K in keyof Required<T>]: Check };

const text: Check = (value) => typeof value === "string";
const count: Check = (value) => Number.isInteger(value) && Number(value) >= 0;
const numbers: Check = (value) => Array.isArray(value) && value.every(Number.isFinite);
const counts: Check = (value) => Array.isArray(value) && value.every(count);
const among = (...names: string[]): Check => (value) => names.includes(String(value));
const maybe = (check: Check): Check => (value) => value === undefined || check(value);

const isRecord = (value: unknown): value is Record<string, unknown> => value !== null && typeof value === "object" && !Array.isArray(value);
const shaped = <T>(checks: Checks<T>): Check => (value) => isRecord(value) && Object.entries<Check>(checks).every(([name, check]) => check(value[name]));

const head = { part: text, layer: count, head: count };
const HEAD: Checks<HeadChange> = { ...head, kind: among("off", "uniform", "one-hot", "row"), key: maybe(count), row: maybe(count), weights: maybe(numbers) };
const MASKS: Checks<MaskChange> = { columns: maybe(counts), window: maybe(count), causal: maybe((value) => typeof value === "boolean") };
const heads = shaped(HEAD);

const ASK: Checks<Ask> = {
  text, second: text, target: text, forced: counts, prefix: count, beam: count, limit: count, hidden: counts, top: count,
  heads: (value) => Array.isArray(value) && value.every(heads), masks: shaped(MASKS), score: among("dot", "scaled_dot"),
  cell: shaped({ ...head, row: count, column: count }),
};

/** What a text in JSON asks. */
export function asked(json: string): Partial<Ask> {
  try {
    const found: unknown = JSON.parse(json);
    if (!isRecord(found)) return {};
    return Object.fromEntries(Object.entries<Check>(ASK).filter(([name, check]) => name in found && check(found[name])).map(([name]) => [name, found[name]]));
  } catch {
    return {};
  }
}
