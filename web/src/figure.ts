// One figure of attention: a full one, with controls and panels, or a compact one among others.

import { Announcer } from "./core/announce.ts";
import { Controls } from "./core/controls.ts";
import { make } from "./core/dom.ts";
import { exportBar } from "./core/exports.ts";
import { Keys } from "./core/keys.ts";
import { asMade, Session } from "./core/session.ts";
import { strongest } from "./core/scores.ts";
import { type Drawn, select, type Shown } from "./core/shown.ts";
import { type State, Store } from "./core/store.ts";
import { NumberTable } from "./core/table.ts";
import { Tabs } from "./core/tabs.ts";
import { follow, fromHash } from "./core/url.ts";
import type { PageData } from "./data.ts";
import type { Engine } from "./engine/api.ts";
import { VIEWS } from "./views/index.ts";
import { attends, type Context, type View } from "./views/view.ts";

/**
 * A figure opens on one head: the one that is asked for, or the strongest one of the part and layer, or of the first part.
 * A translator begins at its first step; a language model at its last one, which predicts what follows the text.
 */
export function firstState(page: PageData): State {
  const opens = page.origin?.opens ?? {};
  const part = Math.max(0, page.parts.findIndex(({ name }) => name === opens.part)), { layers } = page.parts[part];
  const asked = layers.findIndex(({ number }, place) => (number ?? place) === opens.layer);
  const [layer, strong] = asked < 0 ? strongest(page.parts[part]) : [asked, strongest({ ...page.parts[part], layers: [layers[asked]] })[1]];
  const { heads } = layers[layer], head = opens.head === undefined ? strong : Math.max(0, heads.indexOf(opens.head));
  const step = page.parts[part].name === "decoder" && !page.parts.some(({ name }) => name === "cross") ? Math.max(0, page.frames.length - 1) : 0;
  return {
    view: "matrix", panel: "", part, layer, heads: heads.length > 1 ? [head] : [],
    fixed: false, hide: false, step, row: step, column: 0, ask: asMade(page), more: {},
  };
}

/** What the state shows; computed again only if something that it depends on has changed. */
function memo(session: Session, store: Store, vmax: number | undefined): () => Shown {
  let key = "", drawn: Drawn | null = null, found: Shown | null = null;
  return () => {
    const { part, layer, heads, fixed, hide } = store.state, now = JSON.stringify([part, layer, heads, fixed, hide]);
    if (!found || drawn !== session.drawn || key !== now) [found, drawn, key] = [select(session.drawn, store.state, vmax), session.drawn, now];
    return found;
  };
}

/** A view with its element; it is mounted when it is first shown. */
class Mounted {
  readonly root: HTMLElement;
  private draw: ((state: State) => void) | null = null;

  constructor(readonly view: View, private readonly context: Context) {
    this.root = make("div", { class: `view ${view.name}-view` });
  }

  show(state: State): void {
    this.root.hidden = false;
    this.draw ??= this.view.mount(this.root, this.context);
    this.draw(state);
  }
}

/** The scale below the picture, and the signs that it uses. */
class Legend {
  private end = make("span", { class: "vmax" });
  private kind = make("span", { class: "kind" });
  private hatched = make("span", { class: "hatched" }, make("b", { class: "masked" }), " may not look");
  private ringed = make("span", { class: "ringed" }, make("b", { class: "unknown" }, "a"), " not in the vocabulary");
  readonly element = make("p", { class: "key" }, "0 ", make("i"), " ", this.end, " ", this.kind, " ", this.hatched, " ", this.ringed);

  update(shown: Shown, state: State, shared: boolean): void {
    const lines = state.view === "lines", bound = lines ? shown.bound : shown.vmax, tables = lines ? shown.tables : [shown.weights];
    const more = tables.some((table) => table.some((weight) => weight > bound));
    this.end.textContent = `${bound}${more ? " and more" : ""}`;
    this.kind.textContent = state.fixed ? "the whole scale" : shared ? "the same scale in all pictures" : "the scale fits what is shown";
    this.hatched.hidden = lines || !shown.anyMasked;
    this.ringed.hidden = !shown.part.unknown.rows.length && !shown.part.unknown.columns.length;
  }
}

/** Keeps the picture in sight beside a longer column; of one that is taller than the window the end stays in sight. */
function stick(look: HTMLElement): void {
  const place = (): void => look.style.setProperty("--top", `${Math.min(16, innerHeight - look.offsetHeight - 16)}px`);
  new ResizeObserver(place).observe(look);
  addEventListener("resize", place);
}

export interface Options {
  page: PageData;
  full: boolean;
  engine: Engine | null;
  /** Before the ids of its elements. */
  prefix: string;
}

/** Draws a figure into its element. */
export function mountFigure(root: HTMLElement, { page, full, engine, prefix }: Options): Context {
  const first = firstState(page), keys = full ? new Keys() : null, announcer = new Announcer();
  const store = new Store(full ? fromHash(location.hash, first, page.parts) : first);
  const session = new Session(page, engine, store);
  const shown = memo(session, store, page.vmax);
  const gallery = root.closest<HTMLElement>(".gallery"), wide = root.closest(".large") ? 1 : 0.5;
  const room = Math.min(1000, (gallery?.clientWidth ?? root.clientWidth) * (innerWidth > 760 ? wide : 1) - 64);
  const context: Context = { page, store, session, engine, full, keys, shown, room, announce: (text) => announcer.say(text) };

  const views = VIEWS.map((view) => new Mounted(view, context));
  const at = (place: View["place"]): Mounted[] => views.filter(({ view }) => view.place === place);
  const tabs = (label: string, place: "main" | "side", key: "view" | "panel"): Tabs =>
    new Tabs(label, at(place).map(({ view, root: panel }) => ({ name: view.name, title: view.title, panel })), prefix, (name) => store.set({ [key]: name }));
  const [main, side] = [tabs("View", "main", "view"), tabs("Panel", "side", "panel")];
  const label = make("span", { class: "label" }), caption = make("small", { class: "caption" }), legend = new Legend();
  const controls = full ? new Controls(context) : null;
  const heading = make(full ? "h2" : "p", full ? {} : { class: "quiet about" }, label, " ", caption);
  const table = new NumberTable(shown), below = [legend.element, ...(full ? [exportBar(context)] : []), table.element];
  const look = make("div", { class: full ? "card look" : "look" }, heading, ...at("main").map((one) => one.root), ...below);
  const panels = make("div", { class: "card side" }, side.list, ...at("side").map((one) => one.root));
  const columns = make("div", { class: "columns" }, look, panels);
  if (full && keys && controls) {
    root.replaceChildren(...at("top").map((one) => one.root), main.list, controls.element, columns, announcer.element, make("div", { class: "quiet help" }, keys.help));
    stick(look);
  } else root.replaceChildren(look, announcer.element);

  /** Shows those of a column that have anything to show, and the chosen one of them. */
  const column = (list: Tabs, place: "main" | "side", chosen: string, state: State): View | undefined => {
    const there = at(place).filter(({ view }) => view.available(context));
    const one = there.find(({ view }) => view.name === chosen) ?? there[0];
    list.update(there.map(({ view }) => view.name), one?.view.name ?? "");
    one?.show(state);
    return one?.view;
  };
  const update = (state: State): void => {
    const now = shown(), changed = label.textContent !== now.label;
    label.textContent = now.label;
    const none = engine !== null && !attends(context); // the engine names the layer "no attention"
    caption.textContent = none ? "the model has none, so the picture is empty" : now.part.captions[state.view === "lines" ? 1 : 0];
    legend.update(now, state, page.vmax !== undefined);
    table.update();
    controls?.update();
    if (full && changed) announcer.say("");
    const beside = full && at("side").some(({ view }) => view.available(context));
    root.classList.toggle("wide", beside);
    panels.hidden = !beside;
    if (full) for (const one of at("top")) one.view.available(context) ? one.show(state) : (one.root.hidden = true);
    legend.element.hidden = column(main, "main", full ? state.view : "matrix", state)?.scaled ?? false;
    if (beside) column(side, "side", state.panel, state);
    if (full && changed) announcer.say(`${now.label}. ${announcer.text}`);
    keys?.write();
  };
  if (keys) {
    const cycle = (): void => {
      const there = at("main").filter(({ view }) => view.available(context)).map(({ view }) => view.name);
      store.set({ view: there[(there.indexOf(store.state.view) + 1) % there.length] });
    };
    keys.add(
      { keys: ["←", "→"], help: "step", offered: () => shown().stepped, when: () => false, act: () => undefined },
      { keys: ["Home", "End"], help: "jump", offered: () => shown().stepped, when: () => false, act: () => undefined },
      { keys: ["v"], help: "next view", act: cycle },
      { keys: ["Tab"], help: "enters the matrix or the lines, arrow keys move in it, Esc leaves it", when: () => false, act: () => undefined },
    );
  }
  store.subscribe(update);
  if (full) follow(store, first, () => session.drawn.parts);
  update(store.state);
  return context;
}
