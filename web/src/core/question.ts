// A question as JSON, from an address: it is not to be trusted, so only what has the right type is taken.

import type { Ask, Cell, HeadChange, MaskChange } from "../engine/api.ts";

const WIDEST = 64; // beam of an address: a wider one is a mistake, and runs into the time limit

type Check = (value: unknown) => boolean;
/** A check for each field. */
type Checks<T> = Record<keyof T, Check>;

const text: Check = (value) => typeof value === "string";
const flag: Check = (value) => typeof value === "boolean";
const number: Check = (value) => typeof value === "number" && Number.isFinite(value);
const place: Check = (value) => Number.isInteger(value) && (value as number) >= 0;
const among = (...names: string[]): Check => (value) => names.includes(value as string);
const list = (check: Check): Check => (value) => Array.isArray(value) && value.every(check);

/** An object in which every field is known and of the right type, and the needed ones are there. */
const object = (checks: Record<string, Check>, needed: string[] = []): Check => (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && needed.every((name) => Object.hasOwn(value, name)) &&
  Object.entries(value).every(([name, one]) => Object.hasOwn(checks, name) && checks[name](one));

const head = { part: text, layer: place, head: place };
const cell: Checks<Cell> = { ...head, row: place, column: place };
const change: Checks<HeadChange> = { ...head, kind: among("off", "uniform", "one-hot", "row"), key: place, row: place, weights: list(number) };
const masks: Checks<MaskChange> = { columns: list(place), window: place, causal: flag };

const CHECKS: Checks<Ask> = {
  text, second: text, target: text, forced: list(place), prefix: place, beam: (value) => place(value) && Number(value) <= WIDEST, limit: place, top: place, hidden: list(place),
  heads: list(object(change, [...Object.keys(head), "kind"])), masks: object(masks), score: among("dot", "scaled_dot"),
  cell: object(cell, Object.keys(cell)),
};

/** The question that a text holds, without what is no part of one; null: it holds none. */
export function question(json: string): Partial<Ask> | null {
  try {
    const found: unknown = JSON.parse(json);
    if (found === null || typeof found !== "object" || Array.isArray(found)) return null;
    return Object.fromEntries(Object.entries(found).filter(([name, value]) => Object.hasOwn(CHECKS, name) && CHECKS[name as keyof Ask](value)));
  } catch {
    return null;
  }
}
