"""`regard train text2text`, `reply`, `titles`: tasks by prefix are measured apart; answers and failures are shown."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from regard import load
from regard.data.example import Pair
from regard.report.run import answer_table
from regard.report.samples import ANSWERED, WRONG, answers
from regard.training.evaluate import evaluate, task_scores

Regard = Callable[..., "Said"]  # noqa: F821
TINY = [
    *("model.width=16", "model.heads=2", "model.layers=1", "model.inner=32", "data.vocab=60", "plan.device=cpu"),
    *("plan.steps=2", "plan.warmup=1", "plan.evaluate=2", "plan.log=1", "plan.batch_tokens=256", "plan.samples=2"),
]
MIXTURE = [
    *("data=mixture", "data.one.train=reverse.tsv", "data.one.prefix=reverse:"),
    *("data.two.train=moods.csv", "data.two.prefix=mood:", "data.two.source=text", "data.two.target=label"),
    *("data.two.words=bad=0,good=1", "data.three.train=ratings.jsonl", "data.three.prefix=rate"),
    *("data.three.source=first: {a} second: {b}", "data.three.target=score", "data.three.round=0.5"),
]


@pytest.fixture
def files(tmp_path: Path) -> None:
    words = [f"{'abcd'[n % 4]} {'efg'[n % 3]} {n % 7}" for n in range(60)]
    (tmp_path / "reverse.tsv").write_text("".join(f"{one}\t{one[::-1]}\n" for one in words), encoding="utf-8")
    moods = "".join(f"{one},{n % 2}\n" for n, one in enumerate(words))
    (tmp_path / "moods.csv").write_text(f"text,label\n{moods}", encoding="utf-8")
    ratings = (json.dumps({"a": one, "b": one[::-1], "score": n % 5}) for n, one in enumerate(words))
    (tmp_path / "ratings.jsonl").write_text("\n".join(ratings), encoding="utf-8")
    turns = "".join(f"{'AB'[n % 2]}:\n{one}\n\n" for n, one in enumerate(words))
    (tmp_path / "play.txt").write_text(turns, encoding="utf-8")


@pytest.mark.usefixtures("files")
def test_tasks_of_a_mixture_are_measured_apart(regard: Regard, tmp_path: Path) -> None:
    said = regard("train", "text2text", *MIXTURE, *TINY, "--out", "run")
    assert said.code == 0, said.err
    assert "By task" in said.out
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert all(title in page for title in ("By task", "Answers", "Failures"))
    found = json.loads(regard("eval", "run", "--json", "--device", "cpu").out)
    assert list(found["tasks"]) == ["reverse", "mood", "rate"]
    assert sum(one["examples"] for one in found["tasks"].values()) == found["examples"]
    assert all({"loss", "exact", "bleu"} <= set(one["scores"]) for one in found["tasks"].values())
    assert [line.split()[0] for line in said.out.splitlines() if line[:8].strip() in found["tasks"]] == [
        *("reverse", "mood", "rate")
    ]
    said = regard("translate", "run", "--device", "cpu", "--limit", 4, stdin="mood: a e 1\n")
    assert (said.code, len(said.out.splitlines())) == (0, 1)
    model = load("run", "cpu")
    _, examples = model.examples()
    scores = task_scores(model, examples, ("loss",))
    moods = [one for one in examples if one.task == "mood"]
    assert scores["mood"] == (len(moods), evaluate(model, moods, ("loss",)).values)
    assert task_scores(model, moods, ("loss",)) == {}
    # It is fine-tuned on one of the tasks, with the tokenizer that it has.
    more = ["data.train=reverse.tsv", "data.prefix=reverse:", *(one for one in TINY if one.startswith("plan."))]
    said = regard("train", "text2text", "from=run", *more, "metrics=", "--out", "tuned", "--json")
    assert said.code == 0, said.err
    assert "loss" in json.loads(said.out)["scores"]


@pytest.mark.usefixtures("files")
def test_a_reply_is_trained_on_a_play(regard: Regard) -> None:
    said = regard("train", "reply", "data.train=play.txt", *TINY, "--out", "run", "--json")
    assert said.code == 0, said.err
    assert {"loss", "perplexity", "rouge1", "rougeL"} == set(json.loads(said.out)["scores"])


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["text2text"], "data.train is not set"),
        (["text2text", "data=mixture"], "data.one.train is not set"),
        (["text2text", "data.train=moods.csv", "data.source={words}"], 'no column "words"'),
        (["text2text", "data.train=moods.csv", "data.source=text", "data.target=label", "data.words=good"], "'0'"),
        (["reply", "data.train=moods.csv"], "0 turns of a play"),
        (["titles", "data.train=play.txt"], "no paragraph of 20 words below a heading"),
    ],
)
def test_wrong_input_is_refused(regard: Regard, settings: list[str], message: str) -> None:
    said = regard("train", *settings, *TINY, "--out", "run")
    assert said.code != 0
    assert message in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_failures_are_wrong_answers_the_surest_first(translator: Callable[..., Path]) -> None:
    model = load(translator(), "cpu")
    right = answers(model, [Pair("ab", "?"), Pair("bca", "?")], 1)[1]
    said = {one.given: one.said for one in right}
    examples = [Pair("ab", said["ab"]), Pair("bca", "wrong"), Pair("cc", "no", others=("x",)), Pair("a b c", "wrong")]
    shown, wrong = answers(model, examples * 100, 2)
    assert [one.given for one in shown] == [one.source for one in (examples * 100)[:: 400 // ANSWERED][:2]]
    scores = [one.score for one in wrong]
    assert scores == sorted(scores, reverse=True)
    assert len(wrong) == WRONG
    assert all(one.given != "ab" for one in wrong)
    assert answer_table("Failures", wrong).rows[0][2] == wrong[0].right
