// One box for the whole page: the text of the element under the pointer or the focus. A tap is like hovering.

import { make } from "./dom.ts";

/** An element under the pointer and its text. */
export type Told = [Element, string] | null;

const tellers = new WeakMap<Element, (target: Element) => Told>();

/** The tips of the elements within one, made when they are needed. The attribute data-tip holds a text that is known. */
export function tell(within: Element, teller: (target: Element) => Told): void {
  tellers.set(within, teller);
  within.toggleAttribute("data-tips", true);
}

function told(target: Element): Told {
  const known = target.closest("[data-tip]");
  if (known) return [known, known.getAttribute("data-tip") ?? ""];
  const within = target.closest("[data-tips]");
  return (within && tellers.get(within)?.(target)) ?? null;
}

export function startTips(): void {
  const box = make("div", { id: "tip", role: "tooltip", hidden: true });
  document.body.append(box);
  const show = (target: EventTarget | null): void => {
    const found = target instanceof Element ? told(target) : null;
    box.hidden = !found;
    if (!found) return;
    const [element, text] = found;
    box.textContent = text;
    const spot = element.getBoundingClientRect();
    const left = spot.left + spot.width / 2 - box.offsetWidth / 2;
    const above = spot.top - box.offsetHeight - 8;
    const widest = document.documentElement.clientWidth - box.offsetWidth - 4;
    box.style.left = `${scrollX + Math.max(4, Math.min(left, widest))}px`;
    box.style.top = `${scrollY + (above > 0 ? above : spot.bottom + 8)}px`;
  };
  document.addEventListener("mouseover", (event) => show(event.target));
  document.addEventListener("focusin", (event) => show(event.target));
  document.addEventListener("focusout", () => show(null));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") box.hidden = true;
  });
}
