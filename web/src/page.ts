// Starts a page: each element with data-figure is drawn from the data in its script element; until then, and without
// scripts, it shows a static picture.

import { startTips } from "./core/tip.ts";
import { make } from "./core/dom.ts";
import { fitFrame } from "./core/frame.ts";
import { type ImageData, type PageData, VERSION } from "./data.ts";
import { mountFigure } from "./figure.ts";
import { openEngine } from "./live.ts";
import { mountImages } from "./views/image.ts";

/** The data in the element of a figure; null: they are damaged. */
function dataOf(root: HTMLElement): (PageData & { images?: ImageData[] }) | null {
  try {
    return JSON.parse(root.querySelector(":scope > script")?.textContent ?? "");
  } catch {
    return null;
  }
}

function open(root: HTMLElement, number: number): void {
  const data = dataOf(root);
  if (data?.version !== VERSION) {
    const text = data === null ? "The data of this page are damaged: make the page again." : `This page has data of version ${String(data.version)}, and its script draws version ${VERSION}: make the page again with one version of Regard.`;
    root.prepend(make("p", { class: "trouble", role: "alert" }, text));
    return;
  }
  if (data.images) mountImages(root, data.images);
  else mountFigure(root, { page: data, full: root.dataset.figure === "page", engine: openEngine(data.live), prefix: `figure${number}-` });
}

startTips();
document.querySelectorAll<HTMLElement>("[data-figure]").forEach(open);
fitFrame();
