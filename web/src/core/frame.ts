// A page in a cell of a notebook: a frame after a static picture (in_notebook in regard/render/page.py).

/** Hides the picture before the frame, makes the frame as tall as the page, and takes the colours of the notebook. */
export function fitFrame(): void {
  const frame = outer();
  if (!frame || frame.dataset.regard !== "page") return;
  const picture = frame.previousElementSibling;
  if (picture) picture.setAttribute("hidden", "");
  const light = frame.ownerDocument.body.dataset.jpThemeLight;
  if (light) document.documentElement.dataset.theme = light === "true" ? "light" : "dark";
  const fit = (): void => {
    frame.style.height = `${document.documentElement.offsetHeight}px`;
  };
  new ResizeObserver(fit).observe(document.documentElement);
  fit();
}

/** The element around this page, if the page may see it. */
function outer(): HTMLElement | null {
  try {
    return window.frameElement as HTMLElement | null;
  } catch {
    return null;
  }
}
