// The views of a page, in the order of their tabs.

import { differences } from "./difference.ts";
import { edit } from "./edit.ts";
import { lines } from "./lines.ts";
import { matrix } from "./matrix.ts";
import { off } from "./off.ts";
import { stepper, steps } from "./steps.ts";
import type { View } from "./view.ts";

export const VIEWS: View[] = [edit, stepper, matrix, lines, differences, steps, off];
