"""The interactive page of a view: one HTML file with all layers and heads, and every decoding step."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import UserError
from regard.render.formatting import Markup, asset, bdi, isolate, lines, tag
from regard.render.page_data import MAX_CELLS, PageData, Parts, data_script
from regard.render.svg import matrix_svg
from regard.render.view_data import Frame, Layer, Matrix, Origin
from regard.report.glossary import DOCS, PART_WORDS, WORDS

# The page may use its own inline style and script, and may not load anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
MOST_IN_CELL = 2_000_000  # bytes of a page in a cell of a notebook, which keeps them in its file
COMPUTES = f"{POLICY}; worker-src blob:"  # the engine runs in a worker of the page's own text

MAX_READ = 4096  # cells of a static picture that is shown until the script has drawn its own


@dataclass(frozen=True)
class Live:
    """A model that the page computes: what `LiveModel` in web/src/data.ts declares, and its weights in base 64."""

    model: Mapping[str, Any]
    weights: str
    about: str = ""  # the number of its weights, and how exact they are


def document(title: str, body: Markup, *scripts: Markup, policy: str = POLICY) -> str:
    """A complete HTML file around a body, with the style and the content security policy of all pages."""
    head = [
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": Markup(policy)}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("title", {}, isolate(title)),
        tag("style", {}, Markup(f"\n{asset('page.css')}")),
    ]
    parts = [tag("head", {}, "\n", lines(head)), tag("body", {}, "\n", lines([body, *scripts]))]
    return Markup(f"<!doctype html>\n{tag('html', {'lang': 'en'}, lines(parts))}\n")


def in_notebook(picture: Markup, page: Callable[[], str]) -> Markup:
    """A picture for a cell of a notebook, followed by the page in a frame if it is small enough.

    The script of the page hides the picture before its frame (web/src/core/frame.ts). A notebook that removes scripts
    or frames shows the picture.
    """
    static = tag("div", {"style": "overflow-x:auto"}, picture)
    try:
        html = page()
    except UserError:  # too large for a browser
        return static
    if len(html.encode()) > MOST_IN_CELL:
        return static
    # a text, so that it is escaped: the page itself is Markup
    frame = {
        "srcdoc": str(html),
        "title": "Attention",
        "style": "width:100%;height:2px;border:0",
        "data-regard": "page",
    }
    return Markup(f"{static}{tag('iframe', frame, '')}")


def figure(kind: str, data: Mapping[str, Any], static: Markup) -> Markup:
    """An element that the script draws into: "page" with all controls, or "matrix", one picture among others.

    ``static`` is what it shows without scripts.
    """
    return tag("div", {"data-figure": kind}, data_script(data), "\n", static)


def matrix_figure(matrix: Matrix, room: int) -> Markup:
    """One matrix among others: it has tips, the keyboard and a table, and no controls; ``room`` is for its columns."""
    static = matrix_svg(matrix, room)
    if matrix.weights.size > MAX_CELLS:
        return static
    layer = Layer(matrix.label, matrix.weights[None], matrix.rows, matrix.columns, visible=matrix.visible)
    data = PageData({matrix.part: [layer]}).to_json()
    return figure("matrix", {**data, "vmax": matrix.scale_max}, static)


def page_script() -> Markup:
    """The script that draws the figures of a page."""
    return tag("script", {}, "\n", _code(asset("built/page.js")))


READING = (
    "Each row is a query, and its weights, one for each column, sum to 1. Even weights would be 1/n each for a row "
    "that may look at n columns; a cell that is much darker than that is a choice of the model. A weight shows what is "
    "read, and how much of it. It does not show the effect on the output: regard.edit changes weights, and so measures "
    "the effect."
)
READING_DOCS = ("recording.md", "attention.md", "interventions.md")


def more_in(names: Sequence[str], docs: str) -> Markup:
    """A line that names pages of the documentation; with links if `docs`, the relative path to them, is given."""
    places = [f"docs/{name}" for name in names]
    links = [tag("a", {"href": f"{docs}/{name}"}, place) if docs else place for name, place in zip(names, places)]
    separated = [part for link in links for part in (", ", link)][1:]
    return tag("p", {"class": "quiet"}, "More in ", *separated)


def page_html(
    first: Matrix,
    parts: Parts,
    frames: Sequence[Frame] | None,
    about: str = "",
    origin: Origin | None = None,
    live: Live | None = None,
    still: str = "",
) -> str:
    """The page of all parts, layers and heads, with decoding steps if there are any.

    ``first`` is drawn as a static picture for browsers without JavaScript. ``live`` is the model of a page
    that can compute; ``still`` says why a page cannot.
    """
    attention = bool(parts)
    parts = parts or {"": [Layer(first.label, first.weights[None], first.rows, first.columns)]}
    page_data = PageData.fit(parts, frames or (), attention)
    given = {"origin": asdict(origin) if origin else None, "live": live.model if live else None, "still": still or None}
    data = {**page_data.to_json(), **{name: value for name, value in given.items() if value is not None}}
    computes = f"This page computes: {live.about}." if live else ""
    computes = f"This page is a picture and does not compute: {still}." if still else computes
    body = [
        tag("header", {}, tag("h1", {}, bdi(first.title))),
        *([tag("p", {"class": "quiet"}, said)] if (said := " ".join(filter(None, (about, computes)))) else []),
        *([tag("p", {"class": "quiet"}, page_data.note)] if page_data.note else []),
        figure("page", data, _static(first)),
        tag(
            "footer",
            {},
            _details("How to read it", tag("p", {}, READING), more_in(READING_DOCS, DOCS)),
            _words(parts, bool(frames)),
        ),
    ]
    main = tag("main", {"class": "wide living" if live else "wide" if frames else "lone"}, lines(body))
    model = [_text("engine", asset("built/engine.js")), _text("weights", live.weights)] if live else []
    return document(first.title, main, *model, page_script(), policy=COMPUTES if live else POLICY)


def _static(matrix: Matrix) -> Markup:
    """The picture of a page without scripts. A browser that runs them does not read a large one, which takes long."""
    picture = tag("div", {"class": "scroll"}, matrix_svg(matrix))
    return picture if matrix.weights.size <= MAX_READ else tag("noscript", {}, picture)


def _text(name: str, content: str) -> Markup:
    """A text that the script of the page reads."""
    return tag("script", {"type": "text/plain", "id": name}, _code(content))


def _code(script: str) -> Markup:
    """A script inside an element. What would end the element is only in its strings, where "<" may be an escape."""
    return Markup(re.sub(r"<(?=/script|!--)", r"\\x3c", script, flags=re.IGNORECASE))


def _words(parts: Parts, steps: bool) -> Markup:
    """The meanings of the words of the page."""
    words = ["attention", "weights", "query", "key", "head", "piece", *["state", "context", "logits"] * steps]
    words += [word for word, part in PART_WORDS.items() if part in parts]
    meanings = [part for word in words for part in (tag("dt", {}, word), tag("dd", {}, WORDS[word]))]
    return _details("Words", tag("dl", {}, *meanings))


def _details(title: str, *content: Markup) -> Markup:
    return tag("details", {}, tag("summary", {}, title), *content)
