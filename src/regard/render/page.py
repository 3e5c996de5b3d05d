"""One HTML file, no network: every layer and head as a matrix or as lines, and decoding step by step."""

from collections.abc import Sequence

from regard.render.files import asset
from regard.render.labels import escape
from regard.render.parts import Frame, Layer, Matrix, reading
from regard.render.payload import Parts, Payload
from regard.render.svg import matrix_svg

# The page may run its own inline style and script and load nothing at all, from anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

CONTROLS = """
<div class="controls">
  <div class="group" id="parts" role="group" aria-label="Part" hidden></div>
  <label class="choice" id="layers" hidden>Layer <select id="layer"></select></label>
  <div class="group" id="views" role="group" aria-label="View">
    <button type="button" data-view="matrix" title="Matrix (v)">Matrix</button>
    <button type="button" data-view="lines" title="Lines (v)">Lines</button>
  </div>
  <div class="heads" id="heads" role="group" aria-label="Heads: a click shows one, with Shift one more" hidden></div>
</div>
"""

STEPPER = """
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
<p class="unseen" id="said" role="status" aria-live="polite"></p>
"""

STEPS = """
<div class="card steps" id="steps">
  <section>
    <h2><b>1</b> State <small>of the last layer after this step</small></h2>
    <div id="state"></div>
  </section>
  <section>
    <h2><b>2</b> Weights <small>how much it looks at each piece</small></h2>
    <ol id="bars" class="bars"></ol>
  </section>
  <section id="read">
    <h2><b>3</b> Context <small>the weighted sum that the last layer reads</small></h2>
    <div id="context"></div>
  </section>
  <section>
    <h2><b>4</b> Logits → softmax → argmax <small id="after">the next piece</small></h2>
    <div class="scroll"><table id="top">
      <thead><tr><th scope="col">piece</th><th scope="col">logit</th><th scope="col">probability</th>
        <th><span class="unseen">bar</span></th><th><span class="unseen">verdict</span></th></tr></thead>
      <tbody></tbody>
    </table></div>
  </section>
</div>
"""


def document(title: str, body: str, script: str = "") -> str:
    """The shell every page shares: its style and script inside, its policy sealed."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{asset('page.css')}</style>\n</head>\n"
        f"<body>\n{body}\n{script}</body>\n</html>\n"
    )


def page(first: Matrix, parts: Parts, frames: Sequence[Frame] | None) -> str:
    """Every part, layer and head, one at a time, and `first` where no script runs; the steps, where there are any."""
    parts = parts or {"": [Layer(first.label, first.weights[None], first.rows, first.columns)]}
    payload = Payload.fitted(parts)
    keys = ["<kbd>v</kbd> matrix or lines"]
    keys += ["<kbd>p</kbd> next part"] * (len(parts) > 1)
    keys += ["<kbd>l</kbd> <kbd>L</kbd> the next layer, the one before"] * any(
        len(layers) > 1 for layers in parts.values()
    )
    keys += ["<kbd>h</kbd> <kbd>H</kbd> the next head, the one before"] * any(
        layer.heads > 1 for layers in payload.parts.values() for layer in layers
    )
    keys += ["<kbd>Tab</kbd> enters the matrix, the arrow keys move from cell to cell"]
    if frames:
        keys = ["<kbd>←</kbd> <kbd>→</kbd> step, <kbd>Home</kbd> <kbd>End</kbd> jump", *keys]
        keys[-1] += ", <kbd>Esc</kbd> leaves it"
    note = f'<p class="quiet">{escape(payload.note)}</p>' if payload.note else ""
    body = f"""<main class="{"wide" if frames else "lone"}">
<header><h1 dir="auto">{escape(first.title)}</h1></header>
{CONTROLS}{note}{STEPPER if frames else ""}<div class="columns">
<div class="card look">
<h2><span id="label">{escape(first.label)}</span> <small id="reading">{reading(first.part)}</small></h2>
<div class="scroll" id="stage"><table id="matrix" role="grid" aria-label="Attention weights"></table>
<svg id="lines" hidden role="img" aria-label="Attention as lines"></svg></div>
<p class="key" aria-hidden="true">0 <i></i> <span id="ceiling"></span></p>
<noscript>{matrix_svg(first)}</noscript></div>
{STEPS if frames else ""}</div>
<footer><p>{" · ".join(keys)}</p></footer>
<div id="tip" role="tooltip" hidden></div>
</main>"""
    told = payload.json(frames or ())
    data = f'<script type="application/json" id="data">{told}</script>\n'
    return document(first.title, body, f"{data}<script>\n{asset('page.js')}</script>\n")
