// Starts a page: each element with data-figure is drawn from the data in its script element; until then, and without
// scripts, it shows a static picture.

import { startTips } from "./core/tip.ts";
import { make } from "./core/dom.ts";
import { fitFrame } from "./core/frame.ts";
import { type ImageData, type PageData, VERSION } from "./data.ts";
import { mountFigure } from "./figure.ts";
import { openEngine } from "./live.ts";
import { mountImages } from "./views/image.ts";

function open(root: HTMLElement, number: number): void {
  const data = JSON.parse(root.querySelector(":scope > script")?.textContent ?? "{}") as PageData & { images?: ImageData[] };
  if (data.version !== VERSION) {
    const text = `This page has data of version ${String(data.version)}, and its script draws version ${VERSION}: make the page again with one version of Regard.`;
    root.prepend(make("p", { class: "trouble", role: "alert" }, text));
    return;
  }
  if (data.images) mountImages(root, data.images);
  else mountFigure(root, { page: data, full: root.dataset.figure === "page", engine: openEngine(data.live), prefix: `figure${number}-` });
}

startTips();
document.querySelectorAll<HTMLElement>("[data-figure]").forEach(open);
fitFrame();
