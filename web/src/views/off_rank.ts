// All heads, ranked by what happens to the answer without each.

import { labelOf, sameHead } from "../core/changes.ts";
import { button, make } from "../core/dom.ts";
import { plus, share } from "../core/scale.ts";
import type { Damage, HeadChange, HeadName } from "../engine/api.ts";
import { CANCELLED } from "../engine/client.ts";
import type { Context } from "./view.ts";

export type Kind = "off" | "uniform" | "one-hot";
const KINDS: [Kind, string][] = [["off", "switched off"], ["uniform", "uniform"], ["one-hot", "one-hot"]];

export class Ranking {
  private readonly kind = make("select", { "aria-label": "What is done to each head" }, ...KINDS.map(([value, name]) => make("option", { value }, name)));
  private readonly start = button("Rank all heads by damage", () => this.begin());
  private readonly progress = make("span", { class: "quiet", role: "status" });
  private readonly body = make("tbody");
  private readonly table = make("div", { class: "scroll long", tabindex: 0, role: "region", "aria-label": "All heads by damage", hidden: true });
  readonly element: HTMLElement;
  private damages: Damage[] = [];
  private done: Kind = "off";
  private key = "";
  /** Whether a frame will draw what has arrived. */
  private waiting = false;
  /** Whether the ranking starts when the question that is being answered has its answer. */
  private wanted = false;
  private marked: HeadName | null = null;

  constructor(private readonly context: Context, private readonly choose: (change: HeadChange) => void) {
    const names = ["head", "Δ log p", "", "answer"].map((name) => make("th", { scope: "col" }, name || make("span", { class: "unseen" }, "bar")));
    this.table.append(make("table", { class: "ranking damages" }, make("thead", {}, make("tr", {}, ...names)), this.body));
    const controls = make("div", { class: "controls" }, this.start, make("label", { class: "choice" }, "each", this.kind), this.progress);
    this.element = make("section", {}, make("h2", {}, "All heads ", make("small", {}, "each changed alone")), controls, this.table);
  }

  /** Another text makes the ranking old. */
  update(head: HeadName | null): void {
    const key = this.asked();
    if (key !== this.key && this.damages.length) {
      this.damages = [];
      this.progress.textContent = "The text has changed.";
      this.draw();
    }
    this.mark(head);
    if (this.wanted && !this.context.session.busy) void this.run();
  }

  private begin(): void {
    this.progress.textContent = "…";
    if (this.context.session.busy) this.wanted = true;
    else void this.run();
  }

  private asked(): string {
    return JSON.stringify(this.context.session.whole(this.context.session.asking({ heads: undefined })));
  }

  private async run(): Promise<void> {
    const { engine, session } = this.context, kind = this.kind.value as Kind, key = (this.key = this.asked());
    this.done = kind;
    this.damages = [];
    this.wanted = false;
    const show = (damages: Damage[], of: number): void => {
      if (key !== this.key) return;
      this.damages = damages;
      this.progress.textContent = damages.length < of ? `${damages.length} of ${of} heads` : `${of} ${of === 1 ? "head" : "heads"}`;
      this.soon();
    };
    try {
      const found = await engine?.rank(session.whole(session.asking({ heads: undefined })), kind, show);
      if (found && !found.length) this.progress.textContent = "The model has no heads.";
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (key === this.key) this.progress.textContent = message === CANCELLED ? `Stopped after ${this.damages.length} heads by another question.` : message;
    }
  }

  /** Draws once a frame, however fast heads arrive. */
  private soon(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  private draw(): void {
    const first = this.context.page.parts[0].name, most = Math.max(1e-9, ...this.damages.map(({ difference }) => Math.abs(difference)));
    const focused = this.body.contains(document.activeElement) ? document.activeElement?.textContent : null;
    this.table.hidden = !this.damages.length;
    this.body.replaceChildren(...this.damages.map((one) => {
      const { difference, changed, text } = one, act = (): void => this.choose({ part: one.part, layer: one.layer, head: one.head, kind: this.done });
      const name = button(labelOf(first, one), act, { title: "Show this head, changed" });
      const row = make("tr", { class: "chooses" }, make("td", {}, name), make("td", {}, plus(difference)),
        make("td", {}, make("div", { class: "diverge" }, make("i", { class: difference < 0 ? "less" : "more", "--share": share(Math.abs(difference), most).toFixed(3) }))),
        make("td", { class: "text" }, ...(changed ? [make("bdi", {}, text || "empty")] : [make("span", { class: "quiet" }, "the same")])));
      row.addEventListener("click", ({ target }) => {
        if (!(target instanceof HTMLButtonElement)) act();
      });
      return row;
    }));
    if (focused) [...this.body.querySelectorAll("button")].find(({ textContent }) => textContent === focused)?.focus();
    this.mark(this.marked);
  }

  private mark(head: HeadName | null): void {
    this.marked = head;
    this.damages.forEach((one, at) => {
      const chosen = head !== null && sameHead(one, head), row = this.body.children[at];
      row?.classList.toggle("best", chosen);
      row?.querySelector("button")?.setAttribute("aria-pressed", String(chosen));
    });
  }
}
