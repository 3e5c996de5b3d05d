// Heads by their names, and changes of heads in words: as regard/verbs/head_changes.py and ablating.py say them.

import type { Part } from "../data.ts";
import type { Effect, HeadChange, HeadName } from "../engine/api.ts";
import { formatNumber, minus } from "./scale.ts";

/** A head as it is found on the page: places of the part, of the layer and of the head. */
export interface Place {
  part: number;
  layer: number;
  head: number;
}

/** The name by which the engine knows a head. */
export function nameOf(parts: Part[], { part, layer, head }: Place): HeadName {
  const { name, layers } = parts[part];
  return { part: name, layer: layers[layer].number ?? 0, head: layers[layer].heads[head] };
}

/** Where a head is on the page; null: it is not there. */
export function placeOf(parts: Part[], name: HeadName): Place | null {
  const part = parts.findIndex((one) => one.name === name.part), layers = parts[part]?.layers ?? [];
  const layer = layers.findIndex(({ number }) => (number ?? 0) === name.layer), head = layers[layer]?.heads.indexOf(name.head) ?? -1;
  return head < 0 ? null : { part, layer, head };
}

export const sameHead = (a: HeadName, b: HeadName): boolean => a.part === b.part && a.layer === b.layer && a.head === b.head;

/** All heads, in the order of the page. */
export const headsOf = (parts: Part[]): HeadName[] =>
  parts.flatMap((one, part) => one.layers.flatMap((own, layer) => own.heads.map((_, head) => nameOf(parts, { part, layer, head }))));

/** L1·H2, with the part if it is not the one that is shown first. */
export const labelOf = (first: string, { part, layer, head }: HeadName): string => `${part === first ? "" : `${part} `}L${layer}·H${head}`;

const listed = (names: string[]): string => (names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}` : names[0]);

/** What is done to a head, after its name. */
export function worded({ kind, key, row }: HeadChange): string {
  if (kind === "row") return `at given weights${row === undefined ? "" : ` in row ${row + 1}`}`;
  return kind === "one-hot" && key !== undefined ? `at key ${key}` : kind;
}

/** The changes as a part of a sentence: "without L1·H2 and L1·H3 and with L0·H0 uniform". */
export function described(first: string, changes: HeadChange[]): string {
  const off = changes.filter(({ kind }) => kind === "off").map((one) => labelOf(first, one));
  const others = changes.filter(({ kind }) => kind !== "off").map((one) => `${labelOf(first, one)} ${worded(one)}`);
  return [...(off.length ? [`without ${listed(off)}`] : []), ...(others.length ? [`with ${listed(others)}`] : [])].join(" and ");
}

/** A log-probability for a sentence, such as −0.02; a small one has one digit. */
export function brief(value: number): string {
  if (value === 0) return "0.00";
  return minus(Math.abs(value) >= 0.01 ? value.toFixed(2) : formatNumber(Number(value.toPrecision(1))));
}

/** The change of the log-probability of the original answer. */
export const damage = ({ tokens, scores }: Effect): number => scores.reduce((sum, score, at) => sum + score - tokens[at].score, 0);

const SUBJECTS: Record<string, string> = { next: "the likeliest token after the text", masked: "the likeliest text", tag: "the tags" };

/** What the changes do, as a sentence: "Without L1·H2 the answer is still 2021-02-03 (log p −0.02 → −0.03)." */
export function sentence(first: string, changes: HeadChange[], effect: Effect, predicts: string): string {
  const { before, after, changed, tokens, scores, given } = effect, words = described(first, changes), start = `${words[0].toUpperCase()}${words.slice(1)}`;
  const sum = (values: number[]): string => brief(values.reduce((total, one) => total + one, 0));
  const many = predicts === "tag", what = SUBJECTS[predicts] ?? "the answer";
  const logp = `${predicts === "next" ? "of the text " : ""}log p ${sum(tokens.map(({ score }) => score))} → ${sum(scores)}`;
  const name = (text: string): string => `\u2068${text || "empty"}\u2069`;
  if (given) return `${start} the given target ${name(after)} has ${logp}.`;
  const opening = `${start} ${what}`;
  if (!changed) return `${opening} ${many ? "are" : "is"} still ${name(after)} (${logp}).`;
  return `${opening} ${many ? "become" : "becomes"} ${name(after)}; ${many ? "they were" : "it was"} ${name(before)} (${logp}).`;
}

/** A row after one of its weights was set. The other visible weights keep their ratios, and all sum to 1; or, if `free`, they stay. */
export function rebalanced(row: readonly number[], at: number, value: number, seen: readonly boolean[], free: boolean): number[] {
  const set = row.map((weight, j) => (j === at ? value : weight));
  if (free) return set;
  const others = row.reduce((sum, weight, j) => (j === at || !seen[j] ? sum : sum + weight), 0), rest = 1 - value;
  const count = seen.filter((one, j) => one && j !== at).length;
  return set.map((weight, j) => (j === at || !seen[j] ? weight : others > 0 ? (weight * rest) / others : rest / count));
}
