"""Answers, from SQuAD files to spans with their places in a passage."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard as library
from regard.cli import main
from regard.data.answers import IN_PASSAGE, AnswerText, windows
from regard.data.batches import collate
from regard.data.example import Question
from regard.errors import UserError
from regard.report.samples import excerpts, mistakes
from regard.training.chance import describe_chance
from regard.verbs import load
from regard.verbs.answering import answer, sentence_around

Regard = Callable[..., Any]
PEOPLE, PLACES = ("Anna", "John", "Lena Berg"), ("Berlin", "New York")
TINY = ["plan.threads=1", "plan.device=cpu", "plan.warmup=2", "plan.batch_tokens=1024", "plan.patience=0"]
SMALL = ["model.width=16", "model.heads=2", "model.layers=1", "model.inner=16", "data.vocab=90"]


def written(folder: Path, unanswered: bool) -> Path:
    """A file of SQuAD, in which the person of a question may be unknown."""
    paragraphs = []
    for person, place in product(PEOPLE, PLACES):
        passage = f"{person} lives in {place}. It rains."
        where = {"text": place, "answer_start": passage.index(place)}
        qas = [{"id": f"{person} {place}", "question": f"Where does {person} live?", "answers": [where, where]}]
        if unanswered:
            qas += [{"id": "none", "question": "Where does Mia live?", "answers": [], "is_impossible": True}]
        paragraphs.append({"context": passage, "qas": qas})
    path = folder / f"{'two' if unanswered else 'one'}.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "Homes", "paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt a small file of SQuAD 2.0, and an untrained one of SQuAD 1.1."""
    folder = tmp_path_factory.mktemp("answer")
    for name, unanswered, steps in (("run", True, 60), ("sure", False, 1)):
        path = written(folder, unanswered)
        files = [f"data.train={path}", f"data.valid={path}", f"data.test={path}"]
        plan = [f"plan.steps={steps}", f"plan.evaluate={steps}", "plan.rate=0.03"]
        assert main(["train", "answer", *files, *TINY, *SMALL, *plan, "--out", str(folder / name)]) == 0
    return folder


def test_an_answer_has_its_place_and_its_sentence(regard: Regard, folder: Path) -> None:
    passage = folder / "passage.txt"
    passage.write_text("Anna lives in New York. It rains.")
    asked = ["-q", "Where does Anna live?", "-q", "Where does Mia live?", "--passage", passage]
    first, second = regard("answer", folder / "run", *asked).out.splitlines()
    text, probability, start, end, sentence = first.split("\t")
    assert (text, start, end, sentence) == ("New York", "14", "22", "Anna lives in New York.")
    assert 0 < float(probability) <= 1
    assert second.startswith("(no answer)\t")
    one, two = (json.loads(line) for line in regard("answer", folder / "run", *asked, "--json").out.splitlines())
    assert (one["line"], one["question"], one["start"]) == (1, "Where does Anna live?", 14)
    assert two["text"] == ""
    assert two["start"] is None
    assert two["probability"] == two["no_answer"]
    lines = regard("answer", folder / "run", *asked[:2], "-p", "-", "--top", 3, stdin="Anna lives in New York.").out
    assert len(lines.splitlines()) == 3


def test_questions_of_files(regard: Regard, folder: Path) -> None:
    rows = [{"question": "Where does John live?", "passage": "John lives in Berlin. It rains.", "extra": 1}]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert regard("answer", folder / "run", folder / "q.jsonl").out.startswith("Berlin\t")
    assert len(regard("answer", folder / "run", folder / "two.json").out.splitlines()) == 12


def test_evaluation_has_exact_match_and_f1(regard: Regard, folder: Path) -> None:
    found = json.loads(regard("eval", folder / "run", "--json").out)
    assert found["examples"] == 12
    assert found["scores"]["em"] == found["scores"]["answer_f1"] == 1
    assert "answer F1" in regard("eval", folder / "run", "--data", folder / "one.json").out
    model = load(folder / "run", "cpu")
    chance = describe_chance(model, model.examples()[1])
    assert "always gives no answer has exact match 50.0%" in chance
    assert "has the answer in 50.0% of all questions" in chance


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-q", "Who?"], "give --question TEXT and --passage FILE"),
        (["--passage", "x.txt"], "give --question TEXT and --passage FILE"),
        (["q.jsonl", "-q", "Who?", "-p", "x.txt"], "give --question TEXT and --passage FILE"),
        (["-q", "Who?", "-p", "none.txt"], "no such file"),
        (["-q", "Who?", "-p", "Anna left."], "give it on standard input with --passage -"),
        (["-q", " ", "-p", "short.txt"], "line 1: a question or a passage is missing"),
        (["-q", "Who?", "-p", "short.txt", "--threshold", "2"], "threshold=2.0: give a probability from 0 to 1"),
        (["blank.jsonl"], "line 1: the question or the passage is empty"),
        (["q.csv"], 'no column "passage"; name one'),
    ],
)
def test_mistakes(
    regard: Regard, folder: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("short.txt").write_text("Anna")
    Path("blank.jsonl").write_text('{"question": "Who?", "passage": " "}\n')
    Path("q.csv").write_text("question,text\nWho?,Anna\n")
    said = regard("answer", folder / "run", *options)
    assert said.code == 2
    assert message in said.err


def test_a_model_that_always_had_an_answer_gives_one(folder: Path) -> None:
    model = load(folder / "sure", "cpu")
    (found,) = answer(model, [("Where does Mia live?", "It rains.")])
    assert found.text
    assert found.no_answer is None
    with pytest.raises(UserError, match="was not trained to give no answer"):
        answer(model, [("Where?", "It rains.")], threshold=0.5)
    with pytest.raises(UserError, match=r"line 1: .* give \(question, passage\)"):
        answer(model, ["Where?"])  # type: ignore[list-item]


def test_probabilities_add_up_and_the_threshold_decides(folder: Path) -> None:
    model = load(folder / "run", "cpu")
    pair = ("Where does the friend of Anna who likes the rain live?", "Berlin.")  # the passage is shorter
    (found,) = answer(model, [pair], top=1000)
    assert found.no_answer is not None
    assert sum(one.probability for one in found.spans) + found.no_answer == pytest.approx(1)
    assert found.spans == tuple(sorted(found.spans, key=lambda one: -one.probability))
    assert answer(model, [pair], threshold=0.0)[0].text == ""
    assert answer(model, [pair], threshold=1.0)[0].text == found.spans[0].text


def test_a_wrong_answer_is_a_mistake(folder: Path) -> None:
    model = load(folder / "run", "cpu")
    passage = "Anna lives in Rome."
    found = answer(model, [("Where does Anna live?", passage)])[0]
    right = next(text for text in ("Anna", "Rome") if text != found.text)
    examples = [Question("Where does Anna live?", passage, ((right, passage.find(right)),))]
    (wrong,), _ = mistakes(model, examples)
    assert wrong == ("Where does Anna live?", found.text or "(no answer)", right, pytest.approx(found.probability))


def test_the_windows_of_a_long_passage_give_the_best_span_of_all(folder: Path) -> None:
    """The definition: the score of a span is the largest sum of its logits in a window that has it."""
    loaded = load(folder / "run", "cpu")
    assert loaded.recipe is not None
    model = replace(loaded, recipe=replace(loaded.recipe, data=replace(loaded.recipe.data, window=40, stride=7)))
    passage = "It rains. John lives in Berlin. " * 4 + "Anna lives in New York. It rains."
    question = Question("Where does Anna live?", passage)
    field = model.fields["text"]
    assert isinstance(field, AnswerText)
    (parts,) = windows(model.fields, [question], model.recipe.data, None)  # type: ignore[union-attr]
    assert len(parts) > 2
    best: dict[tuple[int, int], float] = {}
    nothing = math.inf
    for part in parts:
        (row,) = model.encode([part])
        with torch.no_grad():
            logits = model.module(collate([row], model.task))[0].numpy()
        tokens, places = np.flatnonzero(row["text"][:, 2] & IN_PASSAGE), field.tokenizer.offsets([part.passage])[0]
        nothing = min(nothing, float(logits[0].sum()))
        for i, j in product(range(len(tokens)), repeat=2):
            start, end = places[i][0], places[j][1]
            if i <= j < i + 30 and passage[part.begin + start : part.begin + end].strip():
                text = part.passage[start:end]
                start, end = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
                key = part.begin + start, part.begin + end
                best[key] = max(best.get(key, -math.inf), float(logits[tokens[i], 0] + logits[tokens[j], 1]))
    (found,) = answer(model, [(question.question, passage)], top=len(best) + 5)
    total = math.log(sum(math.exp(one) for one in (*best.values(), nothing)))
    assert {(one.start, one.end): pytest.approx(math.log(one.probability), abs=1e-4) for one in found.spans} == {
        key: one - total for key, one in best.items()
    }
    assert all(passage[one.start : one.end] == one.text and one.text in one.sentence for one in found.spans)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("Ada", "Ada wrote (in 1843)."),
        ("1843", "Ada wrote (in 1843)."),
        ("It", "It ran!"),
        ("ran! Why?", "It ran! Why?"),
    ],
)
def test_the_sentence_around_an_answer(answer: str, sentence: str) -> None:
    passage = "Ada wrote (in 1843).  It ran! Why?\nNobody knows"
    start = passage.index(answer)
    assert sentence_around(passage, start, start + len(answer)) == sentence


def test_attention_between_question_and_passage_is_recorded_and_drawn(regard: Regard, folder: Path) -> None:
    model = load(folder / "run", "cpu")
    pairs = [("Where does Anna live?", "Anna lives in New York."), ("Where?", "Berlin.")]
    with library.record(model.module) as tape:
        found = answer(model, pairs)
    assert [one.text for one in found] == [one.text for one in answer(model, pairs)]
    name = next(iter(tape))
    captions = tape.captions[0][name]
    assert captions.rows[0] == "<bos>"
    assert "▁Where" in captions.rows
    assert len(tape.captions) == 2
    view = library.look(model, pairs[0])
    assert view.layers[0].weights == pytest.approx(tape[name][0].numpy(), abs=1e-6)
    assert "<bos>" in regard("look", folder / "run", *pairs[0]).out
    with pytest.raises(UserError, match="reads question and passage"):
        library.look(model, "Where?")


def test_other_models_and_verbs_are_refused(regard: Regard, folder: Path) -> None:
    assert "use: regard answer" in regard("classify", folder / "run", stdin="x").err
    assert "use: regard answer" in regard("translate", folder / "run", stdin="x").err


def test_training_with_windows_and_from_another_model(folder: Path, regard: Regard) -> None:
    files = [f"data.train={folder / 'two.json'}", f"data.valid={folder / 'two.json'}"]
    plan = [*TINY, "plan.steps=2", "plan.evaluate=2"]
    small = ["data.window=24", "data.stride=4"]
    said = regard("train", "answer", *files, *plan, *small, f"from={folder / 'run'}", "--out", folder / "more")
    assert "from" in said.out + said.err
    assert load(folder / "more", "cpu").predicts("span")
    wrong = regard("train", "answer", f"data.train={folder / 'none.json'}", "--out", folder / "bad")
    assert "no such file" in wrong.err


def test_a_picture_has_the_window_of_the_answer(folder: Path) -> None:
    """A page pictures what the model reads: not a question of many words, nor a passage without the answer."""
    model = load(folder / "sure")
    assert model.recipe is not None
    model = replace(model, recipe=replace(model.recipe, data=replace(model.data, window=32, stride=8)))
    passage = "It rains. " * 100 + "Anna lives in Berlin."
    asked = Question("Where does Anna live? " * 100, passage, (("Berlin", passage.index("Berlin")),))
    ((question, part),) = excerpts(model, [asked], 1)
    assert asked.question.startswith(question)
    assert "Berlin" in part
    (array,) = model.read_joined([(question, part, None)])
    assert len(array) <= 32
