// Decoding step by step: the bar that goes from step to step, and the panels in the order in which the model computes them.

import { apart, isUnknown, named } from "../core/axes.ts";
import { button, make } from "../core/dom.ts";
import { formatNumber, minus, share } from "../core/scale.ts";
import { at, describe, hottest, isMasked, type Shown, written } from "../core/shown.ts";
import type { Frame, Shows } from "../data.ts";
import { type Context, goStep, type View } from "./view.ts";

const stepped = (context: Context): boolean => context.full && context.shown().stepped;

/** What a screen reader says of a step. */
function saying(shown: Shown, step: number, closed: boolean, given: boolean): string {
  const frame = shown.frames[step], hot = hottest(shown, step);
  const looks = hot < 0 ? "" : ` Looks most at ${named(shown.part, "columns", hot)}, ${written(shown, at(shown, step, hot))}.`;
  const sure = frame.top.find(([piece]) => piece === frame.token);
  if (closed && step === shown.frames.length - 1) return `Step ${step + 1} of ${shown.frames.length}, after the text.${looks} The likeliest next token is ${frame.top[0][0]}.`;
  const output = shown.frames.slice(0, step + 1).map(({ text }) => text).join("");
  return `Step ${step + 1} of ${shown.frames.length}.${looks} ${given ? "The given token is" : "Generates"} ${frame.token}${sure ? `, probability ${sure[2]}` : ""}. Output so far: ${output}`;
}

export const stepper: View = {
  name: "stepper",
  title: "Decoding steps",
  place: "top",
  available: stepped,
  mount(root, context) {
    const count = make("span", { class: "count" }), output = make("ol", { class: "output", "aria-label": "Output so far" });
    const last = (): number => context.shown().frames.length - 1, now = (): number => Math.min(context.store.state.step, last());
    const moves: [string, string, string, () => number][] = [
      ["⇤", "First step", "Home", () => 0], ["←", "Previous step", "←", () => now() - 1],
      ["→", "Next step", "→", () => now() + 1], ["⇥", "Last step", "End", last],
    ];
    const buttons = moves.map(([sign, name, key, to]) => button(sign, () => goStep(context, to()), { "aria-label": name, title: `${name} (${key})` }));
    const bar = make("div", { class: "buttons" }, ...buttons.slice(0, 2), count, ...buttons.slice(2));
    root.append(make("nav", { class: "bar", "aria-label": "Decoding steps" }, bar, output));
    const here = (): boolean => stepped(context);
    const act = (to: () => number) => () => goStep(context, to());
    context.keys?.add(
      { keys: ["ArrowLeft"], help: "", when: here, act: act(() => now() - 1) },
      { keys: ["ArrowRight"], help: "", when: here, act: act(() => now() + 1) },
      { keys: ["Home"], help: "", when: here, act: act(() => 0) },
      { keys: ["End"], help: "", when: here, act: act(last) },
    );
    let drawn: Shown | null = null, before = -1;
    return () => {
      const shown = context.shown(), step = now(), { closed } = context.session;
      const name = (frame: Frame, i: number): string => (closed && i === last() ? "?" : frame.token); // nothing follows the text yet
      count.textContent = `Step ${step + 1} of ${shown.frames.length}`;
      output.replaceChildren(...shown.frames.slice(0, step + 1).map((frame, i) => make("li", { dir: "auto", "aria-current": i === step ? "step" : null }, name(frame, i))));
      // not "disabled", which would take the focus away from the button at the last step
      buttons.forEach((one, i) => one.setAttribute("aria-disabled", String(step === (i < 2 ? 0 : last()))));
      if (drawn === shown && before === step) return;
      [drawn, before] = [shown, step];
      context.announce(saying(shown, step, closed, context.session.given(step)));
    };
  },
};

/** A vector: one cell for each number, as dark as its size, in one colour below 0 and another above. */
export function strip(vector: readonly (number | null)[]): HTMLElement[] {
  const most = vector.reduce<number>((found, one) => Math.max(found, Math.abs(one ?? 0)), 1e-9);
  const numbers = vector.map((one) => one ?? NaN), [low, high] = [Math.min(...numbers), Math.max(...numbers)].map((one) => minus(formatNumber(Number(one.toPrecision(3)))));
  const line = make("div", { class: "strip", role: "img", "aria-label": `${vector.length} numbers from ${low} to ${high}` });
  vector.forEach((value, i) => {
    const tone = (value ?? 0) < 0 ? "var(--warm)" : "var(--ink)";
    line.append(make("i", { "data-tip": `[${i}]  ${formatNumber(value)}`, "--tone": tone, "--share": share(Math.abs(value ?? 0), most) }));
  });
  const end = formatNumber(Number(most.toPrecision(3)));
  const legend = make("span", { class: "legend" }, `−${end} `, make("i"), " 0 ", make("i"), ` ${end}`);
  return [line, make("p", { class: "range" }, make("span", {}, `${vector.length} wide, ${low} … ${high}`), legend)];
}

/** The weights of one row as bars. */
function bars(list: HTMLElement, shown: Shown, row: number): void {
  const { part, vmax } = shown, hot = hottest(shown, row);
  list.replaceChildren(...part.labels.columns.map((name, j) => {
    const weight = at(shown, row, j), text = describe(shown, row, j);
    const value = weight >= 0.05 * vmax ? weight.toFixed(2).replace(/^0/, "") : "";
    const bar = make("i", { class: isMasked(shown, row, j) ? "masked" : "", "--share": share(weight, vmax) });
    return make("li", { class: j === hot ? "hot" : "", hidden: shown.hidden?.columns.has(j), "data-tip": text, "aria-label": text },
      make("span", { class: "room" }, value, bar),
      make("span", { class: `name${isUnknown(part, "columns", j) ? " unknown" : ""}`, dir: "auto" }, name));
  }));
  const strong = list.children[hot];
  if (strong instanceof HTMLElement) list.scrollLeft = strong.offsetLeft - list.offsetLeft - list.clientWidth / 2;
}

/** The likeliest tokens; `closed`: the token of the step itself only closes a text, and counts if it is likely. */
function ranking(body: HTMLElement, { token, top }: Frame, closed: boolean, given: boolean): void {
  const best = top.reduce((most, entry, i) => ((entry[1] ?? -Infinity) > (top[most][1] ?? -Infinity) ? i : most), 0);
  body.replaceChildren(...top.flatMap(([piece, logit, chance], i) => {
    const own = piece === token, mark = i === best ? "argmax" : own && !closed ? (given ? "given" : "generated") : "";
    if (closed && own && i === top.length - 1) return [];
    return [make("tr", { class: i === best ? "best" : "" },
      make("td", { dir: "auto" }, piece), make("td", {}, minus(formatNumber(logit))), make("td", {}, formatNumber(chance)),
      make("td", {}, make("div", { class: "gauge", "--share": share(chance ?? 0, 1) })), make("td", {}, mark))];
  }));
}

function table(): { element: HTMLElement; body: HTMLElement } {
  const body = make("tbody"), unseen = (text: string): HTMLElement => make("th", {}, make("span", { class: "unseen" }, text));
  const names = ["token", "logit", "probability"].map((name) => make("th", { scope: "col" }, name));
  const head = make("thead", {}, make("tr", {}, ...names, unseen("bar"), unseen("verdict")));
  return { element: make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The likeliest tokens" }, make("table", { class: "ranking" }, head, body)), body };
}

export const steps: View = {
  name: "steps",
  title: "Step",
  place: "side",
  available: stepped,
  mount(root, context) {
    const heading = (): HTMLElement => make("h2");
    const list = make("ol", { class: "bars", tabindex: 0, "aria-label": "The weights of this step" }), { element, body } = table();
    const panel = (shows: Shows, content: HTMLElement): HTMLElement => make("section", { "data-stage": shows }, heading(), content);
    const panels: Record<Shows, HTMLElement> = {
      before: panel("before", make("div")), state: panel("state", make("div")), weights: panel("weights", list),
      context: panel("context", make("div")), logits: panel("logits", element),
    };
    const chain = make("div", { class: "steps" }, ...Object.values(panels));
    root.append(chain);
    return (state) => {
      const shown = context.shown(), { part } = shown, step = Math.min(state.step, shown.frames.length - 1), frame = shown.frames[step];
      const vectors: Partial<Record<Shows, (number | null)[] | null>> = { before: frame.before, state: frame.state, context: shown.contexts?.[step] ?? null };
      const there = part.chain.filter(([shows]) => shows !== "context" || shown.contexts); // not stored for some choices
      for (const section of Object.values(panels)) section.hidden = true;
      there.forEach(([shows, title, note], i) => {
        const section = panels[shows], after = shows === "logits" && part.name !== "cross" && context.page.live?.predicts !== "target" ? `the token after ${apart(part.rows[step])}` : note;
        const heads = shows === "context" && shown.heads > 1 ? `, of ${shown.heads} heads side by side` : "";
        section.firstElementChild?.replaceChildren(make("b", {}, String(i + 1)), `${title} `, make("small", {}, after + heads));
        section.hidden = false;
        chain.append(section);
        const vector = vectors[shows];
        if (vector) section.lastElementChild?.replaceChildren(...strip(vector));
      });
      bars(list, shown, step);
      ranking(body, frame, context.session.closed && step === shown.frames.length - 1, context.session.given(step));
    };
  },
};
