// What a view is, and what it is given.

import type { Keys } from "../core/keys.ts";
import type { Session } from "../core/session.ts";
import type { Shown } from "../core/shown.ts";
import type { State, Store } from "../core/store.ts";
import type { PageData } from "../data.ts";
import type { Engine } from "../engine/api.ts";

/** A view of a figure: a module that draws the state into an element of its own. */
export interface View {
  /** In the address, in ids and in the class of its element. */
  name: string;
  /** On its tab. */
  title: string;
  /** top: always shown above the columns. main: a tab of the main column. side: a tab of the side column. */
  place: "top" | "main" | "side";
  /** Whether it draws the scale of its own colours; otherwise the scale of the weights stands below it. */
  scaled?: true;
  /** Whether there is anything to show now; asked at every change. */
  available(context: Context): boolean;
  /** Builds the view once, when it is first shown, and returns what draws a state. It is called while the view is shown. */
  mount(root: HTMLElement, context: Context): (state: State) => void;
}

export interface Context {
  page: PageData;
  store: Store;
  /** The model in the page; null: the page cannot compute. */
  engine: Engine | null;
  /** What is drawn now, and the answers of the engine. `session.change` asks another question. */
  session: Session;
  /** What the state shows of it. */
  shown(): Shown;
  /** Whether this is a full page, with controls; otherwise it is one of several pictures. */
  full: boolean;
  /** The width that a picture among others may have. */
  room: number;
  /** What a screen reader says. */
  announce(text: string): void;
  keys: Keys | null;
}

/** Goes to a decoding step; the matrix, the lines and the panels follow. */
export function goStep(context: Context, step: number): void {
  const last = context.shown().frames.length - 1;
  const to = Math.max(0, Math.min(last, step));
  context.store.set({ step: to, row: to }, "step");
}

/** Whether the page computes a model that has attention: a part without it has no masks. */
export const attends = ({ full, engine, session }: Context): boolean =>
  full && engine !== null && session.drawn.parts.some(({ layers }) => layers.some(({ masked }) => masked !== null));

/** Chooses a cell: the view of one cell computes it. */
export function chooseCell(context: Context, row: number, column: number, weight: "choice" | "step"): void {
  const more = { ...context.store.state.more, "cell.row": String(row), "cell.column": String(column) };
  context.store.set({ row, column, more, ...(context.shown().stepped ? { step: row } : {}) }, weight);
}
