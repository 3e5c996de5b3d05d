// The worker of a page: it holds the model and answers one question at a time. A question is stopped after LIMIT
// milliseconds; one that computes without an end, such as a pattern of a tokenizer, is stopped by the client, which
// ends the worker (client.ts).

import { Machine } from "./answer.ts";
import type { FromWorker, ToWorker } from "./api.ts";
import { rank } from "./rank.ts";
import { Stopped } from "./recorder.ts";
import { LIMIT } from "./time.ts";

declare const self: { postMessage(message: FromWorker): void; onmessage: ((event: { data: ToWorker }) => void) | null };

let machine: Machine | null = null;
let failure = "the page has no model";
let latest = 0; // the number of the last question

self.onmessage = ({ data }) => {
  if (data.type === "load") {
    const start = performance.now();
    try {
      machine = new Machine(data.model, data.weights);
      self.postMessage({ type: "ready", milliseconds: performance.now() - start });
    } catch (error) {
      failure = messageOf(error); // the answer to every question
    }
    return;
  }
  latest = data.number;
  if (data.type === "rank") {
    void ranked(data);
    return;
  }
  attempt(data.number, () => {
    self.postMessage({ type: "answer", number: data.number, answer: loaded().answer(data.ask, timer()) });
  });
};

/** Tries the heads one by one; between two of them, a new question can come and stop this one. */
async function ranked({ number, ask, kind }: Extract<ToWorker, { type: "rank" }>): Promise<void> {
  let check = timer();
  const steps = machine && rank(machine, ask, kind, () => check());
  if (!steps) return attempt(number, loaded);
  for (let done = 0, going = true; going && latest === number; done++) {
    attempt(number, () => {
      check = timer();
      const { value, done: ended } = steps.next();
      going = !ended;
      if (value) self.postMessage({ type: "ranked", number, damages: value.damages, done: done + 1, of: value.of });
      else if (done === 0) self.postMessage({ type: "ranked", number, damages: [], done: 0, of: 0 }); // there are no heads
    }, () => (going = false));
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}

function loaded(): Machine {
  if (!machine) throw new Error(failure);
  return machine;
}

/** Throws after the time limit. */
function timer(): () => void {
  const end = performance.now() + LIMIT;
  return () => {
    if (performance.now() > end) throw new Stopped(`the model took longer than ${LIMIT / 1000} seconds, so this page stopped it; give a shorter text`);
  };
}

/** Sends an error to the page instead of ending the worker. */
function attempt(number: number, action: () => void, failed: () => void = () => {}): void {
  try {
    action();
  } catch (error) {
    failed();
    self.postMessage({ type: "error", number, message: messageOf(error) });
  }
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
