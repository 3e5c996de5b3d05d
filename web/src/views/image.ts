// Images with their captions: a canvas with one pixel for each cell lies over the image, and the browser enlarges it, as a
// grid or smoothly (bilinear).

import { Announcer } from "../core/announce.ts";
import { button, make, press } from "../core/dom.ts";
import { Keys } from "../core/keys.ts";
import type { ImageData as Image } from "../data.ts";

class Captioned {
  private word = 0;
  private readonly canvas: HTMLCanvasElement | null;

  constructor(readonly section: HTMLElement, private readonly data: Image, private readonly said: (text: string) => void) {
    this.canvas = section.querySelector("canvas");
    section.addEventListener("click", ({ target }) => {
      const chosen = target instanceof Element ? target.closest<HTMLElement>("[data-word]") : null;
      if (chosen) this.go(Number(chosen.dataset.word));
    });
    this.draw();
  }

  go(word: number): void {
    const { maps, said } = this.data;
    if (!maps.length) return;
    this.word = Math.max(0, Math.min(maps.length - 1, word));
    this.draw();
    this.said(`${this.word + 1} of ${maps.length}, ${said[this.word]}`);
  }

  move(key: string): void {
    const places: Record<string, number> = { ArrowLeft: this.word - 1, ArrowRight: this.word + 1, Home: 0, End: Infinity };
    this.go(places[key]);
  }

  private draw(): void {
    const { rows, columns, maps, said } = this.data, pen = this.canvas?.getContext("2d");
    if (!maps.length || !this.canvas || !pen) return;
    [this.canvas.width, this.canvas.height] = [columns, rows];
    const pixels = pen.createImageData(columns, rows);
    maps[this.word].forEach((weight, cell) => pixels.data.set([11, 15, 22, Math.round(255 * (1 - Math.min(1, weight ?? 0)))], 4 * cell));
    pen.putImageData(pixels, 0, 0);
    this.section.querySelectorAll("[data-word]").forEach((one, number) => press(one, number === this.word));
    const where = this.section.querySelector(".where");
    if (where) where.textContent = said[this.word];
  }
}

/** The images of a page. Their markup is there already, with a button for each word. */
export function mountImages(root: HTMLElement, data: Image[]): void {
  const announcer = new Announcer(), keys = new Keys();
  const images = [...root.querySelectorAll<HTMLElement>("section[data-view]")].map((section, at) => new Captioned(section, data[at], (text) => announcer.say(text)));
  let active = 0;
  images.forEach(({ section }, at) => {
    for (const event of ["click", "focusin"]) section.addEventListener(event, () => { active = at; });
  });
  root.append(announcer.element);
  if (!data.some(({ maps }) => maps.length)) return;
  const smooth = (on: boolean): void => {
    root.classList.toggle("smooth", on);
    press(grid, !on);
    press(bilinear, on);
  };
  const grid = button("Grid", () => smooth(false), {}, true), bilinear = button("Smooth", () => smooth(true), {}, false);
  const opacity = make("input", { type: "range", min: 0, max: 1, step: 0.05, value: 0.75 }); // of the shade over a cell without weight
  opacity.addEventListener("input", () => root.style.setProperty("--shade", opacity.value));
  root.prepend(make("div", { class: "controls" },
    make("div", { class: "group", role: "group", "aria-label": "How weights are drawn" }, grid, bilinear),
    make("label", { class: "choice" }, "Opacity ", opacity)));
  keys.add(
    { keys: ["ArrowLeft", "ArrowRight"], help: "step", act: (key) => images[active].move(key) },
    { keys: ["Home", "End"], help: "jump", act: (key) => images[active].move(key) },
    { keys: ["s"], help: "smooth or grid", act: () => smooth(!root.classList.contains("smooth")) },
    {
      keys: ["ArrowUp", "ArrowDown"], help: "next or previous image", offered: () => images.length > 1, when: () => images.length > 1,
      act: (key) => {
        active = Math.max(0, Math.min(images.length - 1, active + (key === "ArrowDown" ? 1 : -1)));
        images[active].section.scrollIntoView({ block: "nearest" });
        images[active].section.focus({ preventScroll: true });
      },
    },
  );
  keys.write();
  root.append(make("div", { class: "quiet help" }, keys.help));
}
