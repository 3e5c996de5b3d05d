// The layers of every Transformer: feed-forward, block, stack (Vaswani et al. 2017, §3).

import { ACTIVATIONS, linear, mapped, sum } from "./math.ts";
import type { Matrix, Taps } from "./model.ts";
import { joined, MultiHead, type Memory, type Place } from "./multihead.ts";
import { normAt, type Norm } from "./norms.ts";
import { Buckets } from "./positions.ts";
import type { Shape } from "./shape.ts";
import type { Weights } from "./weights.ts";

/** W₂ f(W₁ x), or with a gate G: W₂ (f(G x) ⊙ W₁ x) (Shazeer 2020). */
function feedForward(weights: Weights, path: string, activation: string): (x: Matrix) => Matrix {
  const layer = (name: string): ((x: Matrix) => Matrix) => {
    const weight = weights.matrix(`${path}.${name}.weight`), at = `${path}.${name}.bias`;
    const bias = weights.has(at) ? weights.vector(at) : null;
    return (x) => linear(x, weight, bias);
  };
  const up = layer("up"), down = layer("down"), f = ACTIVATIONS[activation];
  if (!weights.has(`${path}.gate.weight`)) return (x) => down(mapped(up(x), f));
  const gate = layer("gate");
  return (x) => {
    const inner = mapped(gate(x), f), other = up(x);
    for (let i = 0; i < inner.data.length; i++) inner.data[i] *= other.data[i];
    return down(inner);
  };
}

/** One layer: self-attention, attention to a source if there is one, and a feed-forward layer. */
class Block {
  readonly attention: MultiHead;
  readonly cross: MultiHead | null;
  private readonly norms: { attention: Norm; cross: Norm | null; feed: Norm };
  private readonly feed: (x: Matrix) => Matrix;

  constructor(weights: Weights, path: string, private readonly shape: Shape) {
    const at = (name: string): string => `${path}.${name}`, crosses = weights.has(at("cross.qkv.weight"));
    const norm = (name: string): Norm => normAt(weights, at(name), shape.norm, shape.epsilon);
    const furthest = shape.positions === "relative" ? shape.furthest : null;
    this.attention = new MultiHead(weights, at("attention"), shape.heads, shape.score, furthest);
    this.cross = crosses ? new MultiHead(weights, at("cross"), shape.heads, shape.score, null) : null;
    this.norms = { attention: norm("attention_norm"), cross: crosses ? norm("cross_norm") : null, feed: norm("feed_norm") };
    this.feed = feedForward(weights, at("feed"), shape.activation);
  }

  /** The states after the layer, and its memory with the new tokens. */
  run(x: Matrix, before: Memory | undefined, source: Memory | undefined, place: Place, taps: Taps): { x: Matrix; memory: Memory } {
    const { attention, cross, norms } = this;
    const own = this.before(x, norms.attention), memory = joined(before, attention.memory(own, taps));
    x = this.after(x, attention.attend(attention.queries(own), memory, place, taps), norms.attention);
    if (cross && norms.cross && source) {
      const there: Place = { ...place, part: "cross", visible: () => true, bias: null };
      x = this.after(x, cross.attend(cross.queries(this.before(x, norms.cross)), source, there, taps), norms.cross);
    }
    return { x: this.after(x, this.feed(this.before(x, norms.feed)), norms.feed), memory };
  }

  /** A sublayer f with a norm before it computes x + f(norm(x)); with a norm after it, norm(x + f(x)). */
  private before(x: Matrix, norm: Norm): Matrix {
    return this.shape.norm_place === "pre" ? norm(x) : x;
  }

  private after(x: Matrix, y: Matrix, norm: Norm): Matrix {
    const both = this.shape.residual ? sum(x, y) : y;
    return this.shape.norm_place === "pre" ? both : norm(both);
  }
}

/** A stack of blocks. With groups, several layers use the same block (Lan et al. 2020, §3.1). */
export class Stack {
  private readonly layers: Block[];
  private readonly bias: Buckets | null;
  private readonly norm: Norm | null;
  private readonly windows: number[];

  constructor(
    weights: Weights,
    path: string,
    shape: Shape,
    private readonly part: "encoder" | "decoder",
  ) {
    const groups = shape.groups || shape.layers, size = shape.group_blocks;
    const blocks = Array.from({ length: groups * size }, (_, number) => new Block(weights, `${path}.blocks.${number}`, shape));
    this.layers = Array.from({ length: groups }, (_, group) => blocks.slice(group * size, (group + 1) * size)).flatMap((group) =>
      Array<Block[]>(shape.layers / groups).fill(group).flat(),
    );
    this.bias = shape.positions === "t5" ? new Buckets(weights, `${path}.bias`, shape, part === "encoder") : null;
    this.norm = weights.has(`${path}.norm.weight`) ? normAt(weights, `${path}.norm`, shape.norm, shape.epsilon) : null;
    this.windows = shape.windows.length ? shape.windows : [0];
  }

  /** Reads tokens after those of the memories: x (tokens × width), the states and the memories with the new tokens. */
  run(x: Matrix, first: number, before: readonly Memory[], sources: readonly Memory[], taps: Taps): { states: Matrix; memories: Memory[] } {
    const { part, bias } = this, causal = part === "decoder", memories: Memory[] = [];
    this.layers.forEach((block, layer) => {
      const window = this.windows[layer % this.windows.length] || Infinity;
      const place: Place = {
        part,
        layer,
        first,
        visible: (query, key) => !(causal && key > query) && Math.abs(query - key) <= window,
        bias: bias && ((head, query, key) => bias.bias(head, query, key)),
      };
      const found = block.run(x, before[layer], sources[layer], place, taps);
      x = found.x;
      memories.push(found.memory);
    });
    return { states: this.norm ? this.norm(x) : x, memories };
  }

  /** The memories of a source for the attention of each layer to it, projected once. */
  sources(states: Matrix, taps: Taps): Memory[] {
    return this.layers.map((block) => {
      if (!block.cross) throw new Error("this stack reads no source");
      return block.cross.memory(states, taps);
    });
  }
}
