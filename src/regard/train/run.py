"""A run: a recipe carried out in a directory, from wherever it stands to its end.

>>> for event in Run(find_recipe("dates"), Path("runs/dates")):  # doctest: +SKIP
...     print(event)
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from regard.checkpoint import append_line, mark, marked, resolve
from regard.data.example import Corpus
from regard.device import choose_precision
from regard.errors import UserError
from regard.models import Model
from regard.recipes import MEASURES, Recipe
from regard.stored import load_weights, stored_recipe
from regard.train.evaluate import LIKELIHOODS, Scores, evaluate
from regard.train.events import Evaluated, Event, Finished, Progress, Saved, Started
from regard.train.folder import Existing, check_folder, check_same, clear, is_run, make_folder, open_run
from regard.train.interrupt import Shield
from regard.train.loop import Step, require_finite, train
from regard.train.optim import build_optimizer
from regard.train.prepare import prepare
from regard.train.saved import Mark, restore, save
from regard.verbs.loaded import Loaded


class Run:
    """Iterating trains, and yields what happens. Everything that can be refused is refused when the run is made.

    `existing` says what to do about a run that is already in `out`; without a recipe, resuming takes the stored one.
    `init` names another run, whose weights and tokenizers this one starts from. Iterating again goes on.
    """

    def __init__(
        self, recipe: Recipe | None, out: Path, existing: Existing = "refuse", init: Path | None = None
    ) -> None:
        check_folder(out, existing)
        before = None
        if existing == "resume":
            if init:
                raise UserError(f"from={init}: a run that is resumed has weights already; leave out from= or --resume.")
            recipe = recipe or stored_recipe(out)
            check_same(out, recipe)
            before = resolve(out, ("latest",))
        if recipe is None:
            raise UserError(f"{out}: nothing says what to train there; name a recipe.")
        self.recipe, self.out, self._existing = recipe, out, existing
        self._folder = Path(os.path.abspath(out))  # `out`, wherever one stands later
        if recipe.plan.threads:
            torch.set_num_threads(recipe.plan.threads)

        folder = before or (resolve(init) if init else None)
        self.prepared = prepare(recipe, folder)
        _check_judging(recipe, self.prepared.corpus)
        self.judged = self.prepared.build()
        self.optimizer = build_optimizer(self.judged, recipe.plan)
        self.mark = Mark(data=self.prepared.digest)
        self._saved = -1  # the last step on the disk
        if before:
            self.mark = restore(before, self.judged, self.optimizer)
            self._saved = self.mark.step
            if self.mark.data != self.prepared.digest:
                raise UserError(f"{out}: the training data is not what the run was started with; restore it to resume.")
        elif folder:
            load_weights(self.judged.model, folder / "weights.safetensors")
        else:
            self.prepared.start_vectors(self.judged)

    def __iter__(self) -> Iterator[Event]:
        """Train to the end. Interrupted or abandoned, it saves the step it has come to."""
        fresh = self._saved < 0
        if fresh and self._existing == "overwrite" and is_run(self._folder):
            clear(self._folder)
        make_folder(self._folder)
        self._began = time.perf_counter() - self.mark.seconds
        shield = Shield()
        with shield.installed():
            try:
                # The first weights, which may be another run's, come before the recipe: no run is ever without any.
                first = [self._save()] if fresh else []
                open_run(self._folder, self.recipe, self.mark.step)
                yield self._started()
                yield from first
                yield from self._train(shield)
            except (KeyboardInterrupt, GeneratorExit):
                if self.mark.step > self._saved:
                    self._save()
                raise

    def _train(self, shield: Shield) -> Iterator[Event]:
        plan = self.recipe.plan
        if self.mark.best_step is not None and marked(self._folder, "best") != f"{self.mark.best_step:06d}":
            mark(self._folder, "best", self.mark.best_step)  # a kill came between saving it and marking it
        if self.mark.judged < self.mark.step and self._due():
            yield from self._look_up()
        steps = train(self.judged, self.prepared.batches, plan, self.optimizer, start=self.mark.step)
        since: list[Step] = []  # the last report
        began = time.perf_counter()
        while self._over() is None:
            with shield.closed():
                step = next(steps)
                self.mark = replace(self.mark, step=step.n, seconds=time.perf_counter() - self._began)
            since.append(step)
            if step.n % plan.log == 0 or self._due():
                yield self._report(since, began)
                since, began = [], time.perf_counter()
            if self._due():
                require_finite(step, plan)
                yield from self._look_up()
                began = time.perf_counter()
        reason, it = self._over(), self.mark
        assert reason is not None
        yield Finished(it.step, reason, it.best_step, it.best, it.seconds)

    def _due(self) -> bool:
        """Whether the step that was reached is one to judge and save."""
        return self.mark.step % self.recipe.plan.evaluate == 0 or self._over() is not None

    def _over(self) -> str | None:
        """Why there is nothing more to do, if there is not."""
        plan = self.recipe.plan
        if self.mark.step >= plan.steps:
            return "steps"
        if plan.minutes is not None and self.mark.seconds >= 60 * plan.minutes:
            return "minutes"
        if plan.patience and self.mark.waited >= plan.patience:
            return "patience"
        return None

    # -- looking up ----------------------------------------------------------------------------------------------------

    def _look_up(self) -> Iterator[Event]:
        """Judge the step, note whether it is the best, and save it."""
        scores = self.evaluate()
        select, it = self.recipe.plan.select, self.mark
        value, loss = scores.values.get(select), scores.values["loss"]
        best = value is not None and math.isfinite(value) and _better(select, (value, loss), (it.best, it.best_loss))
        self.mark = replace(
            it,
            judged=it.step,
            best=value if best else it.best,
            best_loss=loss if best else it.best_loss,
            best_step=it.step if best else it.best_step,
            waited=0 if best else it.waited + 1,
            seconds=time.perf_counter() - self._began,
        )
        told = {"step": it.step, "kind": "valid", **scores.values, "notes": scores.notes}
        append_line(self._folder / "metrics.jsonl", told)
        saved = self._save()
        if best:
            mark(self._folder, "best", it.step)
        yield Evaluated(it.step, scores.values, scores.notes, best)
        yield saved

    def evaluate(self) -> Scores:
        """The likelihood of all validation examples, and what takes decoding of `plan.samples` of them."""
        valid, plan = self.prepared.corpus.valid, self.recipe.plan
        cheap = {"loss", *self.recipe.metrics} & LIKELIHOODS
        dear = set(self.recipe.metrics) - cheap
        apart = max(1, len(valid) // max(1, plan.samples))  # from all over the file: it may be sorted
        some = valid[::apart][: plan.samples]
        with self._at_rest() as model:
            scores = evaluate(model, valid, cheap, batch_tokens=plan.batch_tokens)
            return scores | evaluate(model, some, dear, batch_tokens=plan.batch_tokens) if dear and some else scores

    @contextmanager
    def _at_rest(self) -> Iterator[Loaded]:
        """The model as verbs know it, without dropout inside."""
        it = self.prepared
        self.judged.eval()
        try:
            yield Loaded(
                path=self.out,
                step=self.mark.step,
                recipe=self.recipe,
                module=cast(Model, self.judged.model),
                target_tokenizer=it.target_tokenizer,
                source_tokenizer=it.source_tokenizer,
                device=it.device,
                precision=choose_precision(self.recipe.plan.precision, it.device),
                long="truncate",
            )
        finally:
            self.judged.train()

    # -- telling -------------------------------------------------------------------------------------------------------

    def _save(self) -> Saved:
        path = save(self._folder, self.mark, self.prepared, self.judged, self.optimizer)
        self._saved = self.mark.step
        return Saved(self.mark.step, path)

    def _started(self) -> Started:
        it, plan = self.prepared, self.recipe.plan
        return Started(
            path=self.out,
            step=self.mark.step,
            steps=plan.steps,
            parameters=sum(weight.numel() for weight in self.judged.model.parameters()),
            device=str(it.device),
            precision=choose_precision(plan.precision, it.device),
            examples=len(it.corpus.train) - it.batches.dropped,
            dropped=it.batches.dropped,
            shapes=len(it.batches.shapes),
            epoch=len(it.batches),
        )

    def _report(self, since: list[Step], began: float) -> Progress:
        """The steps since the last report as one line."""
        last = since[-1]
        loss = float(torch.stack([step.total for step in since]).mean())  # waits for the device: time is read after it
        progress = Progress(
            step=last.n,
            steps=self.recipe.plan.steps,
            loss=loss,
            terms=dict(zip(last.names, torch.stack([step.means for step in since]).mean(dim=0).tolist())),
            rate=last.rate,
            norm=last.norm,
            tokens_per_second=sum(step.tokens for step in since) / (time.perf_counter() - began),
            seconds=self.mark.seconds,
        )
        told = {"loss": progress.loss, **progress.terms, "rate": progress.rate, "norm": progress.norm}
        speed = {"tokens_per_second": round(progress.tokens_per_second), "seconds": round(progress.seconds, 3)}
        append_line(self._folder / "metrics.jsonl", {"step": last.n, "kind": "train", **told, **speed})
        return progress


def _check_judging(recipe: Recipe, corpus: Corpus) -> None:
    """Refuse what would leave no way to judge a step, before anything is trained."""
    plan = recipe.plan
    if not corpus.valid:
        raise UserError("data: there are no validation examples to judge a step by; set data.valid.")
    if plan.select not in LIKELIHOODS and not plan.samples:
        raise UserError(f"plan.samples=0: plan.select={plan.select} takes samples to measure; give 1 or more.")


def _better(measure: str, now: tuple[float, float], before: tuple[float | None, float | None]) -> bool:
    """Whether (measure, loss) is a gain. Few samples often measure the same: then the lower loss decides."""
    (value, loss), (best, lowest) = now, before
    if best is None or lowest is None:
        return True
    if value == best:
        return loss < lowest
    return value < best if MEASURES[measure] else value > best
