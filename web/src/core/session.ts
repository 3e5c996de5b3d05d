// What is drawn: the page as it was made, or the answer of the engine to what the state asks.

import type { PageData } from "../data.ts";
import type { Answer, Ask, Engine } from "../engine/api.ts";
import { CANCELLED } from "../engine/client.ts";
import type { Drawn } from "./shown.ts";
import type { Store, Weight } from "./store.ts";

/** Changes of a question; undefined: as when the page was made. */
export type Change = { [K in keyof Ask]?: Ask[K] | undefined };

const MOST = 120_000; // cells of one matrix: a browser draws about a hundred thousand in a second

export class Session {
  drawn: Drawn;
  /** The answer to what is asked now; null: the page is as it was made. */
  answer: Answer | null = null;
  /** The answer to the question with which the page was made, once the engine has it. */
  original: Answer | null = null;
  /** Whether the engine computes. */
  busy = false;
  /** Why there is no answer. */
  trouble = "";
  private asked = "{}";

  constructor(
    private readonly page: PageData,
    private readonly engine: Engine | null,
    private readonly store: Store,
  ) {
    this.drawn = page;
    if (!engine || !page.origin) return;
    store.subscribe(({ ask }) => this.follow(ask));
    this.begin();
    this.follow(store.state.ask);
  }

  /** Asks the question with which the page was made. A later question may cancel it: then it is asked after that one. */
  private begin(): void {
    if (this.original) return;
    this.engine?.ask(this.whole({})).then((answer) => this.settle(() => (this.original = answer)), () => undefined);
  }

  /** A question with everything that it does not change. */
  whole(ask: Partial<Ask>): Ask {
    const [text = "", second] = this.page.origin?.texts ?? [], target = this.page.origin?.target;
    const base: Ask = { text, ...(second === undefined ? {} : { second }), ...(target ? { target } : {}) };
    const { target: own, ...free } = { ...base, ...ask };
    return own ? { ...free, target: own } : free; // an empty target is none: the model writes its own
  }

  /** The question of the state with a change: what is undefined is asked no longer. */
  asking(change: Change): Partial<Ask> {
    return Object.fromEntries(Object.entries({ ...this.store.state.ask, ...change }).filter(([, value]) => value !== undefined));
  }

  /** Changes the question. The state keeps it, so that Back undoes it. */
  change(change: Change, weight: Weight = "choice"): void {
    this.store.set({ ask: this.asking(change) }, weight);
  }

  private settle(change: () => void): void {
    change();
    this.store.set({}, "none");
  }

  private follow(ask: Partial<Ask>): void {
    const asked = JSON.stringify(ask);
    if (asked === this.asked) return;
    this.asked = asked;
    if (asked === "{}") {
      this.settle(() => Object.assign(this, { drawn: this.page, answer: null, busy: false, trouble: "" }));
      return;
    }
    this.busy = true;
    const fail = (error: unknown): void => {
      const trouble = error instanceof Error ? error.message : String(error);
      if (asked === this.asked && trouble !== CANCELLED) this.settle(() => Object.assign(this, { busy: false, trouble }));
    };
    this.engine?.ask(this.whole(ask)).then((answer) => {
      if (asked !== this.asked) return;
      const large = answer.parts.find(({ rows, columns }) => rows.length * columns.length > MOST);
      if (large) {
        fail(`a matrix of ${large.rows.length} rows and ${large.columns.length} columns is too large to draw; give a shorter text`);
        return;
      }
      const drawn = answer.parts.length ? { parts: answer.parts, frames: answer.frames } : this.drawn;
      this.settle(() => Object.assign(this, { drawn, answer, busy: false, trouble: "" }));
      this.begin();
    }, fail);
  }
}
