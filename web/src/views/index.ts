// The views of a page, in the order of their tabs.

import { cell } from "./cell.ts";
import { fill } from "./fill.ts";
import { lines } from "./lines.ts";
import { masks } from "./masks.ts";
import { matrix } from "./matrix.ts";
import { stepper, steps } from "./steps.ts";
import { next } from "./next.ts";
import type { View } from "./view.ts";

export const VIEWS: View[] = [stepper, matrix, lines, steps, cell, next, fill, masks];
