// The rows and columns that are shown: all but the hidden ones.

import type { Axis } from "./axes.ts";
import type { Shown } from "./shown.ts";

export const places = (shown: Shown, axis: Axis): number[] => shown.part[axis].map((_, at) => at).filter((at) => !shown.hidden?.[axis].has(at));
