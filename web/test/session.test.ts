import assert from "node:assert/strict";
import { test } from "node:test";
import { asMade, Session } from "../src/core/session.ts";
import { type State, Store } from "../src/core/store.ts";
import type { PageData } from "../src/data.ts";
import type { Answer, Ask, Engine } from "../src/engine/api.ts";
import { CANCELLED } from "../src/engine/client.ts";
import { effectOf, outcomeOf } from "../src/engine/effect.ts";
import type { Machine } from "../src/engine/answer.ts";
import { predictions } from "../src/engine/predictions.ts";
import type { Tokenizer } from "../src/engine/tokenizers.ts";

const PAGE: PageData = { version: 1, parts: [], frames: [], faintest: 0, most: 1, origin: { run: "r", texts: ["a"], target: null, beam: 4, heads: [], opens: {} } };
const HEADS = [{ part: "cross", layer: 0, head: 0, kind: "off" as const }];

/** An engine whose questions wait until the test answers them. */
class Held implements Engine {
  readonly asked: { ask: Ask; answer(more?: Partial<Answer>): Promise<void>; cancel(): Promise<void> }[] = [];

  ask(ask: Ask): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const settled = (): Promise<void> => new Promise((done) => setTimeout(done, 0));
      this.asked.push({
        ask,
        answer: (more = {}) => (resolve({ text: ask.text, parts: [], frames: [], ...more } as unknown as Answer), settled()),
        cancel: () => (reject(new Error(CANCELLED)), settled()),
      });
    });
  }

  rank(): Promise<never> {
    return Promise.reject(new Error("not asked here"));
  }
}

function opened(page: PageData): { engine: Held; session: Session; store: Store } {
  const state: State = { view: "matrix", panel: "", part: 0, layer: 0, heads: [], fixed: false, hide: false, step: 0, row: 0, column: 0, ask: asMade(page), more: {} };
  const engine = new Held(), store = new Store(state);
  return { engine, store, session: new Session(page, engine, store) };
}

test("a question that a ranking cancelled is asked again", async () => {
  const { engine, session } = opened(PAGE);
  await engine.asked[0].answer();
  session.change({ text: "b" });
  assert.deepEqual(engine.asked[1].ask, { text: "b", beam: 4 });
  await engine.asked[1].cancel();
  assert.equal(session.busy, true);
  await engine.asked[2].answer();
  assert.deepEqual([session.busy, session.answer?.text], [false, "b"]);
  session.change({ text: "c" });
  session.change({ text: "d" });
  await engine.asked[3].cancel(); // a later question took its place: it is not asked again
  await engine.asked[4].answer();
  assert.deepEqual([engine.asked.length, session.answer?.text], [5, "d"]);
  for (const text of ["e", "f", "e"]) session.change({ text });
  await engine.asked[5].cancel();
  assert.equal(engine.asked.length, 8); // the same question again, not each of its two askings
});

test("the step at the end of a text that a language model reads stays at its end while the text is edited", async () => {
  const live = { predicts: "next" } as unknown as NonNullable<PageData["live"]>, frames = (count: number): Answer["frames"] => Array.from({ length: count }, () => ({})) as unknown as Answer["frames"];
  const { engine, session, store } = opened({ ...PAGE, live, frames: frames(2) }), parts = [{ rows: [], columns: [] }] as unknown as Answer["parts"];
  await engine.asked[0].answer();
  store.set({ step: 1 });
  session.change({ text: "a b" });
  await engine.asked[1].answer({ parts, frames: frames(4) });
  assert.deepEqual([store.state.step, store.state.row], [3, 3]);
  session.change({ limit: 2 }); // a continuation begins where the text ends
  await engine.asked[2].answer({ parts, frames: frames(6) });
  assert.equal(store.state.step, 3);
  session.change({ text: "c" }); // not at the end now
  await engine.asked[3].answer({ parts, frames: frames(8) });
  assert.equal(store.state.step, 3);
});

test("a page of changed heads shows their effect, and has it again after a change is undone", async () => {
  const { engine, session, store } = opened({ ...PAGE, origin: { ...PAGE.origin!, heads: HEADS } });
  assert.deepEqual(engine.asked[0].ask, { text: "a", beam: 4, heads: HEADS });
  assert.deepEqual([session.asMade, session.answer], [true, null]);
  const effect = { before: "x", after: "y", changed: true, tokens: [], scores: [] };
  await engine.asked[0].answer({ effect });
  assert.equal(session.answer?.effect, effect);
  session.change({ heads: undefined });
  assert.deepEqual([store.state.ask, engine.asked[1].ask], [{}, { text: "a", beam: 4 }]);
  await engine.asked[1].answer();
  assert.deepEqual([session.asMade, session.answer?.effect], [false, undefined]);
  session.reset();
  assert.deepEqual([session.asMade, session.answer?.effect, engine.asked.length], [true, effect, 2]);
});

test("the log-probability of a decision about a label is finite where its probability is almost 1", () => {
  const live = { predicts: "labels", names: ["a", "b"], threshold: 0.5 } as unknown as Machine["live"], machine = { live } as Machine;
  const answer = (...logits: number[]): Answer => predictions(live, null as unknown as Tokenizer, [], { rows: 1, width: 2, data: Float32Array.from(logits) }, 5, false) as Answer;
  const original = outcomeOf(machine, { text: "" }, answer(60, -60), null, () => undefined);
  const effect = effectOf(original, outcomeOf(machine, { text: "" }, answer(-60, 60), original, () => undefined));
  assert.deepEqual(effect.scores.map((score) => Number(score.toPrecision(6))), [-60, -60]);
  assert.equal(effect.changed, true);
});
