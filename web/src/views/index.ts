// The views of a page, in the order of their tabs.

import { grid } from "./grid.ts";
import { lines } from "./lines.ts";
import { matrix } from "./matrix.ts";
import { norms } from "./norms.ts";
import { stepper, steps } from "./steps.ts";
import type { View } from "./view.ts";

export const VIEWS: View[] = [stepper, matrix, lines, grid, steps, norms];
