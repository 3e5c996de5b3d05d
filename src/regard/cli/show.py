"""`regard show`: the recipes, every setting of one, and the recipe, step and scores of a run."""

from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from regard.cli import options
from regard.cli.completion import recipe_names
from regard.cli.console import SafeConsole, grid, notice
from regard.cli.lines import print_line
from regard.cli.options import all_kinds
from regard.errors import UserError
from regard.shipped import SHIPPED, run_named

if TYPE_CHECKING:
    from regard.recipes import Recipe
    from regard.stored import Stored

HEADINGS = {  # of the list of recipes, by the verb that uses the trained model
    "translate": "Translate: a text in, a text out",
    "generate": "Language: which token comes next",
    "fill": "Fill: which token is missing",
    "answer": "Answer: a question and a passage in, the span that answers it out",
    "classify": "Classify: a text, two texts or choices in, a label or a number out",
    "similarity": "Similarity: two texts in, a number out",
    "embed": "Embed: a text in, a vector out",
    "tag": "Tag: a text in, a tag for each word out",
    "neighbours": "Word vectors: which words are near a word",
    "caption": "Caption: an image or a clip in, a text out",
    "eval": "Sequences of numbers: a class, a number, or an answer at each step; regard eval measures the model",
}
EXAMPLES = 5
PICTURED = 50_000  # training examples; of more, no example is pictured, since all would have to be encoded
TIMES = ("step", "kind", "seconds", "training")  # of a line of metrics.jsonl, beside its scores


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe, or a run, such as runs/dates. Without it, all recipes are listed.",
            autocompletion=recipe_names,
        ),
    ] = None,
    settings: options.Settings = None,
    schedule: Annotated[bool, typer.Option("--schedule", help="Draw the learning rate over the steps.")] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Show training data, and one example as the model reads it.")
    ] = False,
    json: options.Json = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", callback=options.writable_file, help="With --example: write a page, one .html file."
        ),
    ] = None,
) -> None:
    """List the recipes, or every setting of one: its value, the values that are allowed, what it does.

    Every setting can be changed on the command line of train, as in plan.steps=400, and here, to see its effect on the
    others. For a run, the step and the newest scores come first, then the settings that differ from its recipe, then
    all settings.

    \b
    Examples:
      regard show
      regard show dates
      regard show dates plan.schedule=linear --schedule
      regard show dates --example
      regard show pretrain model=bert data.train=text.txt --example -o example.html
      regard show runs/dates
      regard show dates-plain
    """
    from regard.config import tree
    from regard.data.run_files import located
    from regard.recipes import change, find_recipe, find_task
    from regard.stored import stored

    console, kinds = SafeConsole(), all_kinds()
    if schedule and json:
        raise UserError("--schedule and --json: the learning rate is drawn as text; give one of them.")
    if name is None:
        if schedule or example or out is not None:
            raise UserError("--schedule, --example and --out: are for one recipe; name it, as in: regard show dates")
        recipes = {name: make() for name, make in kinds["recipe"].items()}
        tasks = {name: find_task(recipe, kinds) for name, recipe in recipes.items()}
        if json:
            print_line({name: {"task": tasks[name].name, "title": recipe.title} for name, recipe in recipes.items()})
            return
        rows: dict[str, list[list[str]]] = {verb: [] for verb in HEADINGS}
        for name, recipe in recipes.items():
            row = [name, _kind(recipe.data), _kind(recipe.model), recipe.title]
            rows.setdefault(tasks[name].verb, []).append(row)
        for verb, some in rows.items():
            heading = HEADINGS.get(verb, verb.capitalize())
            console.print(grid(heading, ["recipe", "data", "model", "what it learns"], some), "")
        models = [[name, model.about, model.example] for name, model in SHIPPED.items()]
        console.print(grid("Trained models that come with regard", ["model", "what it does", "try"], models), "")
        console.print("Next: [bold]regard show dates[/] for its settings, [bold]regard train dates[/] to train it.")
        return
    run = Path(name) if name not in kinds["recipe"] and run_named(Path(name)).is_dir() else None
    if run and not (run_named(run) / "recipe.json").is_file():
        raise UserError(f"{name}: this directory has no run; name a run, such as runs/dates, or a recipe.")
    if run and settings:
        raise UserError(f"{settings[0]}: the settings of the run {name} are fixed; leave it out, or name a recipe.")
    if start := next((one for one in settings or [] if one.startswith("from=")), None):
        raise UserError(f"{start}: regard show has no from=, which is for regard train; leave it out.")
    known = stored(run_named(run), kinds) if run else None
    recipe = known.recipe if known else change(find_recipe(name, kinds), settings or [], kinds)
    find_task(recipe, kinds)  # refuses parts that do not go together
    if out is not None and (not example or out.suffix.lower() != ".html"):
        cure = "the page is HTML; end its name in .html" if example else "only --example writes a page; add it"
        raise UserError(f"--out {out}: {cure}.")
    if example and known:
        recipe = replace(recipe, data=located(recipe.data, known.files or {})[0])
    if example and (json or out is not None):
        _picture(console, recipe, json, out)
        return
    if json:
        values = {setting.name: setting.value for setting in tree(recipe)}
        print_line(
            {**_progress(run, known), "changed": changed(recipe), "settings": values} if run and known else values
        )
        return
    if schedule:
        _schedule(console, recipe)
    if example:
        _examples(console, recipe)
    if not (schedule or example):
        if run and known:
            _run(console, run, known)
        _settings(console, recipe)
        use = f"{escape(recipe.name)} plan.steps=400" + " --out runs/other" * bool(run)
        console.print(f"Change any of them: [bold]regard train {use}[/]", highlight=False)
        if name in SHIPPED and not run:
            about = SHIPPED[name]
            said = f"A trained one, {about.about}: [bold]{escape(about.example)}[/]"
            console.print(said, highlight=False, soft_wrap=True)


def changed(recipe: "Recipe") -> dict[str, dict[str, Any]]:
    """The settings of a run that are not those of the recipe of its name: the value, and the value in the recipe.

    A part of another kind than the recipe's is compared with the defaults of its kind.
    """
    from regard.config import tree
    from regard.recipes.recipe import shown_name

    kinds = all_kinds()
    if recipe.name not in kinds["recipe"]:  # a user's own, of other tables
        return {}
    usual = kinds["recipe"][recipe.name]()
    was: dict[str, Any] = {setting.name: setting.value for setting in tree(usual)}
    now: dict[str, Any] = {}
    for part in ("data", "model", "objective", "head"):
        one, other = getattr(usual, part), getattr(recipe, part)
        if type(one) is not type(other):
            was[part], now[part] = (None if each is None else shown_name(each, kinds[part]) for each in (one, other))
            defaults = {field.name: field.default for field in fields(other)} if other else {}
            was |= {f"{part}.{name}": None if value is MISSING else value for name, value in defaults.items()}
    if recipe.plan.epochs is not None:
        was["plan.steps"] = recipe.plan.steps  # follows from plan.epochs
    now |= {setting.name: setting.value for setting in tree(recipe)}
    return {
        name: {"value": value, "recipe": was.get(name)}
        for name, value in now.items()
        if name not in was or was[name] != value
    }


def _progress(run: Path, known: "Stored") -> dict[str, Any]:
    """How far a run is, and its newest scores: those of the validation examples, or the training loss."""
    from regard.checkpoint import read_pointer
    from regard.training.ladder.quality import read_log

    place = run_named(run)
    latest, best = (read_pointer(place, name) for name in ("latest", "best"))
    log = read_log(place)
    line = next((one for kind in ("valid", "train") for one in reversed(log) if one["kind"] == kind), {"kind": None})
    names = [name for name in line if (name == "loss" if line["kind"] == "train" else name not in TIMES)]
    return {
        "run": run,
        "recipe": known.recipe.name,
        "version": known.version,
        "step": int(latest or 0),
        "steps": known.recipe.plan.steps,
        "best_step": int(best) if best else None,
        "scored": line["kind"],
        "scores": {name: line[name] for name in names},
        "report": run / "report.html" if (place / "report.html").is_file() else None,
    }


def _run(console: SafeConsole, run: Path, known: "Stored") -> None:
    """Print how far a run is, its newest scores, and the settings that differ from its recipe."""
    from regard.config import format_value
    from regard.report.figures import find_metric

    found, metrics, recipe = _progress(run, known), all_kinds()["metric"], known.recipe
    scores = [(find_metric(name, metrics), value) for name, value in found["scores"].items()]
    rows = [
        ["step", f"{found['step']:,} of {found['steps']:,}"],
        *([["best step", f"{found['best_step']:,}"]] if found["best_step"] is not None else []),
        *([metric.title, metric.show(value)] for metric, value in scores),
        *([["report", str(found["report"])]] if found["report"] else []),
        *([["written by", f"regard {found['version']}"]] if found["version"] else []),
    ]
    of = f"; scores of {found['scored']}" if scores else ""
    console.print(grid(f"{run}: a run of {recipe.name}{of}", ["", ""], rows), "")
    differ = [[name, *map(format_value, (each["value"], each["recipe"]))] for name, each in changed(recipe).items()]
    if differ:
        columns = ["setting", "value", "in the recipe"]
        console.print(grid(f"Settings that differ from the recipe {recipe.name}", columns, differ), "")


def _settings(console: SafeConsole, recipe: "Recipe") -> None:
    from regard.config import format_value, tree

    parts: dict[str, list[list[str]]] = {}
    for setting in tree(recipe):
        head, dot, _ = setting.name.partition(".")
        choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
        about = setting.comment + choices if setting.comment else setting.type
        parts.setdefault(head if dot else "", []).append([setting.name, format_value(setting.value), about])
    for head, rows in parts.items():
        part = getattr(recipe, head) if head else recipe
        kind = _kind(part) if head else recipe.name
        title = f"{head}={kind}" if head and kind != head else kind  # of a plan there is one kind
        about = (type(part).__doc__ or "").partition("\n")[0] if head else recipe.title
        console.print(grid(f"{title}: {about}", ["setting", "value", "what it is"], rows), "")


def _schedule(console: SafeConsole, recipe: "Recipe") -> None:
    from regard.training.optim import rate_at
    from regard.training.prepare import prepare

    if recipe.plan.epochs is not None:  # the number of steps follows from the data
        recipe = prepare(recipe, kinds=all_kinds(), whole=False).recipe
    plan, width = recipe.plan, max(20, min(console.width - 14, 100))
    steps = [round(at * (plan.steps - 1) / (width - 1)) for at in range(width)]
    rates = [rate_at(plan, step, recipe.model.width) for step in steps]
    highest = max(
        rate_at(plan, step, recipe.model.width) for step in {*steps, max(min(plan.warmup_steps, plan.steps) - 1, 0)}
    )
    console.print(f"rate by step: {plan.schedule} after {plan.warmup_steps} steps of warm-up, highest {highest:.3g}")
    for line in bars(rates, height=10):
        console.print(line, highlight=False, style="blue")
    console.print(f"0{plan.steps:>{width - 1}}", style="dim", highlight=False)


def bars(values: list[float], height: int) -> list[str]:
    """A column for each value, from the bottom line up to the highest value; eighths of a line count."""
    eighths = [round(8 * height * value / (max(values) or 1.0)) for value in values]
    return [
        "".join(" ▁▂▃▄▅▆▇█"[min(max(level - 8 * line, 0), 8)] for level in eighths) for line in reversed(range(height))
    ]


def _examples(console: SafeConsole, recipe: "Recipe") -> None:
    from regard.data.fields import TextField
    from regard.data.sources import Lines
    from regard.data.streams import Book
    from regard.recipes import find_task

    if isinstance(recipe.data, Book | Lines):  # a text, of which five lines say little
        _picture(console, recipe)
        return
    corpus = recipe.data.load()
    sizes = ", ".join(f"{len(getattr(corpus, part)):,} {part}" for part in ("train", "valid", "test"))
    task = find_task(recipe, all_kinds())
    columns = list(task.fields)
    rows = []
    for example in corpus.train[:EXAMPLES]:
        texts = {column: [getattr(example, column)] for column in columns}
        if "target" in texts:
            texts["target"] += getattr(example, "others", ())  # all targets that are accepted
        rows.append([" / ".join(map(_shown, texts[column])) for column in columns])
    console.print(grid(f"{recipe.name}: {sizes}", columns, rows))
    if len(corpus.train) <= PICTURED and any(issubclass(kind, TextField) for kind in task.fields.values()):
        console.print("")
        try:
            _picture(console, recipe)
        except UserError as error:  # the data can be shown, but not trained on
            notice(f"no example is pictured: {error}")


def _picture(console: SafeConsole, recipe: "Recipe", json: bool = False, out: Path | None = None) -> None:
    """One example as the model reads it: on the terminal, as JSON, or as a page."""
    from dataclasses import asdict

    from regard.render.html import save_report
    from regard.render.terminal import sections_text
    from regard.report.example import example_picture

    found = example_picture(recipe, all_kinds())
    if json:
        print_line(asdict(found))
    if out is not None:
        saved = save_report(out, f"{recipe.name}: one example", found.sections())
        notice(f"the page: {saved}")
    if not json and out is None:
        console.print(sections_text(found.sections()))


def _shown(value: Any) -> str:
    """A value of an example: a text, its parts, several texts of parts, or the shape of many numbers."""
    if isinstance(value, tuple):
        between = " · " if all(isinstance(one, str) for one in value) else " | "
        return between.join(map(_shown, value))
    shape = getattr(value, "shape", ())
    return f"{' × '.join(map(str, shape))} numbers" if shape else str(value)


def _kind(part: Any) -> str:
    """The name of a part of a recipe in settings, or of its class; see `regard.recipes.recipe.name_of`."""
    from regard.recipes.recipe import name_of

    table = next((table for table in all_kinds().values() if type(part) in table.values()), {})
    return name_of(part, table)
