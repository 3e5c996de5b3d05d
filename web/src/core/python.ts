// The code that makes what is shown again: a line of Python, and one of the shell.

import type { Ask, HeadChange } from "../engine/api.ts";
import type { Shown } from "./shown.ts";
import { MEAN, type State } from "./store.ts";

/** A text as Python's repr writes it. */
export function repr(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = Array.from(text, (one) => {
    if (one === "\\" || one === quote) return `\\${one}`;
    const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[one];
    if (short || one === " " || !/[\p{C}\p{Z}]/u.test(one)) return short ?? one;
    const point = one.codePointAt(0) ?? 0, hex = (digits: number): string => point.toString(16).padStart(digits, "0");
    return point < 0x100 ? `\\x${hex(2)}` : point < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
  });
  return `${quote}${escaped.join("")}${quote}`;
}

/** A text as Python's shlex.quote writes it. */
export const quote = (text: string): string =>
  text === "" || /[^A-Za-z0-9_@%+=:,./-]/.test(text) ? `'${text.replaceAll("'", `'"'"'`)}'` : text;

/** What is chosen of the view: part, layer and head, where there is a choice. */
function chosen(shown: Shown, state: State): [string, string | number][] {
  const { part, layers, heads: some } = shown, [{ number, heads }] = layers, whole = number === null && some === heads.length;
  const found: [string, string | number][] = part.name && !(shown.lone && whole) ? [["part", part.name]] : [];
  if (layers.length === 1 && number !== null) found.push(["layer", number]);
  if (layers.length === 1 && shown.heads === 1 && heads.length > 1) found.push(["head", heads[state.heads[0]]]);
  return found;
}

/** A head with its change as the option --off names it, such as cross:L1H2=uniform; null: the option has no such change. */
function named({ part, layer, head, kind, key }: HeadChange): string | null {
  if (kind === "row") return null;
  const name = `${part ? `${part}:` : ""}L${layer}H${head}`;
  return kind === "off" ? name : `${name}=${kind === "one-hot" && key !== undefined ? key : kind}`;
}

/** The changes of heads by their names, if the code can make all of them: with a given target it changes none. */
function changes({ heads = [], target }: Ask): string[] {
  const names = heads.map(named).filter((one) => one !== null);
  return target === undefined && names.length === heads.length ? names : [];
}

/** What the page has changed and the code does not. */
function remark(ask: Ask): string {
  const { text: _, second: __, target: ___, beam: ____, heads = [], ...rest } = ask, left = heads.length > 0 && !changes(ask).length;
  const why = heads.some(({ kind }) => kind === "row") ? "no name of a head has the weights of a row" : "the target is given";
  const missing = [...(left ? [`without the changed heads, because ${why}`] : []), ...(Object.keys(rest).length ? ["without the other changes made in the page"] : [])];
  return missing.length ? `  # ${missing.join("; ")}` : "";
}

/** A line of Python that gives the shown matrix. */
export function python(run: string, ask: Ask, shown: Shown, state: State): string {
  const texts = ask.second === undefined ? repr(ask.text) : `(${repr(ask.text)}, ${repr(ask.second)})`, off = changes(ask);
  const given = [`regard.load(${repr(run)})`, texts, ...(off.length ? [`[${off.map(repr).join(", ")}]`] : [])];
  if (ask.target !== undefined) given.push(`target=${repr(ask.target)}`);
  else if ((ask.beam ?? 1) > 1) given.push(`beam=${ask.beam}`);
  const view = `regard.${off.length ? "verbs.look_ablated" : "look"}(${given.join(", ")})`;
  const call = (verb: string): string => (verb === "only" && !chosen(shown, state).length ? view : `${view}.${verb}(${chosen(shown, state).map(([name, value]) => `${name}=${typeof value === "string" ? repr(value) : value}`).join(", ")})`);
  const { part, layers } = shown, all = layers[0].heads.length;
  let line = call(shown.heads === 1 ? "only" : "matrix");
  if (state.layer === MEAN && part.name === "cross") line = `sum(layer.weights.mean(axis=0) for layer in ${call("only")}.layers) / ${layers.length}`;
  else if (state.layer !== MEAN && shown.heads > 1 && shown.heads < all) line = `${call("only")}.layers[0].weights[[${[...state.heads].sort((a, b) => a - b).join(", ")}]].mean(axis=0)`;
  return `import regard${off.length ? ".verbs" : ""}; ${line}${remark(ask)}`;
}

/** The command that makes a page of it. */
export function command(run: string, ask: Ask, shown: Shown, state: State): string {
  const texts = [run, ask.text, ...(ask.second === undefined ? [] : [ask.second])], dashed = texts.some((text) => text.startsWith("-"));
  const options = changes(ask).map((one) => `--off ${quote(one)}`);
  if (ask.target !== undefined) options.push(`--target=${quote(ask.target)}`);
  else if ((ask.beam ?? 1) > 1) options.push(`--beam ${ask.beam}`);
  options.push(...chosen(shown, state).map(([name, value]) => `--${name} ${quote(String(value))}`));
  const given = texts.map(quote).join(" "), end = "-o look.html";
  return `${(dashed ? ["regard look", ...options, end, "--", given] : ["regard look", given, ...options, end]).join(" ")}${remark(ask)}`;
}
