// The tokens of a text as switches: a click, or Enter, switches one; the arrow keys move between them.

import { button, make, press } from "../core/dom.ts";

export class Toggles {
  readonly element: HTMLElement;
  private buttons: (HTMLButtonElement | HTMLElement)[] = [];
  private pieces: readonly string[] = [];

  /** `fixed` tokens are no switches. */
  constructor(label: string, private readonly flip: (place: number) => void) {
    this.element = make("div", { class: "toggles", role: "group", "aria-label": label });
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  update(pieces: readonly string[], on: ReadonlySet<number>, title: (piece: string, on: boolean) => string, fixed: ReadonlySet<number> = new Set()): void {
    if (pieces.join("\0") !== this.pieces.join("\0")) {
      this.buttons = pieces.map((piece, place) => (fixed.has(place) ? make("span", { dir: "auto" }, piece) : button(piece, () => this.flip(place), { dir: "auto" }, false)));
      this.element.replaceChildren(...this.buttons);
      this.pieces = [...pieces];
    }
    this.buttons.forEach((one, place) => {
      if (!(one instanceof HTMLButtonElement)) return;
      press(one, on.has(place));
      one.title = title(pieces[place], on.has(place));
    });
  }

  private key(event: KeyboardEvent): void {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], all = this.buttons.filter((one) => one instanceof HTMLButtonElement);
    const now = all.findIndex((one) => one === event.target);
    if (!by || now < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    all[Math.max(0, Math.min(all.length - 1, now + by))].focus();
    event.preventDefault();
  }
}

/** A list with a place added, or taken away. */
export function flipped(places: readonly number[] | undefined, place: number): number[] | undefined {
  const now = new Set(places);
  if (!now.delete(place)) now.add(place);
  return now.size ? [...now].sort((a, b) => a - b) : undefined;
}
