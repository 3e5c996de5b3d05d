// One table of keys: it does what they do, and writes the line of help.

import { make } from "./dom.ts";

export interface Key {
  /** The values of KeyboardEvent.key, in the order of the help. */
  keys: string[];
  /** What they do, for the help; "" for keys that another entry names. */
  help: string;
  /** Whether the keys do anything now. */
  when?: () => boolean;
  /** Whether the help names them; by default, always. */
  offered?: () => boolean;
  act: (key: string, event: KeyboardEvent) => void;
}

const SIGNS: Record<string, string> = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };

/** Whether an element uses keys itself: a field, a menu, a slider, a tab. */
const takesKeys = (target: EventTarget | null): boolean =>
  target instanceof Element && target.closest("input, textarea, [contenteditable], [role=tab], [role=slider], summary") !== null;

export class Keys {
  private table: Key[] = [];
  readonly help = make("p", {});

  constructor() {
    document.addEventListener("keydown", (event) => this.press(event));
  }

  add(...keys: Key[]): void {
    this.table.push(...keys);
  }

  /** Writes the help again, after a change of what there is. */
  write(): void {
    const parts: (Node | string)[] = [];
    for (const { keys, help, offered } of this.table) {
      if (!help || (offered && !offered())) continue;
      if (parts.length) parts.push(" · ");
      for (const key of keys) parts.push(make("kbd", {}, SIGNS[key] ?? key), " ");
      parts.push(help);
    }
    this.help.replaceChildren(...parts);
  }

  private press(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || takesKeys(event.target)) return;
    const menu = event.target instanceof Element && event.target.closest("select");
    for (const { keys, when, act } of this.table) {
      if (!keys.includes(event.key) || (when && !when())) continue;
      if (menu && event.key.length > 1) continue; // the arrow keys of a menu are its own
      if (event.shiftKey && event.key.length > 1) continue;
      act(event.key, event);
      event.preventDefault();
      return;
    }
  }
}
