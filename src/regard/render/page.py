"""The interactive page of a view: one HTML file with all layers and heads, and every decoding step."""

from collections.abc import Sequence

from regard.render.files import asset
from regard.render.markup import Markup, lines, tag
from regard.render.page_data import PageData, Parts
from regard.render.svg import matrix_svg
from regard.render.view_data import Frame, Layer, Matrix, caption

# The page may use its own inline style and script, and may not load anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


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
    look = [tag("h2", {}, *heading), _fragment("stage"), tag("noscript", {}, matrix_svg(first))]
    body = [
        tag("header", {}, tag("h1", {"dir": "auto"}, first.title)),
        _fragment("controls"),
        *([tag("p", {"class": "quiet"}, page_data.note)] if page_data.note else []),
        *([_fragment("stepper")] if frames else []),
        tag(
            "div",
            {"class": "columns"},
            tag("div", {"class": "card look"}, lines(look)),
            *([_fragment("steps")] if frames else []),
        ),
        tag("footer", {}, tag("p", {}, Markup(" · ".join(keys)))),
        Markup('<div id="tip" role="tooltip" hidden></div>'),
    ]
    data = tag("script", {"type": "application/json", "id": "data"}, Markup(page_data.json(frames or ())))
    script = tag("script", {}, Markup(f"\n{asset('page.js')}"))
    return document(first.title, tag("main", {"class": "wide" if frames else "lone"}, lines(body)), data, script)


def _fragment(name: str) -> Markup:
    """A part of the page without data, which is a file of this package."""
    return Markup(asset(f"{name}.html"))
