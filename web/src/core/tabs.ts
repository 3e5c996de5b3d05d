// Tabs by the pattern of WAI-ARIA: one stop of Tab, arrow keys, Home and End; each tab shows its panel.

import { make } from "./dom.ts";

export interface Tab {
  name: string;
  title: string;
  panel: HTMLElement;
}

export class Tabs {
  readonly list: HTMLElement;
  private buttons = new Map<string, HTMLButtonElement>();

  constructor(label: string, private readonly tabs: Tab[], prefix: string, private readonly choose: (name: string) => void) {
    this.list = make("div", { class: "tabs", role: "tablist", "aria-label": label });
    for (const { name, title, panel } of tabs) {
      const id = `${prefix}${name}`;
      const tab = make("button", { type: "button", role: "tab", id: `${id}-tab`, "aria-controls": `${id}-panel`, "data-view": name }, title);
      tab.addEventListener("click", () => choose(name));
      Object.assign(panel, { id: `${id}-panel` });
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", tab.id);
      this.buttons.set(name, tab);
      this.list.append(tab);
    }
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows the tabs of these names, with one of them chosen; a single tab is not worth a row. */
  update(there: string[], chosen: string): void {
    this.list.hidden = there.length < 2;
    for (const { name, panel } of this.tabs) {
      const tab = this.buttons.get(name);
      if (!tab) continue;
      tab.hidden = !there.includes(name);
      tab.setAttribute("aria-selected", String(name === chosen));
      tab.tabIndex = name === chosen ? 0 : -1;
      panel.hidden = name !== chosen;
    }
  }

  private key(event: KeyboardEvent): void {
    const shown = this.tabs.map(({ name }) => name).filter((name) => !this.buttons.get(name)?.hidden);
    const now = shown.findIndex((name) => this.buttons.get(name) === event.target);
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: shown.length - 1 }[event.key];
    if (now < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const name = shown[(to + shown.length) % shown.length];
    this.choose(name);
    this.buttons.get(name)?.focus();
    event.preventDefault();
  }
}
