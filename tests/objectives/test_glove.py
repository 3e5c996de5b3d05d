"""GloVe: counts that are spilled and merged are those of a loop; the loss and AdaGrad are the formulas."""

import tracemalloc
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data import cooccurrence
from regard.data.cooccurrence import cooccurrences, merge, most_cells
from regard.data.words import Sentences
from regard.errors import UserError
from regard.models import GloveConfig
from regard.objectives import GloveSquares
from regard.objectives.glove import GloveTrainer
from regard.recipes import KINDS, Plan, Recipe, change, find_recipe
from regard.stored import load_model
from regard.training.events import Progress
from regard.training.run import Run
from regard.verbs.loaded import load

LINES = [[5, 6, 5, 7, 8, 6, 9], [10, 5], [7], [6, 6, 6]] * 6


@pytest.fixture
def sentences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sentences:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    ids = np.array([word for line in LINES for word in (*line, 4)], np.uint16)
    return Sentences(ids, 5, 20, seed=1)


def counted(window: int) -> dict[tuple[int, int], float]:
    """The counts of LINES by the definition."""
    found: dict[tuple[int, int], float] = {}
    for line in LINES:
        for p, word in enumerate(line):
            for q, other in enumerate(line):
                if p != q and abs(p - q) <= window:
                    found[word, other] = found.get((word, other), 0) + 1 / abs(p - q)
    return found


@pytest.mark.parametrize("window", [3, 100], ids=["of words of a line", "of more words than the text has"])
@pytest.mark.parametrize("in_memory", [2**20, 40, 7], ids=["at once", "in parts", "in many parts"])
def test_counts_are_those_of_a_loop(sentences: Sentences, in_memory: int, window: int, tmp_path: Path) -> None:
    cells = cooccurrences(sentences, 11, window, in_memory)
    again = cooccurrences(sentences, 11, window, in_memory)  # from the cache
    assert cells.tolist() == again.tolist()
    expected = {pair: count for pair, count in counted(window).items() if pair[0] <= pair[1]}
    assert {(i, j): count for i, j, count in cells.tolist()} == pytest.approx(expected)
    assert len(cells) == len(expected)
    assert bool(list(tmp_path.rglob("*.bin"))) == (in_memory < 100)
    assert not [path for path in tmp_path.rglob("*") if "counts" in path.name]  # nothing is left behind


def test_the_order_of_cells_is_random_and_always_the_same(sentences: Sentences) -> None:
    one, other = (cooccurrences(sentences, 11, 3, 40)["word"].tolist() for _ in range(2))
    assert one == other
    assert any(first > second for first, second in pairwise(one))


def test_counting_reports_the_bytes_that_are_done(sentences: Sentences) -> None:
    calls: list[tuple[str, int, int]] = []
    sentences.report = lambda *call: calls.append(call)
    cooccurrences(sentences, 11, 3, 40)
    done = [call[1] for call in calls]
    assert len(done) > 2
    assert done == sorted(set(done))
    assert calls[-1] == ("counting pairs of words", sentences.nbytes, sentences.nbytes)
    cooccurrences(sentences, 11, 3, 40)  # from the cache
    assert len(calls) == len(done)


def test_merged_parts_are_sorted_and_added() -> None:
    parts = [np.array(part, cooccurrence.KEY_COUNT) for part in ([(3, 1.0), (5, 2.0)], [(1, 1.0), (5, 0.5)])]
    for in_memory in (1, 2, 100):
        merged = np.concatenate(list(merge(parts, in_memory)))
        assert merged.tolist() == [(1, 1.0), (3, 1.0), (5, 2.5)]


def test_cells_are_counted_by_words_in_little_memory() -> None:
    """Counting all cells at once would need 8 bytes for each."""
    random = np.random.default_rng(0)
    cells = np.zeros(300_000, cooccurrence.CELL)
    cells["word"], cells["context"] = random.integers(50, size=(2, len(cells)))
    cells["context"][:1000] = 7
    tracemalloc.start()
    found = most_cells(cells, 50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(cells)
    assert found == max(np.unique(cells[name], return_counts=True)[1].max() for name in ("word", "context"))


def test_the_loss_is_the_one_written_out() -> None:
    model = GloveConfig(vocab=6, width=3).build().double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    total = 0.0
    for i, j, x in ((0, 1, 4.0), (5, 5, 100.0), (2, 3, 250.0)):
        weight = (x / 100) ** 0.75 if x < 100 else 1.0
        product = sum(a * b for a, b in zip(model.embedding.weight[i].tolist(), model.output[j].tolist()))
        total += weight * (product + model.bias[i].item() + model.output_bias[j].item() - np.log(x)) ** 2
    cells = torch.tensor([0, 5, 2]), torch.tensor([1, 5, 3]), torch.tensor([4.0, 100.0, 250.0]).double()
    assert GloveSquares().loss(model, *cells).item() == pytest.approx(total)
    torch.testing.assert_close(model.vectors, model.embedding.weight + model.output)


def test_an_update_is_adagrad_on_half_the_loss(sentences: Sentences) -> None:
    """Of cells without a common word, twice: each weight moves by −d / √(1 + Σ d²), d = rate · g."""
    model = GloveConfig(vocab=11, width=3).build().double()
    trainer = GloveTrainer(GloveSquares(), model, sentences, Plan(steps=1), lambda steps: 0.05)
    cells = torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10]), torch.tensor([3.0, 120.0, 1.0]).double()
    sums = [torch.ones_like(weight) for weight in model.parameters()]
    for _ in range(2):
        loss = GloveSquares().loss(model, *cells)
        slopes = torch.autograd.grad(loss / 2, list(model.parameters()))
        expected = [w.detach() - 0.05 * g / s.sqrt() for w, g, s in zip(model.parameters(), slopes, sums)]
        sums = [s + (0.05 * g).square() for s, g in zip(sums, slopes)]
        torch.testing.assert_close(trainer._update(*cells, rate=0.05), loss.detach())
        for weight, wanted in zip(model.parameters(), expected):
            torch.testing.assert_close(weight.detach(), wanted)


def test_a_state_that_does_not_fit_is_refused(sentences: Sentences) -> None:
    model = GloveConfig(vocab=11, width=3).build()
    trainer = GloveTrainer(GloveSquares(), model, sentences, Plan(steps=1), lambda steps: 0.05)
    state = trainer.state()
    first, squares = next(iter(state.items()))
    other = "it is absent, or of another shape or type"
    bad = torch.full_like(squares, torch.inf)
    for value, message in ((squares[:1], other), (squares.long(), other), (bad, "are NaN or infinite")):
        with pytest.raises(UserError, match=f"{first}: .*{message}"):
            trainer.restore({**state, first: value}, 1)
    trainer.restore(state, 1)


def glove(folder: Path, *settings: str) -> Recipe:
    random = np.random.default_rng(0)
    words = [[f"{name}{number}" for number in range(9)] for name in ("sea", "sky")]
    (folder / "text.txt").write_text("".join(" ".join(random.choice(words[n % 2], 9)) + "\n" for n in range(200)))
    own = [f"data.train={folder}/text.txt", "model.width=8", "plan.batch_tokens=1000", "plan.log=2", "plan.evaluate=3"]
    return change(find_recipe("glove"), [*own, *settings], KINDS)


def test_a_run_lowers_the_loss_and_resumes_with_equal_bits(tmp_path: Path) -> None:
    recipe = glove(tmp_path, "plan.epochs=4")
    losses = [event.loss for event in Run(recipe, tmp_path / "whole") if isinstance(event, Progress)]
    assert losses[-1] < losses[0]
    assert len(list(islice(Run(recipe, tmp_path / "parts"), 5))) == 5
    list(Run(None, tmp_path / "parts", existing="resume"))
    step = f"steps/{load(tmp_path / 'whole').step:06d}"
    one, other = (load_model(tmp_path / name / step).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("setting", ["objective.x_max=0", "objective.alpha=0", "objective.window=0"])
def test_settings_without_sense_are_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=setting.replace("=0", "=0.*give a number")):
        glove(tmp_path, setting)
