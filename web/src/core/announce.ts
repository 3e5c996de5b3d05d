// What a screen reader says of a change.

import { make } from "./dom.ts";

export class Announcer {
  readonly element = make("p", { class: "unseen status", role: "status", "aria-live": "polite" });

  say(text: string): void {
    this.element.textContent = text;
  }

  get text(): string {
    return this.element.textContent ?? "";
  }
}
