// Elements of the page. All text is set through textContent, so that no token can become markup.

type Value = string | number | boolean | null | undefined;
export type Properties = Record<string, Value>;

function dress<E extends Element & ElementCSSInlineStyle>(element: E, properties: Properties, children: (Node | string)[]): E {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("--")) element.style.setProperty(name, String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/** An element of HTML. Properties that are null, undefined or false are left out; those that begin with -- are of its style. */
export function make<K extends keyof HTMLElementTagNameMap>(tag: K, properties: Properties = {}, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  return dress(document.createElement(tag), properties, children);
}

/** An element of SVG. */
export function draw<K extends keyof SVGElementTagNameMap>(tag: K, properties: Properties = {}, ...children: (Node | string)[]): SVGElementTagNameMap[K] {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag) as SVGElementTagNameMap[K] & ElementCSSInlineStyle, properties, children);
}

/** A button; `pressed` is left out for one that is no switch. */
export function button(text: string, act: (event: MouseEvent) => void, properties: Properties = {}, pressed?: boolean): HTMLButtonElement {
  const made = make("button", { type: "button", ...properties }, text);
  if (pressed !== undefined) press(made, pressed);
  made.addEventListener("click", act);
  return made;
}

export function press(element: Element, on: boolean): void {
  element.setAttribute("aria-pressed", String(on));
}

/** Replaces the children of an element and keeps the focus at the same place. */
export function fill(element: Element, children: (Node | string)[]): void {
  const focused = document.activeElement ? [...element.children].indexOf(document.activeElement) : -1;
  element.replaceChildren(...children);
  const again = element.children[focused];
  if (again instanceof HTMLElement) again.focus();
}

/** A download of a file that the page made. */
export function offer(name: string, content: Blob): void {
  const link = make("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
