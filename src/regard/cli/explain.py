"""`regard explain`: explains an idea by a small experiment that runs now."""

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from regard.cli import options
from regard.cli.console import APART, SafeConsole, grid, notice
from regard.cli.lines import print_line
from regard.errors import UserError, nearest

if TYPE_CHECKING:
    from regard.explain import Options, Topic
    from regard.explain.topic import Progress

# What the help calls an option that is given without its name.
MODELS = {"model": "DIR", "runs": "DIR,DIR", "models": "DIR,DIR"}
PLACES = {**MODELS, "file": "FILE"}
SETTING = re.compile(r"[a-z_]+=")
OUTPUTS = "-o FILE.html writes a page with all pictures; --json prints the numbers."


def explain(
    topic: Annotated[str | None, typer.Argument(help="What to explain; without it, all topics are listed.")] = None,
    words: Annotated[list[str] | None, typer.Argument(help="A model, a text for it, options name=value.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", callback=options.writable_file, help="Write a page, one .html file.")
    ] = None,
    json: options.Json = False,
    download: options.Download = False,
    help: Annotated[bool, typer.Option("--help", "-h", help="Show what a topic explains, and its options.")] = False,
) -> None:
    """Explain an idea by a small experiment: text and numbers in the terminal and, with -o, a page."""
    from regard.config import override
    from regard.explain import TOPICS

    console = SafeConsole()
    if topic is None:
        _list(console, TOPICS)
        return
    if topic not in TOPICS:
        raise UserError(f'"{topic}" is not a topic.{nearest(topic, TOPICS)}')
    chosen = TOPICS[topic]
    if help:
        _teach(console, topic, chosen)
        return
    if out is not None and out.suffix.lower() != ".html":
        raise UserError(f"--out {out}: the page is HTML; end its name in .html.")
    settings = override(chosen.options, _settings(topic, chosen.options, words or []), {})
    if download:
        from regard.pretrained.hub import resolve_hub_path

        for name in MODELS:
            given = getattr(settings, name, ())
            for path in [given] if isinstance(given, str) else given:
                resolve_hub_path(path, download)  # the topic then finds it on this machine
    with _bars() as report:
        result = chosen.run(settings, report)
    sections = chosen.sections(result, shlex.join(["regard", "explain", topic, *(words or [])]))
    if out is not None:
        from regard.render.html import save_report
        from regard.report.glossary import glossary

        save_report(out, result.title, [*sections, glossary(chosen.words)])
    if json:
        print_line({**result.data, "page": out})
        return
    from regard.render.terminal import sections_text

    console.print(f"[bold]{escape(result.title)}[/]", "", sections_text(sections), sep="\n", highlight=False)
    if out is not None:
        console.print(f"The page: [bold]{escape(str(out))}[/]", highlight=False, soft_wrap=True)


def _settings(topic: str, defaults: "Options", words: list[str]) -> list[str]:
    """The words as settings: the words without name= are the places of the topic, such as DIR and TEXT."""
    named = [word for word in words if SETTING.match(word)]
    others = [word for word in words if not SETTING.match(word)]
    places = defaults.places
    if len(others) > len(places):
        cure = "an option has the form name=value" if places else f"{topic} takes options only, as name=value"
        raise UserError(f'"{others[len(places)]}": {cure}; see: regard explain {topic} --help')
    return [*(f"{name}={word}" for name, word in zip(places, others)), *named]


def _list(console: SafeConsole, topics: "dict[str, Topic]") -> None:
    groups: dict[str, list[list[str]]] = {}
    for name, topic in topics.items():
        groups.setdefault(topic.group, []).append([name, topic.summary])
    for group, rows in groups.items():
        console.print(grid(group, ["", ""], rows), "")
    examples = ("scaling", "masking steps=1000 -o masking.html", "heads --help")
    console.print(
        OUTPUTS, "", "[bold]Examples:[/]", *(f"  regard explain {each}" for each in examples), sep="\n", highlight=False
    )


def _teach(console: SafeConsole, name: str, topic: "Topic") -> None:
    """Print what a topic explains, its options and examples."""
    from regard.config import format_value, tree

    places = "".join(f" [{PLACES.get(place, place.upper())}]" for place in topic.options.places)
    fetches = " [--download]" if MODELS.keys() & topic.options.places else ""
    usage = f"Usage: regard explain {name}{places} [OPTION=VALUE]... [-o FILE.html] [--json]{fetches}"
    console.print(usage, "", f"[bold]{escape(topic.summary)}[/]", "", sep="\n", highlight=False)
    for text in topic.prose:
        console.print(text, "", sep="\n", highlight=False, markup=False)
    rows = [[setting.name, format_value(setting.value), setting.comment] for setting in tree(topic.options)]
    console.print(grid("Options", ["option", "value", "what it is"], rows), "")
    console.print(f"{OUTPUTS} Takes {topic.takes}.", "", "[bold]Examples:[/]", sep="\n", highlight=False)
    for example in topic.examples:
        console.print(f"  regard explain {name} {example}".rstrip(), highlight=False, markup=False)


@contextmanager
def _bars() -> "Iterator[Callable[[Progress], None]]":
    """Progress on standard error: on a terminal a bar for each network, else a line every ten seconds."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[loss]}"))
    remaining, console = TimeRemainingColumn(compact=True), SafeConsole(stderr=True)
    if not console.is_terminal:
        shown = time.monotonic()

        def line(progress: "Progress") -> None:
            nonlocal shown
            if time.monotonic() - shown >= APART:
                shown = time.monotonic()
                loss = "" if progress.loss is None else f", loss {progress.loss:.3f}"
                notice(f"{progress.name}: step {progress.step}/{progress.steps}{loss}")

        yield line
        return
    with Bars(*columns, remaining, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(progress: "Progress") -> None:
            if progress.name not in tasks:
                tasks[progress.name] = bars.add_task(escape(progress.name), total=progress.steps, loss="")
            loss = "" if progress.loss is None else f"loss {progress.loss:.3f}"
            bars.update(tasks[progress.name], completed=progress.step, loss=loss)

        yield report
