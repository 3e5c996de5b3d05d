// What is drawn: the page as it was made, or the answer of the engine to what the state asks.

import type { PageData } from "../data.ts";
import type { Answer, Ask, Engine } from "../engine/api.ts";
import { CANCELLED } from "../engine/client.ts";
import type { Drawn } from "./shown.ts";
import type { State, Store, Weight } from "./store.ts";

/** Changes of a question; undefined: as when the page was made. */
export type Change = { [K in keyof Ask]?: Ask[K] | undefined };

/** What the page asks when it opens: nothing but its texts, or the changes of heads with which it was made. */
export const asMade = ({ origin }: PageData): Partial<Ask> => (origin?.heads.length ? { heads: origin.heads } : {});

const MOST = 120_000; // cells of one matrix: a browser draws about a hundred thousand in a second

/** A question beside that of the state. */
interface Aside {
  ask: Ask;
  settle(found: Answer | Error): void;
}

const KEPT = 24; // answers to questions beside that of the state

export class Session {
  drawn: Drawn;
  /** The answer to what is asked now; null: the page is as it was made, without a change of heads. */
  answer: Answer | null = null;
  /** The answer to the question with which the page was made, once the engine has it. */
  original: Answer | null = null;
  /** Whether the engine computes. */
  busy = false;
  /** Why there is no answer. */
  trouble = "";
  private readonly made: string;
  /** Whether the step follows the end of a text that is edited: the last step of a language model predicts what comes next. */
  private ends = false;
  private asked: string;
  /** How often the question of the state has changed: an answer counts only if there was no change since. */
  private changes = 0;
  private running = 0;
  /** The questions that wait, by the view that asks. */
  private readonly asides = new Map<string, Aside>();
  private readonly known = new Map<string, Answer | Error | null>();

  constructor(
    private readonly page: PageData,
    private readonly engine: Engine | null,
    private readonly store: Store,
  ) {
    this.drawn = page;
    this.asked = this.made = JSON.stringify(asMade(page));
    if (!engine || !page.origin) return;
    store.subscribe(({ ask }) => this.follow(ask));
    this.follow(store.state.ask);
    this.first();
  }

  /** Asks for the answer to the page itself; a question that came first may have cancelled it. */
  private first(): void {
    this.aside("original", asMade(this.page), (answer) => {
      this.original = answer;
      if (this.asMade) this.answer = this.unlike();
    }, ({ message }) => {
      if (message === CANCELLED) this.first();
      else if (this.asMade) this.settle(() => (this.trouble = message));
    });
  }

  /** The answer to the page as it was made, if it says what changes of heads do. */
  private unlike(): Answer | null {
    return this.original?.effect ? this.original : null;
  }

  /**
   * The answer to a question of a view beside that of the state, or why there is none; null until it is there: then the
   * views are drawn again. It waits for the question of the state, and of each view only the last question counts.
   */
  beside(view: string, ask: Partial<Ask>): Answer | Error | null {
    const key = JSON.stringify(ask), found = this.known.get(key);
    if (found !== undefined) return found;
    this.known.set(key, null);
    for (const [old, answer] of this.known) if (this.known.size > KEPT && answer) this.known.delete(old);
    this.aside(view, ask, (answer) => this.known.set(key, answer), (error) => {
      if (error.message === CANCELLED) this.known.delete(key); // the next drawing asks again
      else this.settle(() => this.known.set(key, error));
    });
    return null;
  }

  private aside(view: string, ask: Partial<Ask>, keep: (found: Answer) => void, fail: (error: Error) => void = () => undefined): void {
    this.asides.get(view)?.settle(new Error(CANCELLED));
    const settle = (found: Answer | Error): void => (found instanceof Error ? fail(found) : this.settle(() => keep(found)));
    this.asides.set(view, { ask: this.whole(ask), settle });
    this.turn();
  }

  /** Asks what waits, if the engine is free. */
  private turn(): void {
    const [next] = this.asides;
    if (this.running || !next) return;
    const [view, { ask, settle }] = next;
    this.asides.delete(view);
    this.put(ask).then(settle, (error: unknown) => settle(error instanceof Error ? error : new Error(String(error))));
  }

  private async put(ask: Ask): Promise<Answer> {
    if (!this.engine) throw new Error("this page has no model");
    this.running++;
    try {
      return await this.engine.ask(ask);
    } finally {
      this.running--;
      this.turn();
    }
  }

  /** A question with everything that it does not change. */
  whole(ask: Partial<Ask>): Ask {
    const { texts: [text = "", second] = [], target = null, beam = 1 } = this.page.origin ?? {};
    const base: Ask = { text, ...(second === undefined ? {} : { second }), ...(target ? { target } : {}), ...(beam > 1 ? { beam } : {}) };
    const { target: own, ...free } = { ...base, ...ask };
    return own ? { ...free, target: own } : free; // an empty target is none: the model writes its own
  }

  /** The question of the state with a change: what is undefined is asked no longer. */
  asking(change: Change): Partial<Ask> {
    return Object.fromEntries(Object.entries({ ...this.store.state.ask, ...change }).filter(([, value]) => value !== undefined));
  }

  /** Changes the question. The state keeps it, so that Back undoes it. */
  change(change: Change, weight: Weight = "choice"): void {
    this.ends = "text" in change && this.page.live?.predicts === "next" && this.store.state.step === this.drawn.frames.length - 1;
    this.store.set({ ask: this.asking(change) }, weight);
  }

  /** Whether the last token that is drawn only closes a text that a language model has read: nobody wrote it. */
  get closed(): boolean {
    const { live } = this.page;
    return live?.predicts === "next" && live.tokenizer.special.eos !== null && (this.answer === null || this.answer.next !== undefined);
  }

  /** Whether the token of a step was given, in the text or as a target; otherwise the model has generated it. */
  given(step: number): boolean {
    const { parts, frames } = this.drawn, { ask } = this.store.state;
    return parts[0].name === "decoder" ? step < (this.answer?.given ?? frames.length) : this.whole(ask).target !== undefined && !ask.forced?.length;
  }

  /** Whether the page asks what it asked when it opened. */
  get asMade(): boolean {
    return this.asked === this.made;
  }

  /** Asks again what the page asked when it opened. */
  reset(): void {
    this.store.set({ ask: asMade(this.page) });
  }

  private settle(change: () => void, moved: Partial<State> | null = null): void {
    change();
    this.store.set(moved ?? {}, moved ? "step" : "none");
  }

  private follow(ask: Partial<Ask>): void {
    const asked = JSON.stringify(ask);
    if (asked === this.asked) return;
    this.asked = asked;
    this.changes++;
    const ends = this.ends;
    this.ends = false;
    if (this.asMade) {
      this.settle(() => Object.assign(this, { drawn: this.page, answer: this.unlike(), busy: false, trouble: "" }));
      return;
    }
    this.busy = true;
    this.submit(ask, this.changes, ends);
  }

  /** Asks the question of the state, until it has an answer or there is another one. */
  private submit(ask: Partial<Ask>, change: number, ends: boolean): void {
    const fail = (error: unknown): void => {
      const trouble = error instanceof Error ? error.message : String(error);
      if (change !== this.changes) return;
      if (trouble === CANCELLED) this.submit(ask, change, ends); // by a ranking of the heads
      else this.settle(() => Object.assign(this, { busy: false, trouble }));
    };
    this.put(this.whole(ask)).then((answer) => {
      if (change !== this.changes) return;
      const large = answer.parts.find(({ rows, columns }) => rows.length * columns.length > MOST);
      if (large) {
        fail(`a matrix of ${large.rows.length} rows and ${large.columns.length} columns is too large to draw; give a shorter text`);
        return;
      }
      const drawn = answer.parts.length ? { parts: answer.parts, frames: answer.frames } : this.drawn;
      const last = drawn.frames.length - 1, moved = ends && last >= 0 && last !== this.store.state.step;
      this.settle(() => Object.assign(this, { drawn, answer, busy: false, trouble: "" }), moved ? { step: last, row: last } : null);
    }, fail);
  }
}
