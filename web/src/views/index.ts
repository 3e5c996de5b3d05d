// The views of a page, in the order of their tabs.

import { cell } from "./cell.ts";
import { differences } from "./difference.ts";
import { edit } from "./edit.ts";
import { fill } from "./fill.ts";
import { grid } from "./grid.ts";
import { lines } from "./lines.ts";
import { masks } from "./masks.ts";
import { matrix } from "./matrix.ts";
import { next } from "./next.ts";
import { norms } from "./norms.ts";
import { off } from "./off.ts";
import { stepper, steps } from "./steps.ts";
import type { View } from "./view.ts";

export const VIEWS: View[] = [edit, stepper, matrix, lines, grid, differences, steps, off, cell, next, fill, masks, norms];
