"""A run: a recipe carried out in a directory, from wherever it stands to its end.

>>> for event in Run(find_recipe("dates"), Path("runs/dates")):  # doctest: +SKIP
...     print(event)
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from regard.checkpoint import append_line, read_pointer, resolve, set_pointer
from regard.config import Kinds
from regard.data.text_files import Report
from regard.device import choose_precision
from regard.errors import UserError
from regard.models import Model
from regard.recipes import Recipe, with_kinds
from regard.stored import stored_recipe
from regard.training.evaluate import Scores
from regard.training.events import Evaluated, Event, Finished, Progress, Saved, Started
from regard.training.folder import (
    Existing,
    check_batches,
    check_folder,
    check_same,
    clear,
    is_run,
    make_folder,
    open_run,
)
from regard.training.interrupt import SignalGuard
from regard.training.loop import Step, require_finite, train
from regard.training.memory import within_memory
from regard.training.optim import build_optimizer
from regard.training.parallel import ALONE, RankLost, Ranks
from regard.training.prepare import prepare
from regard.training.saved import RunState, restore, save
from regard.training.selection import check_evaluation, evaluate_step, evaluation_mode, select_best
from regard.training.warm_start import WarmStart
from regard.verbs.loaded import Loaded


class Run:
    """Iterating trains, and yields what happens. Everything that can be refused is refused when the run is made.

    `existing` says what to do about a run that is already in `out`; without a recipe, resuming takes the stored one.
    `init`, what `warm_start_from` another run or a public checkpoint is, gives this one its first weights, and the
    model's settings and tokenizers that go with them. Iterating again goes on. Of several `ranks` all iterate, and the
    first alone evaluates and writes. `kinds` has tables of a user's own (`regard.recipes.KINDS` has ours).
    `report` is called while a large text is encoded.
    """

    def __init__(
        self,
        recipe: Recipe | None,
        out: Path,
        existing: Existing = "refuse",
        init: WarmStart | None = None,
        ranks: Ranks = ALONE,
        kinds: Kinds | None = None,
        report: Report | None = None,
    ) -> None:
        self.kinds = kinds = with_kinds(kinds)
        check_folder(out, existing)
        before = None
        if existing == "resume":
            if init:
                raise UserError(f"{out}: a run that is resumed has weights already; leave out from= or --resume.")
            recipe = recipe or stored_recipe(out, kinds)
            check_same(out, recipe, kinds)
            before = resolve(out, ("latest",))
        if recipe is None:
            raise UserError(f"{out}: nothing says what to train there; name a recipe.")
        self.recipe, self.out, self.ranks, self._existing = recipe, out, ranks, existing
        self._folder = Path(os.path.abspath(out))  # `out`, wherever one stands later

        self.prepared = prepare(_placed(recipe, ranks), before, init, kinds, report)
        self.recipe = recipe = replace(recipe, model=self.prepared.recipe.model)  # the given one's, to be resumed
        check_evaluation(recipe, self.prepared.corpus, kinds["metric"])
        with within_memory(recipe.plan, self.prepared.device):
            self.loss_module = self.prepared.build()
            self.optimizer = build_optimizer(self.loss_module, recipe.plan)
            self.state = self._restored(before) if before else self._initial_state(init)
        self.saved = self.state.step if before else -1  # the last step on the disk; -1: none
        if not ranks.agree(int(self.state.data[:12], 16) + self.state.step):  # and nobody writes before all have looked
            raise UserError(
                f"{out}: the ranks do not read the same data and run; put both where all machines see them."
            )
        ranks.copy(self.loss_module.parameters())

    def _restored(self, before: Path) -> RunState:
        """Where the run stood at its last saved step, which it goes on from."""
        state = restore(before, self.loss_module, self.optimizer)
        batches = state.batches or stored_recipe(self.out, self.kinds).plan.accumulate
        check_batches(self.out, self.recipe.plan.accumulate, self.ranks.count, batches)
        if state.data != self.prepared.batches.digest:
            changed = "the training data is not what the run was started with"
            raise UserError(f"{self.out}: {changed}; restore it to resume.")
        return replace(state, batches=batches)

    def _initial_state(self, given: WarmStart | None) -> RunState:
        """The start of a run, with its own weights or those of a model that is given."""
        if given:
            self.loss_module.model.load_state_dict(given.weights())
        else:
            self.prepared.init_embeddings(self.loss_module)
        return RunState(data=self.prepared.batches.digest, batches=self.recipe.plan.accumulate * self.ranks.count)

    def __iter__(self) -> Iterator[Event]:
        """Train to the end. Interrupted, abandoned or out of memory, it saves the step it has come to."""
        shield = SignalGuard(patient=self.ranks.several)
        with within_memory(self.recipe.plan, self.prepared.device), shield.installed():
            try:
                first = self._open()
                yield self._started()
                yield from first
                yield from self._train(shield)
            except (KeyboardInterrupt, GeneratorExit, torch.OutOfMemoryError) as stop:
                if 0 <= self.saved < self.state.step:  # before the first is saved, the directory may be another run's
                    self._save()
                if isinstance(stop, KeyboardInterrupt) and self.ranks.first:
                    with suppress(RankLost):  # whoever is gone need not be told
                        self.ranks.from_first(self._word(stop=True))
                raise
            except RankLost as error:
                whole = f"the run is whole at step {self.saved}; go on with --resume"
                raise RankLost(f"{self.out}: {error}; {whole}.") from error

    def _open(self) -> list[Event]:
        """Make the directory a run. Its first weights come before its recipe: no run is ever without any."""
        fresh = self.saved < 0
        if not self.ranks.first:
            return [self._save()] if fresh else []
        if fresh and self._existing == "overwrite" and is_run(self._folder):
            clear(self._folder)
        make_folder(self._folder)
        first: list[Event] = [self._save()] if fresh else []
        open_run(self._folder, self.recipe, self.state.step, self.kinds)
        best = self.state.best_step
        if best is not None and read_pointer(self._folder, "best") != f"{best:06d}":
            set_pointer(self._folder, "best", best)  # a kill came between saving it and marking it
        return first

    def _train(self, shield: SignalGuard) -> Iterator[Event]:
        plan = self.recipe.plan
        self._began = time.perf_counter() - self.state.seconds
        if self.state.evaluated < self.state.step and self._due():
            yield from self._evaluate(shield)
        steps = train(self.loss_module, self.prepared.batches, plan, self.optimizer, self.state.step, self.ranks)
        since: list[Step] = []  # the last report
        began = time.perf_counter()
        while self._over() is None:
            with shield.closed():
                step = next(steps)
                # All ranks stop at the same step, by the first one's clock.
                stop, seconds = self.ranks.sum([shield.asked, self._elapsed * self.ranks.first])
                self.state = replace(self.state, step=step.n, seconds=seconds)
            if stop:
                self._stop()
            since.append(step)
            if step.n % plan.log == 0 or self._due():
                yield self._report(since, began)
                since, began = [], time.perf_counter()
            if self._due():
                require_finite(step, plan)
                yield from self._evaluate(shield)
                began = time.perf_counter()
        reason, it = self._over(), self.state
        assert reason is not None
        yield Finished(it.step, reason, it.best_step, it.best, it.seconds)

    def _stop(self) -> None:
        """Leave the loop; others than the first rank do so when it has saved."""
        if not self.ranks.first:
            self._hear()
        raise KeyboardInterrupt

    def _word(self, stop: bool = False) -> list[float]:
        """What the first rank tells the others: whether to stop, and what of its mark decides when the run is over."""
        return [stop, self.state.waited, self.state.seconds]

    def _hear(self) -> None:
        """Wait for the first rank to judge and save, and take its word."""
        stop, waited, seconds = self.ranks.from_first(self._word())
        self.state = replace(self.state, evaluated=self.state.step, waited=int(waited), seconds=seconds)
        self.saved = self.state.step
        if stop:
            raise KeyboardInterrupt

    def _due(self) -> bool:
        """Whether the step that was reached is one to judge and save."""
        return self.state.step % self.recipe.plan.evaluate == 0 or self._over() is not None

    def _over(self) -> str | None:
        """Why there is nothing more to do, if there is not."""
        plan = self.recipe.plan
        if self.state.step >= plan.steps:
            return "steps"
        if plan.minutes is not None and self.state.seconds >= 60 * plan.minutes:
            return "minutes"
        if plan.patience and self.state.waited >= plan.patience:
            return "patience"
        return None

    @property
    def _elapsed(self) -> float:
        """Seconds since the run began, earlier sittings included."""
        return time.perf_counter() - self._began

    # -- looking up ----------------------------------------------------------------------------------------------------

    def _evaluate(self, shield: SignalGuard) -> Iterator[Event]:
        """Judge the step, note whether it is the best, and save it; the first rank does, the others wait."""
        if not self.ranks.first:
            self._hear()
            return
        training = self._elapsed - self.state.evaluating
        with shield.open():
            scores = self.evaluate()
        with shield.closed():  # a step that counts as judged must have its line
            seconds = self._elapsed
            select = self.recipe.plan.select
            it = select_best(self.state, select, self.kinds["metric"][select], scores)
            self.state = it = replace(it, seconds=seconds, evaluating=seconds - training)
            best, clock = it.best_step == it.step, {"seconds": round(seconds, 3), "training": round(training, 3)}
            told = {"step": it.step, "kind": "valid", **scores.values, **clock, "notes": scores.notes}
            append_line(self._folder / "metrics.jsonl", told)
            saved = self._save()
            if best:
                set_pointer(self._folder, "best", it.step)
            self.ranks.from_first(self._word())
        yield Evaluated(it.step, scores.values, scores.notes, best)
        yield saved
        self.state = replace(it, evaluating=self._elapsed - training)

    def evaluate(self) -> Scores:
        """The measures of the step that was reached, on the validation examples."""
        it, recipe = self.prepared, self.recipe
        model = Loaded(
            path=self.out,
            step=self.state.step,
            recipe=recipe,
            module=cast(Model, self.loss_module.model),
            fields=it.fields,
            kinds=self.kinds,
            device=it.device,
            precision=choose_precision(recipe.plan.precision, it.device),
            long="truncate",
        )
        with evaluation_mode(self.loss_module, recipe.plan.compile):
            return evaluate_step(model, it.corpus.valid, recipe)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _save(self) -> Saved:
        path = self._folder / "steps" / f"{self.state.step:06d}"
        if self.ranks.first:
            path = save(self._folder, self.state, self.prepared, self.loss_module, self.optimizer)
        self.saved = self.state.step
        return Saved(self.state.step, path)

    def _started(self) -> Started:
        it, plan = self.prepared, self.recipe.plan
        return Started(
            path=self.out,
            step=self.state.step,
            steps=plan.steps,
            parameters=sum(weight.numel() for weight in self.loss_module.model.parameters()),
            device=str(it.device),
            precision=choose_precision(plan.precision, it.device),
            examples=len(it.corpus.train) - it.batches.dropped,
            dropped=it.batches.dropped,
            shapes=len(it.batches.shapes),
            epoch=len(it.batches),
            ranks=self.ranks.count,
            over=self._over(),
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
            seconds=self.state.seconds,
        )
        if self.ranks.first:
            append_line(self._folder / "metrics.jsonl", progress.line)
        return progress


def _placed(recipe: Recipe, ranks: Ranks) -> Recipe:
    """The recipe on this rank's own device."""
    return replace(recipe, plan=replace(recipe.plan, device=ranks.place(recipe.plan.device)))
