// The computation of a cell as lines of arithmetic. The numbers of a line are written with so many digits that a
// calculator, given what is written, finds the result that is written.

import { formatNumber } from "../core/scale.ts";
import type { TraceLine } from "../engine/api.ts";

/** A line of the computation, ready to be drawn. */
export interface Line {
  name: string;
  /** The formula in plain notation. */
  formula: string;
  how: string;
  /** The arithmetic with its long sums folded, and whole; empty: there is nothing to compute. */
  short: string;
  long: string;
  values: number[];
  /** The values belong to the keys of the row, and this is the place of the cell. */
  at?: number;
}

const DIGITS = 5; // of what is written
const TERMS = 4; // of a folded sum, and then the last
const STEPS = 2; // of a folded list of small computations, and then the last

/** A number in a line: five significant digits. */
export const digits = (value: number): string => {
  if (value === -Infinity) return "−∞";
  return formatNumber(Number(value.toPrecision(DIGITS))).replaceAll("-", "−");
};

/** A number as it is read back from a line. */
export const readBack = (text: string): number => (text === "−∞" ? -Infinity : Number(text.replaceAll("−", "-").replaceAll(/[()]/g, "")));

/** A logit: with four decimals at least, because a weight is its power. */
const fine = (value: number): string => (Math.abs(value) < 1 || value === -Infinity ? digits(value) : String(Number(value.toFixed(4))).replace("-", "−"));

/** A factor or a term: one below 0 stands in brackets. */
const term = (value: number): string => (value < 0 ? `(${digits(value)})` : digits(value));

/** What a calculator reads for a number that is written. */
const typed = (value: number): number => readBack(digits(value));

/** A result with as many digits as agree with what a calculator finds from the numbers that are written, at most five. */
export function agreeing(value: number, found: number): string {
  for (let count = DIGITS; count > 1; count--) {
    const text = value.toPrecision(count);
    if (Number(text) === Number(found.toPrecision(count))) return digits(Number(text));
  }
  return digits(Number(value.toPrecision(1)));
}

/** Terms joined by a sign: the first ones, … and the last; and all of them. */
export function folded(terms: string[], sign: string, shown = TERMS): { short: string; long: string } {
  const long = terms.join(sign);
  return { short: terms.length <= shown + 2 ? long : [...terms.slice(0, shown), "…", terms[terms.length - 1]].join(sign), long };
}

const vector = (values: readonly number[]): { short: string; long: string } => folded(values.map(digits), "  ");

interface Written { formula: string; short: string; long: string }
type Named = (name: string) => readonly number[];

const sum = (values: readonly number[]): number => values.reduce((total, one) => total + one, 0);

/** The lines of a trace with the formula and the arithmetic of each. */
export function arithmetic(lines: readonly TraceLine[]): Line[] {
  const named = (name: string): readonly number[] => lines.find((line) => line.name === name)?.values ?? [];
  return lines.map((line, place) => ({
    name: line.name, how: line.how, values: line.values, ...(line.at === undefined ? {} : { at: line.at }),
    ...write(line, lines[place - 1], lines, named),
  }));
}

function write(line: TraceLine, before: TraceLine | undefined, lines: readonly TraceLine[], named: Named): Written {
  const { name, values } = line, [value] = values, pair = name.split(" ⊙ ");
  if (pair.length === 2) return elementwise(name, ...factors(pair, named), "·", values);
  if (name === "Wq + Uk") return elementwise(name, named("Wq"), named("Uk"), "+", values);
  if (name === "tanh") return tangents(named("Wq + Uk"), values);
  if (name === "Σ" && before) return summed(before, named, value);
  if (name.startsWith("÷ √")) {
    const from = named("Σ")[0];
    return single(`logit = Σ ${name}`, `${digits(from)} ${name}`, value, typed(from) / Math.sqrt(Number(name.slice(3))));
  }
  if (name === "+ bias" && before) {
    const [bias] = before.values, from = value - bias;
    return single("logit + bias", `${digits(from)} + ${term(bias)}`, value, typed(from) + typed(bias));
  }
  if (name === "softmax") return softmax(line, named("mask").length ? named("mask") : named("logits"));
  if (name === "window") return curved(line, named("softmax"));
  if (name === "weight · v") return elementwise("weight · v", values.map(() => weightOf(lines)), lastOf(lines, "v"), "·", values);
  if (name === "Σ over keys") return elementwise("context = weight · v + the other keys", named("weight · v"), named("the other keys"), "+", values);
  if (line.at === undefined) return { formula: FORMULAS[name] ?? "", ...vector(values) };
  const { short, long } = folded(values.map(fine), "  "), own = `this cell: ${fine(values[line.at])}   the row: `;
  return { formula: "", short: own + short, long: own + long };
}

/** The two vectors of a product. The vector of an additive score is v, too, as the value of a key is. */
const factors = ([a, b]: string[], named: Named): [readonly number[], readonly number[]] => [named(b === "tanh" ? "vector v" : a), named(b)];

const FORMULAS: Record<string, string> = {
  "the other keys": "Σ weight · v over the other keys",
  "W^O": "W^O · context",
};

const lastOf = (lines: readonly TraceLine[], name: string): readonly number[] => lines.filter((line) => line.name === name).at(-1)?.values ?? [];

/** The weight of the cell, after everything that changes it. */
function weightOf(lines: readonly TraceLine[]): number {
  const line = lines.filter(({ name }) => ["softmax", "window", "changed"].includes(name)).at(-1);
  return line?.values[line.at ?? 0] ?? NaN;
}

/** One result from what is written before it. */
function single(formula: string, text: string, value: number, found: number): Written {
  const whole = `${text} = ${agreeing(value, found)}`;
  return { formula, short: whole, long: whole };
}

function elementwise(formula: string, a: readonly number[], b: readonly number[], sign: string, values: readonly number[]): Written {
  const apply = (x: number, y: number): number => (sign === "+" ? x + y : x * y);
  const terms = values.map((value, d) => `${digits(a[d])} ${sign} ${term(b[d])} = ${agreeing(value, apply(typed(a[d]), typed(b[d])))}`);
  return { formula, ...folded(terms, "\n", STEPS) };
}

function tangents(sums: readonly number[], values: readonly number[]): Written {
  const terms = values.map((value, d) => `tanh(${digits(sums[d])}) = ${agreeing(value, Math.tanh(typed(sums[d])))}`);
  return { formula: "tanh(Wq + Uk)", ...folded(terms, "\n", STEPS) };
}

/** The sum of a line. The terms of a product are written as products. */
function summed({ name, values }: TraceLine, named: Named, value: number): Written {
  const pair = name.split(" ⊙ "), [a, b] = factors(pair, named), product = pair.length === 2;
  const found = product ? sum(values.map((_, d) => typed(a[d]) * typed(b[d]))) : sum(values.map(typed));
  const terms = folded(values.map((one, d) => (product ? `${term(a[d])}·${term(b[d])}` : term(one))), " + "), result = agreeing(value, found);
  return { formula: product ? `Σ ${pair[0]} · ${pair[1]}` : `Σ ${name}`, short: `${terms.short} = ${result}`, long: `${terms.long} = ${result}` };
}

/** exp of each logit over their sum. Large logits lose the largest one first, which changes nothing. */
function softmax({ values, at = 0 }: TraceLine, logits: readonly number[]): Written {
  const seen = logits.filter((one) => one > -Infinity), most = Math.max(...seen), shift = Math.max(...seen.map(Math.abs)) > 10 ? most : 0;
  const bracketed = (value: number): string => (value < 0 ? `(${fine(value)})` : fine(value)), less = shift ? ` − ${bracketed(shift)}` : "";
  const formula = shift ? `softmax = e^(logit${less}) / Σ e^(logit${less}), where ${fine(shift)} is the largest logit` : "softmax = e^logit / Σ e^logit";
  if (logits[at] === -Infinity) {
    const never = "e^(−∞) = 0, because this cell may not be looked at";
    return { formula, short: never, long: never };
  }
  const power = (one: number): string => (shift ? `e^(${fine(one)}${less})` : `e^${bracketed(one)}`);
  const found = (one: number): number => Math.exp(readBack(fine(one)) - (shift ? readBack(fine(shift)) : 0));
  const own = found(logits[at]), total = sum(seen.map(found)), terms = folded(seen.map(power), " + ");
  const end = `\n= ${digits(own)} / ${digits(total)} = ${agreeing(values[at], typed(own) / typed(total))}`;
  return { formula, short: `${power(logits[at])} / (${terms.short})${end}`, long: `${power(logits[at])} / (${terms.long})${end}` };
}

/** The weight of a window with soft edges: softmax times a bell curve. */
function curved({ values, at = 0 }: TraceLine, soft: readonly number[]): Written {
  const factor = soft[at] ? values[at] / soft[at] : 0;
  return single("weight = softmax × bell curve", `${digits(soft[at])} × ${digits(factor)}`, values[at], typed(soft[at]) * typed(factor));
}
