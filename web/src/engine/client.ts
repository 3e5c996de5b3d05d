// The engine of a page: the worker, and what happens when questions come faster than answers.

import type { Answer, Damage, Engine, FromWorker, ToWorker } from "./api.ts";
import type { LiveModel } from "../data.ts";
import { GRACE, LIMIT, PATIENCE } from "./time.ts";

type Progress = (damages: Damage[], of: number) => void;

interface Question {
  number: number;
  send: ToWorker;
  resolve(found: Answer | Damage[]): void;
  reject(error: Error): void;
  progress: Progress;
  started: number;
}

/** The message of a question that a later one overtook. */
export const CANCELLED = "cancelled";

/** The engine of the model of a page, given the weights in base 64 and the script of the worker. */
export function startEngine(model: LiveModel, weights: string, script: string): Engine {
  const client = new Client(script, model, bytesOf(weights));
  return {
    ask: (ask) => client.put((number) => ({ type: "ask", number, ask })) as Promise<Answer>,
    rank: (ask, kind, progress) => client.put((number) => ({ type: "rank", number, ask, kind }), progress) as Promise<Damage[]>,
  };
}

/** Damaged text gives no bytes: then the worker says that the weights are not complete. */
function decoded(base64: string): string {
  try {
    return atob(base64);
  } catch {
    return "";
  }
}

/** Eight megabytes take 35 ms, and a second with Uint8Array.from. */
function bytesOf(base64: string): ArrayBuffer {
  const text = decoded(base64), found = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) found[at] = text.charCodeAt(at);
  return found.buffer;
}

/**
 * One question runs and one waits; a new one takes the place of that which waits, and ends that which runs too long. A
 * ranking ends no question: it waits for the answer.
 */
class Client {
  private worker: Worker | null = null;
  private running: Question | null = null;
  private waiting: Question | null = null;
  private count = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly url: string;

  constructor(script: string, private readonly model: LiveModel, private readonly weights: ArrayBuffer) {
    this.url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  }

  put(make: (number: number) => ToWorker, progress: Progress = () => {}): Promise<Answer | Damage[]> {
    return new Promise((resolve, reject) => {
      const number = ++this.count;
      const question = { number, send: make(number), resolve, reject, progress, started: 0 };
      this.waiting?.reject(new Error(CANCELLED));
      this.waiting = question;
      const { running } = this;
      if (!running) this.next();
      else if (running.send.type === "rank") this.overtake(false); // the worker stops it between two heads
      else if (question.send.type === "ask") this.schedule(running.started + PATIENCE - performance.now(), () => this.overtake(true));
    });
  }

  private next(): void {
    clearTimeout(this.timer);
    [this.running, this.waiting] = [this.waiting, null];
    if (!this.running) return;
    this.running.started = performance.now();
    try {
      this.worker ??= this.start();
    } catch {
      this.fail(); // this browser, or a policy, has no workers
      return;
    }
    this.worker.postMessage(this.running.send);
    this.limit();
  }

  /** A later question takes the place of the one that runs. */
  private overtake(end: boolean): void {
    if (end) this.end();
    this.running?.reject(new Error(CANCELLED));
    this.next();
  }

  /** The time limit of the running question; each head of a ranking has it anew. */
  private limit(): void {
    this.schedule(LIMIT + GRACE, () => {
      this.end();
      this.running?.reject(new Error(`the model took longer than ${LIMIT / 1000} seconds, so this page stopped it; give a shorter text`));
      this.next();
    });
  }

  private schedule(milliseconds: number, action: () => void): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(action, Math.max(0, milliseconds));
  }

  private start(): Worker {
    const worker = new Worker(this.url);
    worker.onmessage = ({ data }: MessageEvent<FromWorker>) => this.receive(data);
    worker.onerror = () => this.fail();
    worker.postMessage({ type: "load", model: this.model, weights: this.weights } satisfies ToWorker);
    return worker;
  }

  private fail(): void {
    this.end();
    this.receive({ type: "error", number: this.running?.number ?? 0, message: "this browser could not run the model, so the page stays as it was made" });
  }

  private end(): void {
    this.worker?.terminate();
    this.worker = null;
  }

  private receive(message: FromWorker): void {
    const { running } = this;
    if (message.type === "ready" || !running || message.number !== running.number) return;
    if (message.type === "ranked") {
      running.progress(message.damages, message.of);
      this.limit();
      if (message.done < message.of) return;
      running.resolve(message.damages);
    } else if (message.type === "answer") running.resolve(message.answer);
    else running.reject(new Error(message.message));
    this.next();
  }
}
