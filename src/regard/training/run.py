"""A run: trains a recipe in a directory, from its last saved step to the end.

>>> for event in Run(find_recipe("dates"), Path("runs/dates")):  # doctest: +SKIP
...     print(event)
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

import torch

from regard.checkpoint import Existing, format_of, read_pointer, resolve, set_pointer
from regard.config import Kinds
from regard.data.run_files import located, packed_digests, read_elsewhere, run_files, unchanged_files
from regard.data.spelled import SpelledText
from regard.data.text_files import Report
from regard.device import choose_precision
from regard.errors import UserError, is_out_of_memory, nearest
from regard.file_io import append_line, check_finite, check_writable, named_path
from regard.migrations import stored_digest
from regard.models import Model
from regard.objectives.objective import AveragesWeights, Step
from regard.recipes import Plan, Recipe, with_kinds
from regard.stored import GivenModel, Stored, asked_recipe, recipe_json, stored
from regard.training.evaluate import Scores, check_evaluation, evaluate_step, evaluation_mode, select_best
from regard.training.events import Evaluated, Event, Finished, Progress, Saved, Started
from regard.training.extractor import Start
from regard.training.folder import (
    TUNED,
    RunState,
    check_batches,
    check_folder,
    check_given,
    clear,
    is_run,
    lock_run,
    make_folder,
    open_run,
    read_state,
    repeated_recipe,
    restore,
    resumed_recipe,
    same_length,
    save,
)
from regard.training.interrupt import SignalGuard
from regard.training.loop import Diverged, GradientTrainer, require_finite, schedule_width
from regard.training.optim import depends_on_steps, place_in_schedule, rate_at
from regard.training.parallel import ALONE, RankLost, Ranks, Share
from regard.training.prepare import Prepared, prepare
from regard.training.tuning import tuned_start, tuning_limits, tuning_recipe
from regard.training.warm_start import Transfer, WarmStart, warm_start_from
from regard.verbs.loaded import Loaded, NotFinite

MOST_GROWTH = 10  # a trainer of word vectors has diverged if its loss is above this times the first loss, at least 1


class Run:
    """Iteration trains the model and yields events. Mistakes in the settings raise an error in the constructor.

    `existing` is what to do if `out` has a run already; "auto" starts the run, or resumes it if these arguments started
    it. Without a recipe, a resumed run uses the stored one. `reschedule` lets it have another length. `init`
    (from `warm_start_from` another run or a public checkpoint) has the first weights, with the model's settings and the
    tokenizers. A second iteration continues the first. Several `ranks` iterate, evaluate and save together; only the
    first writes. `kinds` adds a user's own tables to `regard.recipes.KINDS`. `report` is called while a large text is
    encoded. With `plan.tune_lm`, the run of a language model in `out/tuned` comes first, and yields its events too.
    """

    prepared: Prepared

    def __init__(
        self,
        recipe: Recipe | None,
        out: str | Path,
        existing: Existing = "refuse",
        init: Start | None = None,
        ranks: Ranks = ALONE,
        kinds: Kinds | None = None,
        report: Report | None = None,
        reschedule: bool = False,
    ) -> None:
        if existing not in (known := get_args(Existing)):
            raise UserError(f"existing={existing!r}: no such choice.{nearest(existing, known)}")
        self.kinds = kinds = with_kinds(kinds)
        out, asked = named_path(out), recipe
        check_folder(out, existing)
        if ranks.first:
            check_writable(out)
        if ranks.first and is_run(out):
            with lock_run(out):  # a run that another process trains is refused before its data is read
                pass
        before = run = files = None
        self.resumed = existing == "resume" or (existing == "auto" and is_run(out))
        if self.resumed:
            if init and existing == "resume":
                cure = "leave out from= or --resume (in Python: init or existing)"
                raise UserError(f"{out}: a run that is resumed has weights already; {cure}.")
            run = stored(out, kinds)
            if existing == "auto" and recipe is not None:
                check_given(out, run, init)
            init = None
            recipe, asked = _resumed(out, run, recipe, kinds, existing == "auto", reschedule)
            before = resolve(out, ("latest",))
        elif reschedule and existing != "auto":
            raise UserError(f"{out}: --reschedule (in Python: reschedule) is for a run that is resumed; leave it out.")
        if recipe is None:
            raise UserError(f"{out}: there is no recipe to train; name a recipe.")
        data = recipe.data
        if run and run.files is not None:
            data, files = located(data, run.files)
        self._stage = "2 of 2" if recipe.plan.tune_lm else ""  # for messages
        self._tuning = self._first_stage(recipe, out, before, init, ranks, report) if recipe.plan.tune_lm else None
        start = init
        if self._tuning is not None and before is None:
            init = tuned_start(self._tuning.prepared, self._tuning.model.state_dict, out / TUNED)
        self.recipe, self.out, self.ranks = recipe, out, ranks
        self._existing = existing
        self._vectors: float | None = None  # the fraction of the vocabulary that started from word vectors
        self.transfer: Transfer | None = None  # what a warm start loaded
        self._folder = Path(os.path.abspath(out))  # the working directory may change later

        plan = replace(recipe.plan, device=ranks.choose_device(recipe.plan.device))
        with unchanged_files(data):
            digests = packed_digests(data) if files is None else {}
            self.prepared = prepare(
                replace(recipe, data=data, plan=plan), before, init, kinds, report, ranks=ranks.count
            )
            self._asked, self.files = asked, run_files(recipe.data, digests) if files is None else files
        chosen = self.prepared.recipe  # with the settings of `init`
        # plan.steps is from plan.epochs, if that is given; the metrics are those that the data has; a small file that
        # a model is fine-tuned on has smaller batches
        found = {name: getattr(chosen.plan, name) for name in ("steps", "select", "batch_tokens")}
        plan = replace(recipe.plan, **found)
        self.recipe = recipe = replace(recipe, model=chosen.model, head=chosen.head, plan=plan, metrics=chosen.metrics)
        self._notes = read_elsewhere(recipe.data, data)
        check_evaluation(recipe, self.prepared.task, self.prepared.corpus, kinds["metric"])
        with self.prepared.within_memory():
            self.trainer = self.prepared.trainer(ranks, self._passed)
            if run and before:
                self._restore(run, before)
            else:
                self.state = RunState(data=self.prepared.batches.digest, batches=plan.accumulate * ranks.count)
                if init:
                    self.transfer = init.load_into(self.model, recipe)
                if init is None or init.fills_embeddings:
                    self._vectors = self.prepared.init_embeddings(self.model)
        self._given = run.given if run else _given_model(start, (self._tuning or self).transfer)
        self._last: Step | None = None  # the last step of this process
        self.saved = self.state.step if before else -1  # the last step on disk; -1: none
        if not ranks.agree(int(self.state.data[:12], 16) + self.state.step):  # also a barrier: no rank writes before it
            raise UserError(
                f"{out}: the ranks do not read the same data and run; put both into a folder that all machines share."
            )
        ranks.broadcast_tensors(self.model.parameters())

    def _restore(self, run: Stored, before: Path) -> None:
        """Restore the model, its trainer and the state of the run from its last step; refuse other training data."""
        plan, recipe = self.recipe.plan, self.recipe
        self.state = read_state(before)
        check_batches(self.out, plan.accumulate, self.ranks.count, self.state.batches)
        restore(before, self.trainer, recipe.objective, self.kinds)
        if self.state.data != stored_digest(self.prepared.batches, format_of(before)):
            changed = "the training data is not what the run was started with"
            raise UserError(f"{self.out}: {changed}; restore it to resume.")
        self.state = replace(self.state, data=self.prepared.batches.digest)  # as the present format counts it
        if plan.steps != run.recipe.plan.steps and depends_on_steps(plan):
            self._notes.append(self._rescheduled(run.recipe.plan))

    def _rescheduled(self, before: Plan) -> str:
        """What another length, since this resume, does to the learning rate."""
        plan, step = self.recipe.plan, self.state.step
        given = (
            f"plan.steps={plan.steps}" if plan.epochs is None else f"plan.epochs={plan.epochs:g} ({plan.steps} steps)"
        )
        if plan.steps < step:
            raise UserError(f"{given}: the run has made {step} steps already; give as many or more.")
        width = schedule_width(self.model, plan)
        was, now = (rate_at(one, place_in_schedule(one, step, self._passed()), width) for one in (before, plan))
        rate = f"is {now:.3g}, and would have been {was:.3g}" if now != was else f"is {now:.3g}, as it would have been"
        why = (
            "the steps before it had the rates of the former length, so the result is not that of a run of this length"
        )
        return f"{given}, {before.steps} steps before: the learning rate of the next step {rate}; {why}."

    def _first_stage(
        self, recipe: Recipe, out: Path, before: Path | None, init: Start | None, ranks: Ranks, report: Report | None
    ) -> "Run | None":
        """The run of the language model of `plan.tune_lm`, which comes first; None: it has ended before a resume."""
        if before is None:
            first = tuning_recipe(recipe, init if isinstance(init, WarmStart) else None, self.kinds)
            tuning = Run(first, out / TUNED, "overwrite", init, ranks, self.kinds, report)
        elif int(before.name):
            return None
        else:
            first = stored(out / TUNED, self.kinds).recipe
            plan = replace(first.plan, **tuning_limits(recipe.plan))
            first = replace(first, data=replace(first.data, of=recipe.data), plan=plan)
            tuning = Run(first, out / TUNED, "resume", None, ranks, self.kinds, report)
        tuning._stage = "language model, 1 of 2"
        return tuning

    def __repr__(self) -> str:
        return f"<Run {self.out}: {self.recipe.name}, step {self.state.step} of {self.recipe.plan.steps}>"

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return cast(Model, self.trainer.model)

    @property
    def where(self) -> str:
        """The present step, in words."""
        tuning = self._tuning
        return f"step {self.state.step}" if tuning is None else f"step {tuning.state.step} of the language model"

    def __iter__(self) -> Iterator[Event]:
        """Train to the end. An interrupt saves the last step; so does the end of iteration or a lack of memory, but not
        with several ranks, since these are not at the same step then."""
        guard = SignalGuard(always_delay=self.ranks.several)
        with self.prepared.within_memory(), guard.installed(), ExitStack() as lock:
            try:
                if self.ranks.first:
                    make_folder(self._folder)
                    lock.enter_context(lock_run(self._folder))
                saved = self._write_folder()
                if self._tuning is not None:
                    yield from self._tune(self._tuning)
                yield self._started()
                yield from saved
                yield from self._train(guard)
            except (KeyboardInterrupt, GeneratorExit, RuntimeError, MemoryError) as stop:
                if isinstance(stop, RuntimeError) and not is_out_of_memory(stop):
                    raise
                with guard.delayed():  # a second interrupt waits for the save
                    together = isinstance(stop, KeyboardInterrupt) or not self.ranks.several
                    if together and 0 <= self.saved < self.state.step:  # else the directory may have another run
                        if self._last is not None:  # a GPU reports a bad step one step later: its states are not saved
                            require_finite(self._last, self.recipe.plan)
                        self._save()
                raise
            except RankLost as error:
                cure = 'continue it with --resume (in Python: existing="resume")'
                raise RankLost(f"{self.out}: {error}; the run is complete up to step {self.saved}; {cure}.") from error

    def _write_folder(self) -> list[Event]:
        """Create the directory. The first weights are written before the recipe, so that every run has weights."""
        new = self.saved < 0
        if not self.ranks.first:
            if new and self._tuning is not None:
                self._tuning._write_folder()
            return [self._save()] if new else []
        if new:
            if self._existing == "auto" and is_run(self._folder):
                raise UserError(f"{self.out}: another process has started this run meanwhile; repeat the command.")
            check_folder(self._folder, self._existing)  # again: it was not locked before
            if is_run(self._folder):
                clear(self._folder)
            if self._tuning is not None:  # first, since a run that has a recipe can be resumed
                make_folder(self._tuning._folder)
                self._tuning._write_folder()
        elif read_pointer(self._folder, "latest") != f"{self.saved:06d}":
            raise UserError(f"{self.out}: another process has trained this run meanwhile; start again with --resume.")
        events: list[Event] = [self._save()] if new else []
        content = recipe_json(self.recipe, self.kinds, self._asked, self.files, self._given)
        open_run(self._folder, content, self.state, self.recipe.plan.keep)
        best = self.state.best_step
        if best is not None and read_pointer(self._folder, "best") != f"{best:06d}":
            set_pointer(self._folder, "best", best)  # the process was killed between the two
        return events

    def _tune(self, tuning: "Run") -> Iterator[Event]:
        """Train the language model to its end, and start from its best step."""
        yield from tuning
        self.ranks.agree(0)  # a barrier: the first rank has written the best step
        self.transfer = warm_start_from(tuning.out, self.kinds).load_into(self.model, self.recipe)
        spent = tuning.state
        self.state = replace(self.state, seconds=spent.seconds, evaluating=spent.evaluating, tuning=spent.seconds)
        self._tuning = None  # frees its memory
        self._save()

    def _train(self, guard: SignalGuard) -> Iterator[Event]:
        plan = self.recipe.plan
        self._began = time.perf_counter() - self.state.seconds
        if self.state.evaluated < self.state.step and self._should_evaluate():
            yield from self._evaluate(guard)
        steps = self.trainer.steps(self.state.step)
        unreported: list[Step] = []
        first, began = 0.0, time.perf_counter()
        while self._stop_reason() is None:
            with guard.delayed():
                step = self._last = next(steps)
                stop, seconds = self._agree(guard)
                self.state = replace(self.state, step=step.n, seconds=seconds)
            if step.length is None:  # its loss is on the host, and its trainer does not check it
                first = first or step.loss  # 0: the step kept no words
                require_finite(step, plan, MOST_GROWTH * max(1.0, first) if first else math.inf)
            if stop:
                raise KeyboardInterrupt
            unreported.append(step)
            if step.n % plan.log == 0 or self._should_evaluate():
                yield self._report(unreported, began)
                unreported, began = [], time.perf_counter()
            if self._should_evaluate():
                require_finite(step, plan)
                yield from self._evaluate(guard)
                began = time.perf_counter()
        reason, state = self._stop_reason(), self.state
        assert reason is not None
        warmup = plan.cut * plan.steps if plan.schedule == "triangular" else plan.warmup_steps
        reads_rate = "rate" in self.recipe.objective.plan_settings
        rising = reads_rate and place_in_schedule(plan, state.step, self._passed()) < warmup
        yield Finished(state.step, reason, state.best_step, state.best, state.seconds, rising)

    def _agree(self, guard: SignalGuard) -> tuple[bool, float]:
        """Whether any rank was interrupted, and the clock of the first rank: all ranks stop at the same step."""
        stop, seconds = self.ranks.sum([guard.requested, self._elapsed * self.ranks.first])
        return bool(stop), seconds

    def _should_evaluate(self) -> bool:
        """Whether the present step is to be evaluated and saved."""
        between = self.prepared.recipe.plan.evaluate
        assert between != "epoch", "`prepare` makes it a number of steps"
        return self.state.step % between == 0 or self._stop_reason() is not None

    def _stop_reason(self) -> str | None:
        """Why the run ends at the present step: steps, epochs, minutes or patience; None if it does not."""
        plan = self.recipe.plan
        if self.state.step >= plan.steps:
            return "steps" if plan.epochs is None else "epochs"
        if plan.minutes is not None and self.state.seconds >= 60 * plan.minutes:
            return "minutes"
        if plan.patience and self.state.waited >= plan.patience:
            return "patience"
        return None

    def _passed(self) -> float:
        """The part of `plan.minutes` that had passed after the last step; 0 without that setting.

        The time of the language model of `plan.tune_lm` is not part of it: the schedule starts after it.
        """
        minutes, first = self.recipe.plan.minutes, self.state.tuning
        return 0.0 if minutes is None else (self.state.seconds - first) / max(60 * minutes - first, 1e-9)

    @property
    def _elapsed(self) -> float:
        """Seconds since the run began, the time before a resume included."""
        return time.perf_counter() - self._began

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def _evaluate(self, guard: SignalGuard) -> Iterator[Event]:
        """Evaluate and save the step. All ranks evaluate a share each and get the same scores; the first writes."""
        if not self.prepared.task.validates:
            with guard.delayed():
                self.state = replace(self.state, evaluated=self.state.step)
                saved = self._save()
            yield saved
            return
        training = self.state.seconds - self.state.evaluating
        with guard.delayed():  # but for the work of `share`: the weights and their mean are not exchanged in part
            scores = self.evaluate(partial(self.ranks.share, immediate=guard.immediate))
        with guard.delayed():  # the log line and the state must agree
            if isinstance(self.trainer, AveragesWeights):
                self.trainer.evaluated(scores.values["loss"])
            stop, seconds = self._agree(guard)
            select = self.recipe.plan.select
            state = select_best(self.state, select, self.kinds["metric"][select], scores)
            self.state = state = replace(state, seconds=seconds, evaluating=seconds - training)
            best, times = state.best_step == state.step, {"seconds": round(seconds, 3), "training": round(training, 3)}
            line = {"step": state.step, "kind": "valid", **scores.values, **times, "notes": scores.notes}
            if self.ranks.first:
                append_line(self._folder / "metrics.jsonl", line)
            saved = self._save()
            if best and self.ranks.first:
                set_pointer(self._folder, "best", state.step)
        if stop:
            raise KeyboardInterrupt
        yield Evaluated(state.step, scores.values, scores.notes, best)
        yield saved
        self.state = replace(state, evaluating=self._elapsed - training)

    def evaluate(self, share: Share = ALONE.share) -> Scores:
        """The metrics of the present step on the validation examples; `share` divides the work among the ranks."""
        prepared, recipe = self.prepared, self.recipe
        trainer = self.trainer
        own = trainer.loss_module.own if isinstance(trainer, GradientTrainer) else None
        model = Loaded(
            path=self.out,
            step=self.state.step,
            recipe=recipe,
            module=self.model,
            fields=prepared.fields,
            kinds=self.kinds,
            device=prepared.device,
            precision=choose_precision(recipe.plan.precision, prepared.device),
            long="truncate",
            own=own,
        )
        with ExitStack() as stack:
            stack.enter_context(self._averaged())
            for module in (self.model, own):
                if module is not None:
                    stack.enter_context(evaluation_mode(module, recipe.plan.compile))
            try:
                return evaluate_step(model, prepared.corpus.valid, recipe, share)
            except NotFinite as error:
                found = "on the validation examples, outputs of the model are NaN or infinite"
                cure = f"lower plan.rate ({recipe.plan.rate:g})"
                raise Diverged(f"step {self.state.step}: training diverged: {found}; {cure}.") from error

    def _averaged(self) -> AbstractContextManager[None]:
        """Inside the block, the model has its averaged weights, if the trainer averages them."""
        return self.trainer.averaged() if isinstance(self.trainer, AveragesWeights) else nullcontext()

    # -- events and files ----------------------------------------------------------------------------------------------

    def _save(self) -> Saved:
        path = self._folder / "steps" / f"{self.state.step:06d}"
        if self.recipe.objective.learns_by != "gradients":  # the loss is that before the step
            cure = f"lower plan.rate ({self.recipe.plan.rate:g})"
            check_finite(self.model.state_dict(), f"{self.out}: step {self.state.step}: training diverged", cure)
        with self._averaged():
            training = self.trainer.state()  # all ranks call it: each may hold a part
            if self.ranks.first:
                path = save(self._folder, self.state, self.prepared, self.model, training)
        self.saved = self.state.step
        return Saved(self.state.step, path)

    def _started(self) -> Started:
        prepared, plan = self.prepared, self.recipe.plan
        return Started(
            path=self.out,
            step=self.state.step,
            stage=self._stage,
            steps=plan.steps,
            parameters=sum(weight.numel() for weight in self.model.parameters()),
            device=str(prepared.device),
            precision=choose_precision(plan.precision, prepared.device),
            examples=prepared.examples - prepared.batches.dropped,
            dropped=prepared.batches.dropped,
            shapes=len(prepared.batches.shapes),
            epoch=len(prepared.batches),
            ranks=self.ranks.count,
            over=self._stop_reason(),
            warnings=(*prepared.warnings, *self._notes),
            counts=self.recipe.objective.learns_by == "counts",
            vectors=self._vectors,
            known=next((text.known for text in prepared.fields.values() if isinstance(text, SpelledText)), None),
        )

    def _report(self, steps: list[Step], began: float) -> Progress:
        """Write the means of steps as a line of metrics.jsonl; `began` is when the first of them started."""
        last = steps[-1]
        loss = float(torch.stack([step.total for step in steps]).mean())  # synchronises; the time is read afterwards
        progress = Progress(
            step=last.n,
            steps=self.recipe.plan.steps,
            loss=loss,
            terms=dict(zip(last.names, torch.stack([step.means for step in steps]).mean(dim=0).tolist())),
            rate=last.rate,
            norm=last.norm,
            tokens_per_second=sum(step.tokens for step in steps) / (time.perf_counter() - began),
            unit=self.prepared.batches.unit,
            seconds=self.state.seconds,
        )
        if self.ranks.first:
            append_line(self._folder / "metrics.jsonl", progress.line)
        return progress


def _given_model(init: Start | None, transfer: Transfer | None) -> GivenModel:
    """The model that a run starts from, as it is stored."""
    return GivenModel(init.path, transfer.sha256) if init and transfer else GivenModel()


def _resumed(
    out: Path, run: Stored, given: Recipe | None, kinds: Kinds, repeated: bool, reschedule: bool
) -> tuple[Recipe, Recipe | None]:
    """The recipe of a run that is resumed, and what was asked for, by the command before or by this one."""
    asked = asked_recipe(out, kinds)
    if given is None:
        return run.recipe, asked
    if repeated and asked:
        return repeated_recipe(out, run, asked, given, kinds, reschedule), given
    recipe = resumed_recipe(out, run, given, kinds, reschedule)
    if repeated:  # a run of an earlier version
        return recipe, given
    if asked and not same_length(run.recipe.plan, given.plan):
        asked = replace(asked, plan=replace(asked.plan, steps=given.plan.steps, epochs=given.plan.epochs))
    return recipe, asked
