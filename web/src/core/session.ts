// What is drawn: the page as it was made, or the answer of the engine to what the state asks.

import type { PageData } from "../data.ts";
import type { Answer, Ask, Engine } from "../engine/api.ts";
import type { Drawn } from "./shown.ts";
import type { Store } from "./store.ts";

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
    void engine.ask(this.whole({})).then(
      (answer) => this.settle(() => (this.original = answer)),
      () => undefined, // a question that came first has cancelled it
    );
    this.follow(store.state.ask);
  }

  /** A question with everything that it does not change. */
  whole(ask: Partial<Ask>): Ask {
    const [text = "", second] = this.page.origin?.texts ?? [], target = this.page.origin?.target;
    const base: Ask = { text, ...(second === undefined ? {} : { second }), ...(target ? { target } : {}) };
    return { ...base, ...ask };
  }

  /** Changes the question: what is undefined is asked no longer. The state keeps it, so that Back undoes it. */
  change(change: { [K in keyof Ask]?: Ask[K] | undefined }): void {
    const ask = Object.fromEntries(Object.entries({ ...this.store.state.ask, ...change }).filter(([, value]) => value !== undefined));
    this.store.set({ ask });
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
    this.engine?.ask(this.whole(ask)).then(
      (answer) => {
        if (asked !== this.asked) return;
        const drawn = answer.parts.length ? { parts: answer.parts, frames: answer.frames } : this.drawn;
        this.settle(() => Object.assign(this, { drawn, answer, busy: false, trouble: "" }));
      },
      (error: unknown) => {
        const message = error instanceof Error ? error.message : String(error);
        if (asked === this.asked && message !== "cancelled") this.settle(() => Object.assign(this, { busy: false, trouble: message }));
      },
    );
  }
}
