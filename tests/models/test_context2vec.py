"""context2vec: the vector of a place does not depend on its word; the objective, fill and lexical substitution."""

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import UserError, fill, load
from regard.cli import main
from regard.data.batches import IGNORED, Batch
from regard.data.fields import TargetText
from regard.data.flat import Rows
from regard.data.sources import Lines
from regard.data.tokenizers import BOS, EOS, train_tokenizer
from regard.models import Context2vec, Context2vecConfig
from regard.objectives import ContextSampling
from regard.recipes import KINDS, Plan, Recipe, change, find_recipe
from regard.tasks import TASKS
from regard.training.run import Run
from regard.verbs.filling import context_vectors
from regard.verbs.substitution import Sentence, _chance, sentences, substitution
from saved import save_run

VOCAB = 11
CONFIG = Context2vecConfig(vocab=VOCAB, width=6, embed=5, inner=7, layers=2, dropout=0.0)
LINES = ["the bright student reads", "the clever child sings", "a sunny room is bright", "the loud child reads"]


@pytest.fixture
def model() -> Context2vec:
    return CONFIG.build().double().eval()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = train_tokenizer("word", LINES, 40)
    config = replace(CONFIG, vocab=tokenizer.size)
    recipe = Recipe("tiny", "contexts", Lines(tokens="word"), config, ContextSampling(), Plan(), ())
    return save_run(tmp_path_factory.mktemp("runs") / "context", recipe, config, {"text": TargetText(tokenizer)})


def test_no_vector_depends_on_the_word_of_its_place(model: Context2vec) -> None:
    """The gradient of the vector of a place is zero at its own embedding, and only there."""
    tokens = torch.tensor([[1, 4, 5, 6, 2]])
    embedded = model.embedding(tokens).detach().requires_grad_()
    model.embedding.forward = lambda _: embedded  # type: ignore[method-assign]
    for place, vector in enumerate(model.features(tokens)[0]):
        (gradient,) = torch.autograd.grad(vector.sum(), embedded, retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 0
        assert seen.tolist() == [other != place for other in range(5)]


def test_the_vectors_are_those_of_the_definition(model: Context2vec) -> None:
    """MLP([LSTM(w₁ … wₜ₋₁); LSTM(w_n … wₜ₊₁)]), for each place alone (Melamud et al. 2016, §2)."""
    tokens = torch.tensor([1, 4, 5, 6, 7, 2])

    def last_state(rnn: Any, words: Tensor) -> Tensor:
        if not len(words):
            return torch.zeros(CONFIG.width).double()
        return rnn.definition(model.embedding(words)[None], rnn.zeros(1, model.target.weight))[0][0, -1]

    expected = []
    for t in range(len(tokens)):
        sides = last_state(model.before, tokens[:t]), last_state(model.after, tokens[t + 1 :].flip(0))
        hidden = torch.relu(model.join[0](torch.cat(sides)))
        expected.append(model.join[2](hidden))
    torch.testing.assert_close(model.features(tokens[None])[0], torch.stack(expected))


def test_the_loss_is_the_expectation_over_the_noise(model: Context2vec) -> None:
    """In evaluation by a sum over all words; in training an estimate of it with words that are drawn."""
    tokens = torch.tensor([[1, 4, 5, 2], [1, 6, 4, 2]])
    targets = tokens.masked_fill((tokens == 1) | (tokens == 2), IGNORED)
    batch = Batch(
        {"tokens": tokens, "targets": targets}, {"tokens": torch.ones(2, 4, dtype=torch.bool)}, {"targets": 4}
    )
    model.count_batch(batch)
    noise = torch.tensor([3.0 if word == 4 else 2.0 if word in (5, 6) else 1.0 for word in range(VOCAB)]) ** 0.75
    noise = (noise / noise.sum()).double()
    torch.testing.assert_close(model.log_noise().exp().double(), noise, rtol=1e-6, atol=0.0)
    expected = 0.0
    for row, place in ((0, 1), (0, 2), (1, 1), (1, 2)):
        context = model.features(tokens)[row, place]
        scores = (model.target.weight @ context).tolist()
        expected -= -math.log1p(math.exp(-scores[int(tokens[row, place])]))
        expected -= 5 * sum(p * -math.log1p(math.exp(scores[w])) for w, p in enumerate(noise.tolist()))
    objective = ContextSampling(negatives=5)
    assert objective(model, batch, 0)[0]["nll"].item() == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        drawn = [float(objective(model.train(), batch, 0)[0]["nll"]) for _ in range(100)]
    assert sum(drawn) / 100 == pytest.approx(expected, rel=0.05)
    assert len(set(drawn)) > 50


def test_a_run_counts_the_words_of_its_text(tmp_path: Path) -> None:
    """The noise words are drawn by these counts."""
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(LINES * 4), encoding="utf-8")
    settings = [f"data.train={lines}", f"data.valid={lines}", "model.width=4", "model.embed=4", "model.inner=4"]
    run = Run(change(find_recipe("context2vec"), [*settings, "plan.device=cpu"], KINDS), tmp_path / "run")
    (field,) = run.prepared.fields.values()
    counts = {field.tokenizer.pieces([token])[0]: int(count) for token, count in enumerate(run.model.frequency)}
    assert {word: count for word, count in counts.items() if count} == Counter(" ".join(LINES * 4).split())


def test_the_targets_of_a_batch_are_the_words_themselves() -> None:
    task, rows = TASKS["context"], Rows.of([{"text": torch.tensor(ids).numpy()} for ids in ([1, 5, 6, 2], [1, 7, 2])])
    batch = task.collate(rows, {"text": 5}, None)  # type: ignore[arg-type]
    assert batch["tokens"].tolist() == [[BOS, 5, 6, EOS, 0], [BOS, 7, EOS, 0, 0]]
    assert batch["targets"].tolist() == [[IGNORED, 5, 6, IGNORED, IGNORED], [IGNORED, 7, IGNORED, IGNORED, IGNORED]]
    assert batch.counts == {"tokens": 7, "targets": 3}


def test_fill_reads_both_sides(run: Path) -> None:
    """The probabilities are the softmax of context · word + log noise(word), whatever token stands for [MASK]."""
    model = load(run, "cpu")
    (one, other) = fill(model, ["the [MASK] child reads", "a [MASK] room"], top=3)
    ids = torch.tensor(
        [model.target_tokenizer.special_tokens.wrap_target(model.tokenizer.encode("the loud child reads"))]
    )
    module: Any = model.module
    features = module.features(ids)[0, 2]
    torch.testing.assert_close(context_vectors(model, [("the", "child reads")])[0], features)
    logits = module.target.weight @ features + module.log_noise()
    logits[: 1 + max(BOS, EOS, 3)] = -torch.inf  # the special tokens
    best = logits.softmax(0).topk(3)
    assert [guess.token for guess in one.masks[0]] == best.indices.tolist()
    assert [guess.probability for guess in one.masks[0]] == pytest.approx(best.values.tolist(), rel=1e-5)
    assert one.text == f"the {one.masks[0][0].text} child reads"
    assert len(other.masks) == 1
    with pytest.raises(UserError, match="2 times"):
        fill(model, ["[MASK] [MASK]"])


def test_candidates_are_ranked_by_their_cosine_with_the_context(run: Path) -> None:
    model = load(run, "cpu")
    given = [
        Sentence("the", "bright", "student reads", ("clever", "unheardof"), ("sunny", "loud")),
        Sentence("the", "loud", "room", ("unheardof",), ("sunny",)),  # skipped: no good candidate is known
    ]
    found = substitution(model, iter(given))
    context = context_vectors(model, [("the", "student reads")])[0]
    module: Any = model.module
    cosine = {
        word: torch.cosine_similarity(module.target.weight[model.tokenizer.encode(word)[0]], context, dim=0).item()
        for word in ("clever", "sunny", "loud")
    }
    (one,) = found.ranked
    assert one.candidates == tuple(sorted(cosine, key=lambda word: -cosine[word]))
    assert (found.skipped, found.unknown) == (1, 2)
    assert found.mrr == 1 / (one.candidates.index("clever") + 1)
    assert found.chance_mrr == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert found.chance_precision == pytest.approx(1 / 3)


def test_chance_is_the_mean_over_all_orders() -> None:
    orders = list(permutations([True, True, False, False, False]))
    ranks = [1 + order.index(True) for order in orders]
    expected = sum(1 / rank for rank in ranks) / len(orders), sum(rank == 1 for rank in ranks) / len(orders)
    assert _chance(5, 2) == pytest.approx(expected)


def test_the_sentences_of_the_library() -> None:
    found = sentences()
    assert len(found) >= 30
    for one in found:
        assert one.word not in (*one.good, *one.bad)
        assert one.good
        assert one.bad
        assert not set(one.good) & set(one.bad)


def test_the_command_trains_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "lines.txt"
    words = [word for one in sentences()[:3] for word in (*one.good, *one.bad)]
    text.write_text("\n".join(f"{' '.join(words)} {n}" for n in range(60)), encoding="utf-8")
    sizes = ["model.width=4", "model.embed=4", "model.inner=4", "plan.steps=3", "plan.warmup=1", "plan.device=cpu"]
    out = str(tmp_path / "run")
    assert main(["train", "context2vec", f"data.train={text}", *sizes, "--out", out]) == 0
    capsys.readouterr()
    assert main(["eval", out, "--substitution", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["ranked"]) >= 3
    assert 0 < found["chance_mrr"] < 1
    assert main(["eval", out, "--substitution", "--fill"]) == 2
    assert "--substitution" in capsys.readouterr().err


@pytest.mark.parametrize("settings", [{"power": 2.0}, {"inner": 0}, {"cell": "tree"}])
def test_settings_that_do_not_exist(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(settings))):
        Context2vecConfig(**settings)


def test_other_models_do_not_rank_substitutes(language: Path) -> None:
    with pytest.raises(UserError, match="cannot eval --substitution"):
        substitution(load(language, "cpu"))
