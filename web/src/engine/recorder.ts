// What one question listens to and changes: the taps that every read of a model passes.

import type { Ask, Cell, HeadChange, TraceLine } from "./api.ts";
import type { Read, Taps } from "./model.ts";

/** A question took longer than its time, or a later one came. */
export class Stopped extends Error {}

export class Recorder implements Taps {
  /** Part → layer → the reads, in order. */
  readonly reads = new Map<string, Map<number, Read[]>>();
  readonly lines: TraceLine[] = [];
  readonly score: Taps["score"];
  cell: Cell | null;
  private readonly hidden: ReadonlySet<number>;

  /** `translates`: the places of the question are those of the source. `check` throws if the question is to stop. */
  constructor(private readonly ask: Ask, private readonly translates: boolean, private readonly check: () => void, private readonly records = true) {
    this.score = ask.score ?? null;
    this.cell = records ? (ask.cell ?? null) : null;
    this.hidden = new Set(ask.masks?.columns);
  }

  visible(part: string, query: number, key: number, own: boolean): boolean {
    const { window, causal } = this.ask.masks ?? {};
    const across = part === "cross", ofSource = !this.translates || part !== "decoder";
    if (ofSource && this.hidden.has(key)) return false;
    if (!across && window !== undefined && Math.abs(query - key) > window) return false;
    if (part === "encoder" && causal === true && key > query) return false;
    return part === "decoder" && causal === false ? true : own;
  }

  change(part: string, layer: number, head: number, query: number, weights: Float32Array, visible: Uint8Array): void {
    for (const one of this.ask.heads ?? []) {
      if (one.part !== part || one.layer !== layer || one.head !== head) continue;
      change(one, query, weights, visible);
      for (let j = 0; j < weights.length; j++) if (!visible[j]) weights[j] = 0;
    }
  }

  read(read: Read): void {
    if (!this.records) return;
    const layers = this.reads.get(read.part) ?? new Map<number, Read[]>();
    this.reads.set(read.part, layers);
    layers.set(read.layer, [...(layers.get(read.layer) ?? []), read]);
  }

  trace(line: TraceLine): void {
    this.lines.push(line);
  }

  breathe(): void {
    this.check();
  }
}

/** Changes the weights of one query in place. */
function change({ kind, key, row, weights: given }: HeadChange, query: number, weights: Float32Array, visible: Uint8Array): void {
  const seen = visible.reduce((sum, one) => sum + one, 0);
  if (kind === "off") weights.fill(0);
  else if (kind === "uniform") weights.fill(seen ? 1 / seen : 0);
  else if (kind === "row") {
    if (row === undefined || row === query) weights.forEach((_, j) => (weights[j] = given?.[j] ?? 0));
  } else if (key !== undefined) {
    weights.fill(0);
    if (key < weights.length) weights[key] = 1; // a step may come before the key is there
  } else if (seen) {
    let best = -1;
    weights.forEach((one, j) => {
      if (visible[j] && (best < 0 || one > weights[best])) best = j;
    });
    weights.fill(0)[best] = 1;
  }
}
