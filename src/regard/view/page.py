"""One HTML file, no network: the matrix with exact numbers, and decoding step by step under the arrow keys."""

import json
import math
from collections.abc import Iterable, Sequence

from regard.view.files import asset
from regard.view.labels import escape, number, visible
from regard.view.parts import Frame, Matrix
from regard.view.svg import matrix_svg

# The page may run its own inline style and script and load nothing at all, from anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

STEPPER = """
<nav class="stepper" aria-label="Decoding steps">
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
<div class="card steps">
  <section>
    <h2><b>1</b> State <small>what the decoder carries after this step</small></h2>
    <div id="state"></div>
  </section>
  <section>
    <h2><b>2</b> Weights <small>how much it looks at each piece of the source</small></h2>
    <ol id="bars" class="bars"></ol>
  </section>
  <section id="read">
    <h2><b>3</b> Context <small>the weighted sum it reads</small></h2>
    <div id="context"></div>
  </section>
  <section>
    <h2><b>4</b> Logits → softmax → argmax <small>the next piece</small></h2>
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


def page(matrices: Sequence[Matrix], frames: Sequence[Frame] | None) -> str:
    """The first matrix shown, the others to be chosen; the steps, where there are any, beside it."""
    first = matrices[0]
    options = "".join(f'<option value="{at}">{escape(matrix.label)}</option>' for at, matrix in enumerate(matrices))
    choice = f'<label class="choice">Layer and head <select id="choice">{options}</select></label>'
    hint = "<kbd>Tab</kbd> enters the matrix, the arrow keys move from cell to cell"
    if frames:
        hint = f"<kbd>←</kbd> <kbd>→</kbd> step, <kbd>Home</kbd> <kbd>End</kbd> jump · {hint}, <kbd>Esc</kbd> leaves it"
    body = f"""<main class="{"wide" if frames else "lone"}">
<header><h1 dir="auto">{escape(first.title)}</h1>
{choice if len(matrices) > 1 else f'<p class="quiet">{escape(first.label)}</p>'}</header>
{STEPPER if frames else ""}<div class="columns">
<div class="card look"><h2>Attention <small>each row looks at the columns</small></h2>
<div class="scroll"><table id="matrix" role="grid" aria-label="Attention weights"></table></div>
<p class="key" aria-hidden="true">0 <i></i> <span id="ceiling"></span></p>
<noscript>{matrix_svg(first)}</noscript></div>
{STEPS if frames else ""}</div>
<footer><p>{hint}</p></footer>
<div id="tip" role="tooltip" hidden></div>
</main>"""
    data = f'<script type="application/json" id="data">{_json(matrices, frames)}</script>\n'
    return document(first.title, body, f"{data}<script>\n{asset('page.js')}</script>\n")


def _json(matrices: Sequence[Matrix], frames: Sequence[Frame] | None) -> str:
    """Everything the page shows. "<" never occurs in it, so that no text can end the script element."""
    data = {
        "rows": [visible(piece) for piece in matrices[0].rows],
        "columns": [visible(piece) for piece in matrices[0].columns],
        "choices": [
            {"ceiling": matrix.ceiling, "weights": [_rounded(row) for row in matrix.weights]} for matrix in matrices
        ],
        "frames": [
            {
                "token": visible(frame.token),
                "top": [[visible(piece), *_rounded((logit, chance))] for piece, logit, chance in frame.top],
                "state": _rounded(frame.state),
                "context": None if frame.context is None else _rounded(frame.context),
            }
            for frame in frames or ()
        ],
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Six significant digits; JSON has no NaN, so what is not finite is null."""
    return [float(number(value)) if math.isfinite(value) else None for value in values]
