"""`regard show`: the recipes, and every setting of one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from regard.cli import options
from regard.cli.completion import recipe_names
from regard.cli.console import SafeConsole, grid
from regard.cli.lines import print_line
from regard.cli.options import all_kinds

if TYPE_CHECKING:
    from regard.recipes import Recipe

HEADINGS = {  # of the list of recipes, by the verb that uses the trained model
    "translate": "Translate: a text in, a text out",
    "generate": "Language: which token comes next",
    "fill": "Fill: which token is missing",
    "classify": "Classify: a text in, a label or a number out",
    "tag": "Tag: a text in, a tag for each word out",
    "neighbours": "Word vectors: which words are near a word",
    "caption": "Caption: an image or a clip in, a text out",
    "eval": "Sequences of numbers: a class, a number, or an answer at each step; regard eval measures the model",
}
EXAMPLES = 5


def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="Which recipe; none: list them all.", autocompletion=recipe_names),
    ] = None,
    settings: options.Settings = None,
    schedule: Annotated[bool, typer.Option("--schedule", help="Draw the learning rate over the steps.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Show some of its training data.")] = False,
    json: options.Json = False,
) -> None:
    """List the recipes, or every setting of one: its value, the values that are allowed, what it does.

    Every setting can be changed on the command line of train, as in plan.steps=400; here too, to see what comes of it.

    \b
    Examples:
      regard show
      regard show dates
      regard show dates plan.schedule=linear --schedule
      regard show dates --example
    """
    from regard.config import tree
    from regard.recipes import change, find_recipe, find_task

    console, kinds = SafeConsole(), all_kinds()
    if name is None:
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
        console.print("Next: [bold]regard show dates[/] for its settings, [bold]regard train dates[/] to train it.")
        return
    recipe = change(find_recipe(name, kinds), settings or [], kinds)
    find_task(recipe, kinds)  # refuses parts that do not go together
    if json:
        print_line({setting.name: setting.value for setting in tree(recipe)})
        return
    if schedule:
        _schedule(console, recipe)
    if example:
        _examples(console, recipe)
    if not (schedule or example):
        _settings(console, recipe)


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
    console.print(f"Change any of them: [bold]regard train {escape(recipe.name)} plan.steps=400[/]", highlight=False)


def _schedule(console: SafeConsole, recipe: "Recipe") -> None:
    from regard.training.optim import rate_at
    from regard.training.prepare import prepare

    if recipe.plan.epochs is not None:  # the number of steps follows from the data
        recipe = prepare(recipe, kinds=all_kinds(), whole=False).recipe
    plan, width = recipe.plan, max(20, min(console.width - 14, 100))
    steps = [round(at * (plan.steps - 1) / (width - 1)) for at in range(width)]
    rates = [rate_at(plan, step, recipe.model.width) for step in steps]
    highest = max(
        rate_at(plan, step, recipe.model.width) for step in {*steps, max(min(plan.warmup, plan.steps) - 1, 0)}
    )
    console.print(f"rate by step: {plan.schedule} after {plan.warmup} steps of warm-up, highest {highest:.3g}")
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
    from regard.recipes import find_task

    corpus = recipe.data.load()
    sizes = ", ".join(f"{len(getattr(corpus, part)):,} {part}" for part in ("train", "valid", "test"))
    columns = list(find_task(recipe, all_kinds()).fields)
    rows = []
    for example in corpus.train[:EXAMPLES]:
        texts = {column: [getattr(example, column)] for column in columns}
        if "target" in texts:
            texts["target"] += getattr(example, "others", ())  # all targets that are accepted
        rows.append([" / ".join(map(_shown, texts[column])) for column in columns])
    console.print(grid(f"{recipe.name}: {sizes}", columns, rows))


def _shown(value: Any) -> str:
    """A value of an example: a text, or the shape of many numbers."""
    shape = getattr(value, "shape", ())
    return f"{' × '.join(map(str, shape))} numbers" if shape else str(value)


def _kind(part: Any) -> str:
    """The name of a part of a recipe in settings, or of its class; see `regard.recipes.recipe.name_of`."""
    from regard.recipes.recipe import name_of

    table = next((table for table in all_kinds().values() if type(part) in table.values()), {})
    return name_of(part, table)
