"""Training from the command line: what it leaves, what it says, what an existing run or Ctrl-C means."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from shutil import copy, copytree

import pytest

from regard.cli import main
from regard.report.glossary import WORDS

Regard = Callable[..., "Said"]  # noqa: F821


def test_a_run_from_start_to_next_steps(regard: Regard, tiny: list[str]) -> None:
    said = regard("train", "translate", *tiny, "--baseline")
    assert (said.code, said.err) == (0, "")
    for expected in ("step 6/6", "valid: loss", "no attention", "exact match", "runs/translate/report.html"):
        assert expected in said.out
    commands = [line.strip() for line in said.out.partition("Next:")[2].splitlines() if line.strip()]
    assert len(commands) == 3
    assert all("runs/translate" in command for command in commands)
    page = Path("runs/translate/report.html").read_text(encoding="utf-8")
    assert all(part in page for part in ("Scores", "Training: loss", "Attention", "plan.steps", "no attention"))
    shown = page.partition("What is shown")[2].partition("</section>")[0]
    assert "a translator, Seq2Seq with" in shown
    assert "runs/translate, recipe translate, step" in shown
    assert "docs/training.md" in shown
    assert re.search(r"Chance: a model that gives each of the \d+ tokens the same probability has loss \d", page)
    words = page.partition("<h2>Words</h2>")[2]
    assert all(WORDS[word] in words for word in ("loss", "chance", "attention", "cross-attention"))
    assert (Path("runs/translate/baseline") / "best").exists()
    assert any(shade in said.out for shade in "░▒▓█")  # where it looks


def test_an_existing_run_is_resumed_or_replaced_only_when_told(
    regard: Regard, tiny: list[str], trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(trained, "run")
    before = Path("run/latest").read_text(encoding="utf-8")
    said = regard("train", "translate", *tiny, "--out", "run")
    assert said.code == 2
    assert "--resume" in said.err
    assert "--overwrite" in said.err
    assert Path("run/latest").read_text(encoding="utf-8") == before
    # Its settings need not be repeated, and a kind that is repeated does not reset its part.
    again = regard("train", "translate", "data=pairs", "model=seq2seq", "--resume", "--out", "run")
    assert again.code == 0
    assert "run: finished at step 6 (plan.steps), only evaluated again" in again.out
    assert "translate: ended at step 6 by plan.steps\n" in again.out
    other = regard("train", "translate", "--resume", "--out", "run", "model.width=32")
    assert other.code == 2
    assert "model.width" in other.err
    elsewhere = regard("train", "translate", "--resume", "--out", "run", "from=run")
    assert (elsewhere.code, "from=run" in elsewhere.err) == (2, True)
    monkeypatch.setattr("shutil.which", lambda name: None)  # then the program has a name of several words
    wrong = regard("train", "dates", "--resume", "--out", "run")
    assert wrong.code == 2
    assert f"use: {sys.executable} -m regard train translate --resume --out run" in wrong.err
    fresh = regard("train", "translate", *tiny, "plan.steps=3", "--overwrite", "--out", "run")
    assert fresh.code == 0
    assert Path("run/latest").read_text(encoding="utf-8") == "000003\n"


def test_the_same_command_goes_on_with_existing_auto(regard: Regard, tiny: list[str]) -> None:
    command = ["train", "translate", *tiny, "--existing", "auto", "--out", "run", "plan.schedule=linear"]
    assert regard(*command).code == 0
    again = regard(*command)
    assert (again.code, "finished at step 6 (plan.steps), only evaluated again" in again.out) == (0, True)
    other = regard(*command, "model.width=20")
    assert other.code == 2
    assert "model.width=20: the run in run was started with 16; resume with model.width=16, or" in other.err
    longer = regard("train", "translate", "--resume", "plan.steps=8", "--out", "run")
    assert "add --reschedule (in Python: reschedule=True)" in longer.err
    longer = regard("train", "translate", "--existing", "resume", "plan.steps=8", "--reschedule", "--out", "run")
    assert (longer.code, "resumed at step 6" in longer.out) == (0, True)
    assert "warning: plan.steps=8, 6 steps before: the learning rate of the next step is" in longer.err
    assert "plan.steps=6: the run in run was started with 8" in regard(*command).err
    assert regard(*command, "plan.steps=8").code == 0
    for wrong, message in (
        (("--resume", "--overwrite"), "--resume and --overwrite: one of them says what to do"),
        (("--existing", "refuse", "--resume"), "--resume and --existing refuse: one of them says"),
        (("--existing", "atuo"), '--existing atuo: no such choice. Did you mean "auto"?'),
        (("--reschedule",), "--reschedule: changes the length of a run that is resumed; add --resume"),
    ):
        said = regard("train", "translate", "--out", "run", *wrong)
        assert (said.code, message in said.err) == (2, True), said.err


def test_moved_files_are_named_to_eval_and_to_train(regard: Regard, tiny: list[str], pairs: Path) -> None:
    for name in ("train", "test"):
        copy(pairs, f"{name}.tsv")
    files = ["data.train=train.tsv", "data.test=test.tsv"]
    assert regard("train", "translate", *tiny, *files, "--out", "run").code == 0
    before = regard("eval", "run", "--json").out
    Path("there").mkdir()
    for name in ("train", "test"):
        Path(f"{name}.tsv").rename(f"there/{name}.tsv")
    lost = regard("eval", "run")
    assert (lost.code, "data.train=train.tsv: no such file; restore it, or if it was" in lost.err) == (2, True)
    moved = ["data.train=there/train.tsv", "data.test=there/test.tsv"]
    assert regard("eval", "run", *moved, "--json").out == before
    wrong = regard("eval", "run", moved[0], "data.test=there/nothing.tsv")
    assert "data.test=there/nothing.tsv: no such file" in wrong.err
    column = regard("eval", "run", "data.source=a")
    assert "data.source=a: no file that this run was started with (those are data.train, data.test); a" in column.err
    assert regard("train", "translate", "--resume", *moved, "--out", "run").code == 0
    assert regard("eval", "run", "--json").out == before
    assert "there/train.tsv" in regard("show", "run").out
    assert regard("show", "run", "--example").code == 0


def test_a_run_with_a_name_of_its_own_is_resumed_by_its_recipe(regard: Regard, tiny: list[str]) -> None:
    place = Path("my runs/[red]one")
    assert regard("train", "translate", *tiny, "name=mine", "--out", place).code == 0
    for name in ("translate", "mine"):
        said = regard("train", name, "--resume", "--out", place)
        assert (said.code, said.err) == (0, "")
        assert f"{place}: finished at step 6" in said.out  # brackets in a path are no markup
        assert f"The report: {place}/report.html" in said.out
        assert "regard look 'my runs/[red]one'" in said.out


def test_a_baseline_is_resumed_or_begun(regard: Regard, trained: Path) -> None:
    copytree(trained, "run")
    Path("run/baseline/steps/000000").mkdir(parents=True)  # a kill before the recipe was written: no run yet
    Path("run/baseline/latest").write_text("000000\n", encoding="utf-8")
    for expected in ("run/baseline: ", "run/baseline: finished at step 6"):
        said = regard("train", "translate", "--resume", "--baseline", "--out", "run")
        assert (said.code, said.err) == (0, "")
        assert expected in said.out
    assert json.loads(Path("run/baseline/recipe.json").read_text(encoding="utf-8"))["model"]["decoder"] == "once"


def test_nothing_to_resume(regard: Regard, tiny: list[str]) -> None:
    said = regard("train", "translate", *tiny, "--resume", "--out", "run")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "run: " in said.err
    assert not Path("run").exists()


def test_json_and_flags(regard: Regard, tiny: list[str]) -> None:
    said = regard("train", "translate", *tiny, "--json", "--seed", 5, "--device", "cpu", "--out", "run")
    (line,) = said.out.splitlines()
    found = json.loads(line)
    assert (found["run"], found["ended_by"]) == ("run", "plan.steps")
    assert set(found["scores"]) == {"loss", "bleu", "exact"}
    assert "step 6/6" in said.err
    recipe = json.loads(Path("run/recipe.json").read_text(encoding="utf-8"))
    assert (recipe["plan"]["seed"], recipe["plan"]["device"]) == (5, "cpu")


def test_a_run_starts_from_another(regard: Regard, tiny: list[str], trained: Path) -> None:
    copytree(trained, "first")
    assert regard("train", "translate", *tiny, "from=first", "--out", "second").code == 0
    first, second = (
        [json.loads(line)["loss"] for line in Path(run, "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        for run in ("first", "second")
    )
    assert second[0] < first[0]
    assert "nowhere" in regard("train", "translate", *tiny, "from=nowhere", "--out", "third").err
    # The model's settings come with its weights; without attention, the tokenizers are those of the data.
    settings = [setting for setting in tiny if not setting.startswith("model.")]
    said = regard("train", "translate", *settings, "from=first", "--baseline", "--out", "third")
    assert (said.code, said.err) == (0, "")
    widths = [
        json.loads(Path(run, "recipe.json").read_text(encoding="utf-8"))["model"]["width"]
        for run in ("third", "third/baseline")
    ]
    assert widths == [16, 16]
    wide = regard("train", "translate", *settings, "model.width=32", "from=first", "--out", "fourth")
    assert "model.width=32: the model in first has 16" in wide.err


def test_dry_run_estimates_and_leaves_nothing(regard: Regard, tiny: list[str], tmp_path: Path) -> None:
    said = regard("train", "translate", *tiny, "plan.warmup=500", "--dry-run")
    assert said.code == 0
    assert all(word in said.out for word in ("parameters", "memory", "time"))
    found = json.loads(regard("train", "translate", *tiny, "plan.minutes=1e-9", "--dry-run", "--json").out)
    assert found["parameters"] > 1000
    parts = ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes")
    assert found["peak_bytes"] == sum(found[part] for part in parts)
    assert (found["steps"], found["ends_by"]) == (1, "minutes")
    assert found["seconds"] == found["steps"] * found["seconds_per_step"]
    assert "plan.warmup=500: the run has 6 steps" in said.err
    wrong = regard("train", "translate", *tiny, "metrics=perplexity,aer", "--dry-run")
    assert "metrics=perplexity,aer" in wrong.err
    assert not (tmp_path / "runs").exists()


def test_dry_run_on_a_gpu_says_what_its_time_leaves_out(
    regard: Regard, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("regard.training.estimate")
    measured = module.estimate
    assert "CUDA graphs" not in regard("train", "translate", *tiny, "--dry-run").out
    monkeypatch.setattr(module, "estimate", lambda *given: replace(measured(*given), device="cuda"))
    assert "without CUDA graphs" in regard("train", "translate", *tiny, "--dry-run").out
    assert "CUDA graphs" not in regard("train", "translate", *tiny, "plan.capture=false", "--dry-run").out


def test_a_model_of_counts_reports_steps_with_text_only(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the owl sat still\nthe mouse sat too\n" * 40, encoding="utf-8")
    said = regard("train", "bigram", "data.train=text.txt", "--out", "run")
    assert (said.code, said.err) == (0, "")
    assert "run: a model of counts on cpu" in said.out
    assert said.out.count("tokens/s") == said.out.count("1 batch of") == 1
    assert "parameters  counted during training" in regard("train", "bigram", "data.train=text.txt", "--dry-run").out
    assert "plan.epochs=2: a model that counts" in regard("train", "bigram", "data.train=text.txt", "plan.epochs=2").err


@pytest.mark.parametrize("task", ["text", "classify"])
def test_other_tasks_train_too(regard: Regard, tmp_path: Path, task: str) -> None:
    data = {"text": "ab ba\nba ab\nab ab\n" * 20, "classify": "good\tab ba\nbad\tcc dd\n" * 20}[task]
    (tmp_path / "data.txt").write_text(data, encoding="utf-8")
    settings = ["data.train=data.txt", "data.valid=data.txt", "plan.steps=4", "plan.evaluate=4", "model.width=16"]
    said = regard("train", task, *settings, "plan.warmup=1", "model.embed=8", "--out", "run")
    assert (said.code, said.err) == (0, "")
    assert {"text": "regard score run", "classify": "regard classify run"}[task] in said.out
    assert regard("eval", "run").code == 0
    assert regard("eval", "run", "--data", "data.txt").code == 0
    assert regard("eval", "run", "--free-running").code == {"text": 0, "classify": 2}[task]
    assert "which is evaluated without a search; leave out --beam" in regard("eval", "run", "--beam", "3").err


def test_a_classifier_is_a_body_under_a_head(regard: Regard, tmp_path: Path) -> None:
    lines = [(("good", "ab ba"), ("bad", "cc dd"), ("good", "ab cc ba"))[n % 3] for n in range(60)]
    (tmp_path / "labelled.tsv").write_text("".join(f"{a}\t{b} {n}\n" for n, (a, b) in enumerate(lines)))
    (tmp_path / "lines.txt").write_text("".join(f"{b} {n}\n" for n, (_, b) in enumerate(lines)))
    small = ["model.width=16", "model.heads=2", "model.layers=2", "model.inner=16", "model.context=32"]
    plan = ["plan.steps=4", "plan.evaluate=2", "plan.batch_tokens=256"]
    data = ["data.train=labelled.tsv", "data.valid=labelled.tsv"]
    said = regard("train", "classify", "model=bert", "head.pool=mean", *small, *plan, *data, "--dry-run")
    assert "head        pool=mean hidden=tanh inner=0 bias=true dropout=0.1 labels=2" in said.out
    shown = json.loads(regard("show", "classify", "model=bert", "head.pool=mean", "--json").out)
    assert (shown["head.pool"], shown["head.labels"]) == ("mean", 0)
    assert json.loads(regard("show", "classify", "--json").out)["head"] is None
    said = regard("show", "classify", "head.pol=mean")
    assert 'head.pol=mean: no such setting. Did you mean "head.pool"?' in said.err
    assert "head.pool=mean: head has no settings inside" in regard("show", "dates", "head.pool=mean").err

    said = regard("train", "classify", "model=bert", "head=class", *small, *plan, *data, "--out", "new")
    assert said.code == 0
    said = regard("train", "classify", "from=new", "head=class", *plan, *data, "--out", "newer")
    assert "weights taken; replaced by new ones: head.hidden, head.out\n" in said.out

    masked = ["data.train=lines.txt", "data.tokens=word", *small, *plan, "--out", "masked"]
    assert regard("train", "pretrain", "model=roberta", "data=lines", *masked).code == 0
    said = regard("train", "classify", "from=masked", *data, *plan, "plan.freeze=1", "plan.unfreeze=1", "--out", "run")
    assert said.code == 0
    assert "weights taken; new: head.hidden, head.out; not used: masked, masked.dense, masked.norm" in said.out
    assert regard("classify", "run", stdin="ab ba 3\n").out.split("\t")[0] in ("good", "bad")
    assert regard("look", "run", "ab ba 3", "-o", "look.html").code == 0
    assert regard("eval", "run", "--data", "labelled.tsv").code == 0
    assert regard("train", "classify", "--resume", "--out", "run").code == 0


def test_eval_reads_the_columns_of_the_run(regard: Regard, tmp_path: Path) -> None:
    lines = (json.dumps({"stars": n % 2, "review": f"day {n % 2}\n{n}"}) for n in range(20))
    (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "test.csv").write_text('stars;review\n0;"day 0,\nagain"\n1;day 1\n', encoding="utf-8")
    (tmp_path / "other.csv").write_text("text,label\nday,0\n", encoding="utf-8")
    small = ["plan.steps=2", "plan.evaluate=2", "model.width=16", "model.embed=8"]
    columns = ["data.text=review", "data.label=stars"]
    assert regard("train", "classify", "data.train=train.jsonl", *columns, *small, "--out", "run").code == 0
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert re.search(r"Chance: a model that always answers “\w+”, the most frequent class, has accuracy \d+\.\d%", page)
    assert json.loads(regard("eval", "run", "--data", "test.csv", "--json").out)["examples"] == 2
    assert 'other.csv, line 1 (the header): no column "stars"' in regard("eval", "run", "--data", "other.csv").err


def test_eval_of_a_translator(regard: Regard, trained: Path, pairs: Path) -> None:
    copytree(trained, "run")
    said = regard("eval", "run", "--data", pairs, "--beam", 2, "--free-running", "--json")
    found = json.loads(said.out)
    assert (found["examples"], found["beam"], found["step"] > 0) == (200, 2, True)
    assert set(found["scores"]) == {"loss", "perplexity", "bleu", "exact"}
    assert found["exposure"]["count"][0] == 200
    assert found["penalty"]["stop"] == "present"
    assert not found.keys() & {"classes", "entities", "tasks", "lengths", "fill"}
    assert "By position" in regard("eval", "run", "--free-running").out
    spans = json.loads(regard("eval", "run", "--data", pairs, "--by-length", "--json").out)["lengths"]
    assert (next(iter(spans)).split("-")[0], len(spans) > 3) == ("2", True)
    assert "By length" in regard("eval", "run", "--by-length").out
    assert found["truncated"] == 0
    Path("long.tsv").write_text(f"abc\tCBA\n{'ab' * 20}\tB\n", encoding="utf-8")
    assert json.loads(regard("eval", "run", "--data", "long.tsv", "--json").out)["truncated"] == 1
    assert "1 of them" in regard("eval", "run", "--data", "long.tsv").err  # a notice
    assert "--data FILE" in regard("eval", "run", "--split", "test").err
    assert 'Did you mean "valid"' in regard("eval", "run", "--split", "vald").err


def test_ctrl_c_saves_and_the_run_goes_on(regard: Regard, tiny: list[str], tmp_path: Path) -> None:
    endless = ["plan.steps=100000", "plan.patience=0"]
    command = [sys.executable, "-m", "regard", "train", "translate", *tiny, *endless, "--out", "run"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
        log = tmp_path / "run/metrics.jsonl"
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
    assert process.returncode == 130
    assert " train translate --resume --out run" in out
    step = int((tmp_path / "run/latest").read_text(encoding="utf-8"))
    assert step > 0
    assert f"saved at step {step}" in out
    more = regard("train", "translate", "--resume", "--out", "run", "plan.minutes=0.0001", "--json")
    assert more.code == 0
    assert f"finished at step {step} (plan.minutes)" in more.err


def test_ctrl_c_before_the_first_step_or_after_the_last(
    regard: Regard, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    run = import_module("regard.training.run")
    with monkeypatch.context() as patch:
        patch.setattr(run, "prepare", interrupt)
        said = regard("train", "translate", *tiny, "--out", "run")
    assert (said.code, said.err, Path("run").exists()) == (130, "", False)
    assert "stopped before the first step; nothing to save" in said.out
    with monkeypatch.context() as patch:
        patch.setattr("regard.report.run.conclude", interrupt)
        said = regard("train", "translate", *tiny, "--out", "run")
    assert said.code == 130
    assert "stopped and saved at step 6; continue with: " in said.out
    with monkeypatch.context() as patch:
        patch.setattr(run, "prepare", interrupt)
        said = regard("train", "translate", "--resume", "--out", "run")
    assert (said.code, said.out) == (130, "\nstopped before another step; run is at step 6\n")
    with monkeypatch.context() as patch:
        patch.setattr(run, "make_folder", interrupt)
        said = regard("train", "translate", *tiny, "--out", "other")
    assert "stopped before the first step" in said.out


def test_ctrl_c_while_the_program_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unread:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "regard.cli.app", Unread())
    assert main(["show"]) == 130


def test_running_text_says_something_in_the_end(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("the owl sat still,\nand the mouse sat too.\n\n" * 60, encoding="utf-8")
    model = ["model.width=16", "model.heads=2", "model.layers=2", "model.inner=32", "model.context=18"]
    plan = ["plan.steps=4", "plan.warmup=1", "plan.evaluate=4", "plan.batch_tokens=96", "plan.threads=1"]
    said = regard("train", "shakespeare-cpu", "data=book", "data.train=book.txt", *model, *plan, "--out", "run")
    assert (said.code, said.err) == (0, "")
    assert "Samples" in said.out
    assert said.out.count("and the mouse") > 3
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert all(part in page for part in ("Samples", "Attention"))
    commands = said.out.partition("Next:")[2]
    assert "regard generate run 'and the mouse' --temperature 0.8" in commands
    look = shlex.split(next(line for line in commands.splitlines() if " look run " in line))
    assert regard(*look[look.index("look") :]).code == 0
    page = Path("look.html").read_text(encoding="utf-8")
    assert re.search(r"The model is a language model, Gpt with [\d,]+ parameters: run, recipe \S+, step 4\.", page)
    assert all(WORDS[word] in page for word in ("weights", "decoder", "context", "logits"))
    assert WORDS["encoder"] not in page
    assert regard("generate", "run", "and the mouse", "--limit", 5).code == 0
    # Every character of a file but the first is a target: it is read as one text, not as lines.
    found = json.loads(regard("eval", "run", "--data", "book.txt", "--json").out)
    whole = json.loads(regard("eval", "run", "--split", "train", "--json").out)
    assert found["scores"]["loss"] == pytest.approx(whole["scores"]["loss"], abs=0.05)
    free = json.loads(regard("eval", "run", "--data", "book.txt", "--free-running", "--json").out)["exposure"]
    assert sum(free["count"]) == (tmp_path / "book.txt").stat().st_size - 1  # all windows, not the first alone
    assert len(free["count"]) == 18


def test_gaps_are_filled_in_the_end(regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the owl sat very still\nthe mouse sat too\n" * 30, encoding="utf-8")
    model = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=32", "model.context=32"]
    data = ["model=roberta", "data=lines", "data.train=lines.txt", "data.tokens=word"]
    said = regard(
        "train", "pretrain", *data, *model, "plan.steps=4", "plan.warmup=1", "plan.evaluate=4", "--out", "run"
    )
    assert (said.code, said.err) == (0, "")
    (command,) = [line for line in said.out.splitlines() if "regard fill run" in line]
    assert "[MASK]" in command
    assert regard("fill", "run", "the [MASK] sat").code == 0
    first, second = (json.loads(regard("eval", "run", "--json").out)["scores"] for _ in range(2))
    assert first == second  # the same tokens are hidden every time
    assert regard("eval", "run", "--data", "lines.txt").code == 0
    assert "masked language model" in regard("eval", "run", "--free-running").err


def test_a_public_checkpoint_is_gone_on_with_and_judged(regard: Regard, tmp_path: Path) -> None:
    tiny_public = pytest.importorskip("tiny_public")
    made = tiny_public.gpt2(tmp_path / "public")
    (tmp_path / "lines.txt").write_text("\n".join(tiny_public.LINES * 6), encoding="utf-8")
    before = regard("eval", "public", "--data", "lines.txt", "--json")
    assert before.code == 0
    assert "a public checkpoint comes without data; give --data FILE" in regard("eval", "public").err
    settings = ["data.train=lines.txt", "data.valid=lines.txt", "plan.steps=10", "plan.warmup=1"]
    settings += ["plan.evaluate=10", "plan.rate=1e-2"]
    cost = json.loads(regard("train", "text", *settings, "from=public", "--dry-run", "--json").out)
    assert cost["parameters"] == sum(weight.numel() for weight in made.parameters())
    said = regard("train", "text", *settings, "from=public", "--out", "run")
    assert said.code == 0
    assert said.err.startswith("warning: 6 of 30 training examples have more than 40 tokens")
    assert said.err.count("\n") == 1
    after = json.loads(regard("eval", "run", "--json").out)
    assert after["scores"]["loss"] < json.loads(before.out)["scores"]["loss"]
    assert "finished at step 10" in regard("train", "text", "--resume", "--out", "run").out


def test_download_brings_what_is_public_and_nothing_else(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("regard.cli.progress.download", lambda data, show: asked.append(data))
    monkeypatch.setenv("REGARD_DATA", "nowhere")
    monkeypatch.setenv("REGARD_CACHE", "nowhere")
    said = regard("train", "shakespeare-cpu", "--download")
    assert said.code == 2
    assert "tinyshakespeare/input.txt" in said.err  # which the one here has not brought
    assert [type(data).__name__ for data in asked] == ["Shakespeare"]
    assert "--download" in regard("train", "shakespeare-cpu").err
    assert len(asked) == 1


def test_download_of_ones_own_files_is_refused(regard: Regard, tiny: list[str]) -> None:
    said = regard("train", "translate", *tiny, "--download")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--download: Pairs is not read from public files" in said.err
