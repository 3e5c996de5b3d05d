"""The interactive page of a view: one HTML file with all layers and heads, and every decoding step."""

from collections.abc import Sequence

from regard.render.files import asset
from regard.render.markup import Markup, lines, tag
from regard.render.page_data import PageData, Parts
from regard.render.svg import matrix_svg
from regard.render.view_data import Frame, Layer, Matrix, caption

# The page may use its own inline style and script, and may not load anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

CONTROLS = Markup("""
<div class="controls">
  <div class="group" id="parts" role="group" aria-label="Part" hidden></div>
  <label class="choice" id="layers" hidden>Layer <select id="layer"></select></label>
  <div class="group" id="views" role="group" aria-label="View">
    <button type="button" data-view="matrix" title="Matrix (v)">Matrix</button>
    <button type="button" data-view="lines" title="Lines (v)">Lines</button>
  </div>
  <div class="heads" id="heads" role="group" aria-label="Heads: click to show one, Shift+click to add one" hidden></div>
</div>
""")

STAGE = Markup("""
<div class="scroll" id="stage"><table id="matrix" role="grid" aria-label="Attention weights"></table>
<svg id="lines" hidden role="img" aria-label="Attention as lines"></svg></div>
<p class="key" aria-hidden="true">0 <i></i> <span id="vmax"></span></p>
""")

STEPPER = Markup("""
<nav class="stepper" id="stepper" aria-label="Decoding steps">
  <div class="buttons">
    <button type="button" data-go="first" aria-label="First step" title="First step (Home)">⇤</button>
    <button type="button" data-go="back" aria-label="Previous step" title="Previous step (←)">←</button>
    <span class="count" id="count"></span>
    <button type="button" data-go="next" aria-label="Next step" title="Next step (→)">→</button>
    <button type="button" data-go="last" aria-label="Last step" title="Last step (End)">⇥</button>
  </div>
  <ol class="output" id="output" aria-label="Output so far"></ol>
</nav>
<p class="unseen" id="status" role="status" aria-live="polite"></p>
""")

STEPS = Markup("""
<div class="card steps" id="steps">
  <section>
    <h2><b>1</b> State <small>output of the last layer at this step</small></h2>
    <div id="state"></div>
  </section>
  <section>
    <h2><b>2</b> Weights <small>attention to each token</small></h2>
    <ol id="bars" class="bars"></ol>
  </section>
  <section id="read">
    <h2><b>3</b> Context <small>the weighted sum of values in the last layer</small></h2>
    <div id="context"></div>
  </section>
  <section>
    <h2><b>4</b> Logits → softmax → argmax <small id="after">the next token</small></h2>
    <div class="scroll"><table id="top">
      <thead><tr><th scope="col">token</th><th scope="col">logit</th><th scope="col">probability</th>
        <th><span class="unseen">bar</span></th><th><span class="unseen">verdict</span></th></tr></thead>
      <tbody></tbody>
    </table></div>
  </section>
</div>
""")


def document(title: str, body: Markup, *scripts: Markup) -> str:
    """A complete HTML file around a body, with the style and the content security policy of all pages."""
    head = [
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": Markup(POLICY)}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("title", {}, title),
        tag("style", {}, Markup(f"\n{asset('page.css')}")),
    ]
    parts = [tag("head", {}, "\n", lines(head)), tag("body", {}, "\n", lines([body, *scripts]))]
    return Markup(f"<!doctype html>\n{tag('html', {'lang': 'en'}, lines(parts))}\n")


def page_html(first: Matrix, parts: Parts, frames: Sequence[Frame] | None) -> str:
    """The page of all parts, layers and heads, with decoding steps if there are any.

    ``first`` is drawn as a static picture for browsers without JavaScript.
    """
    parts = parts or {"": [Layer(first.label, first.weights[None], first.rows, first.columns)]}
    page_data = PageData.fit(parts)
    keys = ["<kbd>v</kbd> matrix or lines"]
    keys += ["<kbd>p</kbd> next part"] * (len(parts) > 1)
    keys += ["<kbd>l</kbd> <kbd>L</kbd> next or previous layer"] * any(len(layers) > 1 for layers in parts.values())
    keys += ["<kbd>h</kbd> <kbd>H</kbd> next or previous head"] * any(
        layer.heads > 1 for layers in page_data.parts.values() for layer in layers
    )
    keys += ["<kbd>Tab</kbd> enters the matrix, arrow keys move between cells"]
    if frames:
        keys = ["<kbd>←</kbd> <kbd>→</kbd> step, <kbd>Home</kbd> <kbd>End</kbd> jump", *keys]
        keys[-1] += ", <kbd>Esc</kbd> leaves it"
    heading = tag("span", {"id": "label"}, first.label), " ", tag("small", {"id": "caption"}, caption(first.part))
    look = [tag("h2", {}, *heading), STAGE, tag("noscript", {}, matrix_svg(first))]
    body = [
        tag("header", {}, tag("h1", {"dir": "auto"}, first.title)),
        CONTROLS,
        *([tag("p", {"class": "quiet"}, page_data.note)] if page_data.note else []),
        *([STEPPER] if frames else []),
        tag("div", {"class": "columns"}, tag("div", {"class": "card look"}, lines(look)), *([STEPS] if frames else [])),
        tag("footer", {}, tag("p", {}, Markup(" · ".join(keys)))),
        Markup('<div id="tip" role="tooltip" hidden></div>'),
    ]
    data = tag("script", {"type": "application/json", "id": "data"}, Markup(page_data.json(frames or ())))
    script = tag("script", {}, Markup(f"\n{asset('page.js')}"))
    return document(first.title, tag("main", {"class": "wide" if frames else "lone"}, lines(body)), data, script)
