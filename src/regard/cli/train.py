"""`regard train`: trains a recipe, evaluates the best step, writes a report."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console
from rich.markup import escape

from regard.checkpoint import Existing
from regard.cli import options
from regard.cli.completion import recipe_names
from regard.cli.console import INTERRUPTED, MISTAKE, LastingConsole, before_first_step, many, ready, reported
from regard.cli.lines import print_line, program
from regard.cli.options import all_kinds
from regard.errors import UserError, nearest

if TYPE_CHECKING:
    from regard.recipes import Recipe
    from regard.report.run import Outcome
    from regard.report.samples import Sample
    from regard.training.extractor import Start
    from regard.training.parallel import Ranks
    from regard.training.run import Run

TALLEST = 48  # the most rows of an alignment that is printed after the first; the report has all of them
WIDEST = 40  # the most columns of an alignment that is printed; a table of answers replaces wider ones
LADDERS = ("dates", "sounds", "multi30k")  # recipes that `regard ladder` compares with other models
EXAMPLE = "example.png"  # in the folder of a captioner: an image to try it on
# Commands that use a model, by its verb; any other verb reads lines.
NEXT = {
    "translate": ("echo {text} | {me} translate {run} --beam 5 --nbest 3",),
    "similarity": ("{me} similarity {run} {text}",),
    "generate": ("{me} generate {run} {prompt} --temperature 0.8", "echo {text} | {me} score {run}"),
    "fill": ("{me} fill {run} {prompt}",),
    "answer": ("printf '%s' {second} | {me} answer {run} --question {first} --passage -",),
    "eval": ("{me} doctor {run}",),
    "neighbours": ("{me} neighbours {run} {prompt}", "{me} export {run} vectors.txt --to word2vec"),
    "caption": (
        "{me} caption {run} {run}/" + EXAMPLE,
        "{me} caption {run} {run}/" + EXAMPLE + " -o caption.html",
    ),
}
EVAL = {
    "translate": " --beam 5",
    "caption": " --beam 3",
    "neighbours": " --wordsim",
}  # options of `regard eval`, by the model's verb


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="The name of a recipe; regard show lists them.", autocompletion=recipe_names
        ),
    ],
    settings: options.Settings = None,
    out: Annotated[
        Path | None, typer.Option(callback=options.writable, help="The directory of the run. Default: runs/RECIPE.")
    ] = None,
    existing: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="If the directory has a run: refuse (the default), resume or overwrite it, or auto: resume it if this "
            "command started it, and start it if there is none.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run: --existing resume.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run: --existing overwrite.")] = False,
    reschedule: Annotated[
        bool,
        typer.Option(
            "--reschedule",
            help="With --resume plan.steps=N or plan.epochs=N: the learning rates of the steps that are left are those "
            "of a run of the new length.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate size, memory and time; train nothing.")] = False,
    baseline: Annotated[bool, typer.Option("--baseline", help="Then train the same model without attention.")] = False,
    seeds: Annotated[
        int,
        typer.Option(min=1, max=1000, help="Train with this number of seeds, and print mean and standard deviation."),
    ] = 1,
    download: Annotated[
        bool,
        typer.Option("--download", help="Download public data, or from=hf:OWNER/NAME, if it is not on this machine."),
    ] = False,
    json: options.Json = False,
    seed: options.Seed = None,
    device: options.MaybeDevice = None,
    precision: options.MaybePrecision = None,
    batch_tokens: options.MaybeBatchTokens = None,
) -> None:
    """Train a recipe; any of its settings can be changed as setting=value.

    from=DIR starts from the weights of another run, or of a public checkpoint, whose tokenizers and model settings come
    with them; its body may be put under the head of another task. The run is a directory that survives a kill at any
    moment; Ctrl-C saves. At the end, the score and some examples with their attention are printed, and a report is
    written: one HTML file.

    \b
    Examples:
      regard train dates
      regard train dates model.score=general plan.steps=400 --out runs/general
      regard train translate data.train=pairs.tsv plan.minutes=30
      regard train translate data.train=b.tsv from=runs/a --out runs/b
      regard train text data.train=mine.txt from=hf:openai-community/gpt2 --download
      regard train classify data.train=opinions.tsv from=bert/ plan.layer_decay=0.9
      regard train pretrain data.train=book.txt model=bert --out runs/bert
      regard train classify data.train=opinions.tsv from=runs/bert
      regard train text data.train=book.txt model=lstm model.direction=both
      regard train classify data.train=reviews.csv data.text=review data.label=stars model=kim
      regard train classify data.train=opinions.tsv from=runs/ulmfit
      regard train pair data.train=entailment.tsv from=bert/ plan.rate=3e-5
      regard train similarity data.train=pairs.csv data.first=a data.second=b data.number=score
      regard train answer data.train=train-v2.0.json from=bert/
      regard train embed data.train=pairs.tsv from=minilm/
      regard train tag data.train=train.txt data.valid=valid.txt from=vectors.txt
      regard train word2vec data.train=book.txt
      regard train elmo data.train=lines.txt
      regard train scenes
      regard train classify data.train=opinions.tsv from=bert/ --seeds 3
      regard train multi30k --download
      regard train dates --resume
      regard train dates --resume plan.steps=2000 --reschedule
      regard train dates --existing auto
      regard train sounds --dry-run
      torchrun --nproc-per-node 2 -m regard train dates
    """
    what = _existing(existing, resume, overwrite)
    if reschedule and what not in ("resume", "auto"):
        raise UserError("--reschedule: changes the length of a run that is resumed; add --resume.")
    if baseline and seeds > 1:
        raise UserError(f"--baseline and --seeds {seeds}: give one of them; regard ladder compares models with seeds.")
    flags = {"seed": seed, "device": device, "precision": precision, "batch_tokens": batch_tokens}
    given = [*(settings or []), *(f"plan.{name}={value}" for name, value in flags.items() if value is not None)]
    place = out or Path("runs") / recipe
    extra = ["--baseline"] * baseline + (["--seeds", str(seeds)] if seeds > 1 else [])
    again = ["train", recipe, "--resume"]
    if extra and what != "resume":  # a run that has not begun needs all settings, and the model of from=
        again = ["train", recipe, *given, "--existing", "auto", *["--reschedule"] * reschedule]
    command = shlex.join([*again, *extra, "--out", str(place)])
    stored = _first_seed(place) if seeds > 1 else place  # the run whose recipe is resumed
    console = LastingConsole(stderr=json, quiet=os.environ.get("RANK", "0") != "0")
    ready(console, recipe)
    with before_first_step(console, place):
        from regard.training.parallel import join_ranks
    with join_ranks() as ranks, _one_message(ranks):
        with before_first_step(console, place):
            chosen, init = _planned(recipe, given, stored if what == "resume" else None, download, ranks, console)
        if dry_run:
            _estimate(chosen, init, ranks, console, json)
            return
        me = f"torchrun --nproc-per-node {ranks.local_count} -m regard" if ranks.several else program()
        jobs = {recipe: Job(chosen, place, what, init, f"{me} {command}", reschedule)}
        if baseline:
            jobs["no attention"] = _baseline(jobs[recipe])
        if seeds > 1:
            jobs = _seeded(jobs[recipe], seeds)
        outcomes = [_carry_out(name, job, ranks, console) for name, job in jobs.items()]
        _conclude([outcome for outcome in outcomes if outcome], place, seeds, console, json)


def _existing(stated: str | None, resume: bool, overwrite: bool) -> Existing:
    """What is to be done if the directory has a run, by --existing, --resume and --overwrite."""
    known = get_args(Existing)
    flags = [name for name, given in (("resume", resume), ("overwrite", overwrite)) if given]
    if len({*flags, *filter(None, [stated])}) > 1:
        given = " and ".join([*(f"--{name}" for name in flags), *([f"--existing {stated}"] if stated else [])])
        raise UserError(f"{given}: one of them says what to do with a run that is there; give one.")
    if stated and stated not in known:
        raise UserError(f"--existing {stated}: no such choice.{nearest(stated, known)}")
    return cast(Existing, stated or (flags or ["refuse"])[0])


def _planned(
    name: str, settings: list[str], resumed: Path | None, fetch: bool, ranks: "Ranks", console: Console
) -> "tuple[Recipe, Start | None]":
    """The recipe with its changes, and the model that from=DIR names, after any download.

    A run that is resumed has the recipe that it was started with. The name of that recipe may be the user's own; the
    name of another known recipe is refused. The first rank downloads, the others wait.
    """
    from regard.cli.progress import fetch_data
    from regard.pretrained.hub import HUB_PREFIX, resolve_hub_path
    from regard.recipes import change, find_recipe
    from regard.recipes.recipe import without_same_kinds
    from regard.stored import stored_recipe
    from regard.training.extractor import started
    from regard.training.folder import is_run

    kinds = all_kinds()
    changes = [setting for setting in settings if not setting.startswith("from=")]
    start = next((setting.removeprefix("from=") for setting in reversed(settings) if setting not in changes), None)
    if start is not None and resumed:
        raise UserError(f"from={start}: a run that is resumed has weights already; leave out from= or --resume.")
    init: Start | None = None
    if start is not None:
        if fetch:
            if ranks.first:
                resolve_hub_path(start, fetch)
            ranks.broadcast([0.0])
        recipe, init = started(name, changes, start, kinds)
    elif resumed:
        if not is_run(resumed):
            raise UserError(f"{resumed}: holds no run to resume; leave out --resume to start one.")
        recipe = stored_recipe(resumed, kinds)
        if recipe.name != name and recipe.name in kinds["recipe"]:
            command = shlex.join(["train", recipe.name, "--resume", "--out", str(resumed)])
            raise UserError(f"{resumed}: a run of {recipe.name}, not of {name}; use: {program()} {command}")
        recipe = change(recipe, without_same_kinds(recipe, changes, kinds), kinds)
    else:
        recipe = change(find_recipe(name, kinds), changes, kinds)
    if fetch:
        only_model = (start or "").startswith(HUB_PREFIX) and not getattr(recipe.data, "files", ())
        if ranks.first and not only_model:
            fetch_data(recipe.data, console)
        ranks.broadcast([0.0])
    return recipe, init


@contextmanager
def _one_message(ranks: "Ranks") -> Iterator[None]:
    """If several ranks fail together, only the first one prints why."""
    try:
        yield
    except typer.Exit:  # the rank has printed its message
        ranks.claim_output()
        raise
    except Exception:
        if not ranks.claim_output():
            raise typer.Exit(MISTAKE) from None
        raise


@dataclass(frozen=True)
class Job:
    """What to train, and where."""

    recipe: "Recipe"
    out: Path
    existing: Existing
    init: "Start | None"
    again: str  # the command that resumes it
    reschedule: bool


def _estimate(recipe: "Recipe", init: "Start | None", ranks: "Ranks", console: Console, json: bool) -> None:
    """Print the parameters, memory and time of the run on this machine, for one rank."""
    from regard.cli.progress import print_warnings
    from regard.data.files import cache_folder
    from regard.report.figures import duration, size
    from regard.training.estimate import estimate

    if not ranks.first:
        return
    with reported(recipe.name, console) as report:
        found = estimate(recipe, init, all_kinds(), report, ranks.count)
    print_warnings(found.warnings, console)
    if json:
        print_line(vars(found))
        return
    tokens = f"{size(found.token_bytes)}B, in {cache_folder() / 'tokens'}"
    longest = max(found.shapes, key=lambda shape: shape[0] * max(shape[1:]))
    parts = {"weights": found.weights_bytes, "gradients": found.gradients_bytes, "optimiser": found.optimizer_bytes}
    parts["activations"] = found.activations_bytes
    memory = f"{size(found.peak_bytes)}B on {found.device}: " + ", ".join(f"{k} {size(v)}B" for k, v in parts.items())
    times = [found.tuning_seconds, found.seconds]
    first, time = (duration(seconds) if seconds >= 1 else "under 1 s" for seconds in times)
    tuning = f"{first} for {many(found.tuning_steps, 'step', 'steps')} of a language model (plan.tune_lm)"
    rows = {
        "parameters": "counted during training" if found.counts else f"{found.parameters:,}",
        **({"head": found.head} if found.head else {}),
        "examples": f"{found.examples:,}" + f", {found.dropped:,} too long and left out" * bool(found.dropped),
        "batches": f"{found.epoch:,} an epoch, {many(len(found.shapes), 'shape', 'shapes')}, the largest "
        + " × ".join(map(str, longest)),
        **({"text": f"{size(found.text_bytes)}B on disk", "token file": tokens} if found.text_bytes else {}),
        **({} if found.counts else {"memory": memory}),
        "host memory": f"{size(found.host_bytes)}B, with the preparation, program code and mapped files; without "
        "evaluations",
        **({"tuning": tuning} if found.tuning_steps else {}),
        "time": f"{time} for {many(found.steps, 'step', 'steps')} (plan.{found.ends_by}) of "
        f"{1000 * found.seconds_per_step:.0f} ms, without evaluations",
    }
    if found.device.startswith("cuda") and recipe.plan.capture and not recipe.plan.checkpoint:
        rows["time"] += " and without CUDA graphs, with which a small model takes a fraction of this time"
    tried = "a few parts counted" if found.counts else "one update on the longest batch, a few on others"
    if found.extrapolated:
        tried = "updates on a few rows of a batch; its memory and time are estimated from these"
    console.print(f"[bold]{escape(recipe.name)}[/], not trained: {tried}")
    for name, row in rows.items():
        console.print(f"  {name:<12}{row}", highlight=False, soft_wrap=True)


def _baseline(job: Job) -> Job:
    """The same job for the model without attention: its decoder reads one vector of the source."""
    from regard.recipes import with_vocabularies
    from regard.training.folder import is_run

    recipe, out = job.recipe, job.out / "baseline"
    config = recipe.model.without_attention()
    if config is None:
        why = "only a recurrent translator (model=seq2seq) can do without its attention"
        raise UserError(f"--baseline: {why}; leave it out, or compare families with: regard ladder")
    plain = replace(recipe, model=with_vocabularies(config))
    job = replace(job, recipe=plain, out=out, init=None)
    return job if is_run(out) else _begun(job)


def _first_seed(place: Path) -> Path:
    """The first run of several seeds that is there."""
    found = [path for path in place.glob("seed-*") if path.name.removeprefix("seed-").isdecimal()]
    return min(found, key=lambda path: int(path.name.removeprefix("seed-")), default=place)


def _seeded(job: Job, seeds: int) -> dict[str, Job]:
    """The same job with several seeds, each in a directory of its own. A run that had not begun is started."""
    from regard.stored import stored
    from regard.training.folder import is_run

    found, plan = dict[str, Job](), job.recipe.plan
    there = [path.name for path in job.out.iterdir()] if job.out.is_dir() else []
    if other := [name for name in there if not name.startswith((".", "seed-")) and name != "report.html"]:
        raise UserError(f"{job.out}: has {min(other)}, which is not of runs with --seeds; choose another --out.")
    for seed in range(plan.seed, plan.seed + seeds):
        recipe = replace(job.recipe, plan=replace(plan, seed=seed))
        one = replace(job, recipe=recipe, out=job.out / f"seed-{seed}")
        found[f"seed {seed}"] = one if is_run(one.out) else _begun(one)
    if job.existing == "resume" and (fresh := [one.out for one in found.values() if one.existing != "resume"]):
        given = stored(_first_seed(job.out), all_kinds()).given
        if given and given.path:
            why = f"has not begun, and --resume does not read the model of from={given.path}"
            raise UserError(f"{fresh[0]}: {why}; repeat the command that started the others, with --existing auto.")
    return found


def _begun(job: Job) -> Job:
    """A job whose directory has no run: where others are resumed, it is started."""
    return replace(job, existing="overwrite", reschedule=False) if job.existing == "resume" else job


def _carry_out(name: str, job: Job, ranks: "Ranks", console: Console) -> "Outcome | None":
    """Train to the end; the first rank evaluates the best step. Ctrl-C saves and prints the command to resume."""
    from regard.cli.progress import follow
    from regard.report.run import conclude
    from regard.training.run import Run
    from regard.training.warm_start import WarmStart

    with before_first_step(console, job.out):
        with reported(name, console) as report:
            run = Run(job.recipe, job.out, job.existing, job.init, ranks, all_kinds(), report, job.reschedule)
        if job.init is not None and not run.resumed:
            console.out(f"from={job.init.path}: {_taken(run, job.init)}", highlight=False)
            if isinstance(job.init, WarmStart) and job.init.finetune:
                batch = f"plan.batch_tokens={run.recipe.plan.batch_tokens}"  # a small file has smaller batches
                own = [batch if one.startswith("plan.batch_tokens=") else one for one in job.init.finetune]
                console.out(f"settings for from={job.init.path}: {' '.join(own)}", highlight=False)
        try:
            finished = follow(run, console, name)
            return conclude(name, run, finished) if ranks.first else None
        except KeyboardInterrupt:
            if run.saved < 0:
                raise
            console.out(f"\nstopped and saved at {run.where}; continue with: {job.again}", highlight=False)
            raise typer.Exit(INTERRUPTED) from None


def _taken(run: "Run", init: "Start") -> str:
    """What a run takes from the model of from=DIR: its layers as features of words, or its weights."""
    from regard.training.extractor import Extraction

    if isinstance(init, Extraction):
        mixed = f", a mix of {init.settings['mixed']} layers" if init.settings["mixed"] > 1 else ""
        trained = "trained too" if run.recipe.model.tune else "frozen"
        return f"features of {init.settings['extracted']:,} numbers for each word{mixed}, {trained}"
    found = run.transfer
    more = "".join(f"; {what}: {', '.join(names)}" for what, names in found.parts.items() if names) if found else ""
    return f"{many(found.taken, 'weight', 'weights')} taken{more}" if found and more else "all weights taken"


def _conclude(outcomes: "list[Outcome]", place: Path, seeds: int, console: Console, json: bool) -> None:
    """Print the scores and some examples, write the report into `place`, print commands to try next."""
    from regard.file_io import write_file
    from regard.render.html import save_report
    from regard.render.image_view import png
    from regard.render.terminal import sections_text
    from regard.report.run import mean_scores, run_sections, sample_table, score_table
    from regard.report.steps import TERMINAL

    if not outcomes:  # only the first rank has outcomes
        return
    first = outcomes[0]
    seen, found = first.views(), first.samples()
    sections = run_sections(outcomes, seen, found)
    path = save_report(place / "report.html", first.recipe.name, sections)
    if json:
        runs = [{"name": one.name, "run": one.path, **one.numbers} for one in outcomes]
        mean = {"seeds": seeds, **mean_scores(outcomes)} if seeds > 1 else {}
        steps = {name: rows for name, rows in (("steps", first.steps), ("gates", first.gates)) if rows}
        print_line({**runs[0], "report": path, "others": runs[1:], **mean, **steps})
        return
    tables = [first.tasks] if first.tasks else []
    tables += [sample_table(found)] if found else []
    tables += first.step_tables() if first.steps and len(first.steps[0]) <= TERMINAL else []
    console.print("", sections_text([score_table(outcomes), *tables]))
    narrow = [view for view in seen if len(view.columns) <= WIDEST or not first.answers]
    for number, view in enumerate(narrow):
        short = len(view.rows) <= TALLEST  # a model that has learnt little may not end its targets
        if view.layers and (number == 0 or short):
            console.print(view.text(), "")
    if seen and not narrow:
        console.print(sections_text(first.answers), "")
    for picture in first.captioned[:1]:
        if len(picture.words) <= TALLEST // 2:
            console.print(picture.text(), "")
        write_file(first.path / EXAMPLE, png(picture.image))
    console.print(f"The report: [bold]{escape(str(path))}[/]", highlight=False, soft_wrap=True)
    console.print("Next:", *next_commands(first, found), sep="\n  ", highlight=False, soft_wrap=True, markup=False)


def next_commands(outcome: "Outcome", samples: "Sequence[Sample]") -> list[str]:
    """Commands to try with a run that has just ended."""
    from regard.data.joined import inputs_of
    from regard.recording import attentions

    model, verb, (text, *_) = outcome.model, outcome.model.task.verb, outcome.pictured or [""]
    run, me, prompt = shlex.quote(str(outcome.path)), program(), samples[0].given if samples else text
    looks = text and (model.source_tokenizer or attentions(model.module)) and not model.reads_images
    looks = looks and not model.module.config.reads_words
    gives, parts = "echo {text}", ["", ""]
    if model.joined_text is not None and outcome.examples:
        inputs = inputs_of(outcome.examples[0].text)
        parts = [*inputs[0][:2], *(each[-1] for each in inputs[1:] if model.predicts("choice"))]
        gives = "printf '" + r"\t".join(["%s"] * len(parts)) + r"\n' {parts}"
        text, prompt = shlex.join(text), shlex.join(parts)
    else:
        text, prompt = shlex.quote(text), shlex.quote(prompt)
    commands = [
        *(["{me} look {run} {text} -o look.html"] if looks else []),
        *NEXT.get(verb, (gives + " | {me} {verb} {run}",)),
        "{me} ladder {recipe}" if outcome.recipe.name in LADDERS else "{me} eval {run}" + EVAL.get(verb, ""),
    ]
    first, second, *_ = map(shlex.quote, [*parts, ""])
    words = {
        "first": first,
        "second": second,
        "text": text,
        "prompt": prompt,
        "parts": prompt,
        "recipe": outcome.recipe.name,
    }
    return [command.format(me=me, run=run, verb=verb, **words) for command in commands]
