// The settings that all Transformers have in common, as recipe.json has them (Shape in regard/layers/transformer.py).

export interface Shape {
  width: number;
  heads: number;
  layers: number;
  activation: string;
  norm: "layer" | "rms";
  norm_place: "pre" | "post";
  epsilon: number;
  residual: boolean;
  score: "dot" | "scaled_dot" | "general" | "additive" | "cosine";
  positions: "none" | "sinusoidal" | "sinusoidal-halves" | "learned" | "t5" | "relative";
  furthest: number;
  buckets: number;
  /** The window of each layer in turn, in tokens to each side; 0: none. */
  windows: number[];
  /** Groups of layers that share their weights; 0: no layers share weights. */
  groups: number;
  group_blocks: number;
}

const POSITIONS = ["none", "sinusoidal", "sinusoidal-halves", "learned", "t5", "relative"];

/** The settings of a config; an error if this engine does not compute them. */
export function shapeOf(config: Record<string, unknown>): Shape {
  if (!POSITIONS.includes(String(config.positions))) throw new Error(`the page does not compute positions=${config.positions}`);
  if ((config.softmax ?? "plain") !== "plain") throw new Error(`the page does not compute softmax=${config.softmax}`);
  if (config.numbers) throw new Error("the page does not compute a model that reads numbers");
  return config as unknown as Shape;
}
