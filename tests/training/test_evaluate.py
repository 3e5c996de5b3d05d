"""Measures of a loaded model, and the estimate of what a recipe would cost."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.batches import Corruption, collate
from regard.data.example import Corpus, LabelledText, Pair, RatedPair, Text
from regard.data.scenes import Scenes
from regard.errors import UserError
from regard.metrics import METRICS
from regard.recipes import Recipe
from regard.tasks import TASKS
from regard.training import estimate as estimate_module
from regard.training import evaluate as evaluate_module
from regard.training.estimate import SavedBytes, estimate
from regard.training.evaluate import Scores, check_evaluation, evaluate, evaluate_step, select_best, truncated
from regard.training.folder import RunState
from regard.training.prepare import prepare
from regard.verbs import align, classify, load

EXAMPLES = [Pair("ab", "xy"), Pair("abc", "xyz"), Pair("b a", "yx", others=("y x",))]


def test_the_loss_is_the_mean_over_all_targets(translator):
    model = load(translator(), "cpu")
    total, count = 0.0, 0
    for example in EXAMPLES:  # one at a time: no padding, no batch
        batch = collate(model.encode([example]), model.task)
        with torch.no_grad():
            total += float(F.cross_entropy(model.module(batch)[0], batch["targets"][0], reduction="sum"))
        count += batch.counts["targets"]
    found = evaluate(model, EXAMPLES, ("loss", "perplexity"), batch_tokens=64).values
    assert found == {"loss": pytest.approx(total / count), "perplexity": pytest.approx(math.exp(total / count))}


def test_texts_are_compared_with_every_accepted_target(translator):
    model = load(translator(), "cpu")
    from regard.verbs.search import translate

    predicted = [one.text for one in translate(model, [example.source for example in EXAMPLES])]
    right = [Pair(example.source, "?", others=(text,)) for example, text in zip(EXAMPLES, predicted)]
    found = evaluate(model, [*right, Pair("abc", "never generated")], ("exact", "word_error", "bleu"))
    assert found.values["exact"] == 0.75
    assert found.values["word_error"] == 0.25
    assert "tok:13a" in found.notes["bleu"]
    assert found.values.keys() == {"exact", "word_error", "bleu"}


def test_looks_are_held_against_gold_links(translator):
    """Links that are exactly where a word's most weight goes give a perfect score; the opposite ones none."""
    model = load(translator(tokens="word"))
    pairs = [("ab ba", "xy yx"), ("a b c", "x y z")]
    aligned = align(model, pairs)
    gold = [Pair(*pair, links=frozenset(one.links)) for pair, one in zip(pairs, aligned)]
    found = evaluate(model, gold, ("alignment", "aer")).values
    assert found["alignment"] == 1.0
    assert found["aer"] == 0.0
    assert found["chance"] == pytest.approx((2 * 1 / 2 + 3 * 1 / 3) / 5)
    wrong = []
    for example in gold:
        every = {(i, j) for i in range(len(example.source.split())) for j in range(len(example.target.split()))}
        wrong.append(Pair(example.source, example.target, links=frozenset(every - example.links)))
    assert evaluate(model, wrong, ("alignment", "aer")).values["alignment"] == 0.0


@pytest.mark.parametrize("metric", ["f1_micro", "f1_macro", "matthews"])
def test_metrics_of_classes_do_not_fit_numbers(metric):
    similarity = Corpus(valid=[RatedPair(("a", "b"), 0.5)])
    check_evaluation(Recipe(metrics=("pearson",)), TASKS["similarity"], similarity, METRICS)
    with pytest.raises(UserError, match=f"metrics={metric}: {metric} does not fit the task similarity"):
        check_evaluation(Recipe(metrics=(metric,)), TASKS["similarity"], similarity, METRICS)


def test_a_recipe_that_needs_regions_is_refused_without_them():
    recipe = Recipe(data=Scenes(), metrics=("pointing", "bleu4"))
    scene = Scenes(train=1, valid=1, test=1).load().valid[0]
    check_evaluation(recipe, TASKS["caption"], Corpus(valid=[scene]), METRICS)
    with pytest.raises(UserError, match="pointing needs the regions of words, and the validation examples have none"):
        check_evaluation(recipe, TASKS["caption"], Corpus(valid=[replace(scene, regions=())]), METRICS)
    with pytest.raises(UserError, match="metrics=pointing,bleu4: pointing does not fit the task translate"):
        check_evaluation(recipe, TASKS["translate"], Corpus(valid=EXAMPLES), METRICS)


def test_links_between_characters_need_tokens_that_are_characters(translator):
    """The unit is the example's, whatever recipe the model is of; words are put together, never cut apart."""
    pair = ("ab ba", "xy yx")
    for unit, tokens in (("char", "char"), ("word", "char"), ("word", "bpe")):
        model = load(translator(tokens=tokens))
        (one,) = align(model, [pair], unit="piece" if unit == "char" else "word")
        found = evaluate(model, [Pair(*pair, links=frozenset(one.links), unit=unit)], ("alignment", "aer")).values
        assert (found["alignment"], found["aer"]) == (1.0, 0.0)
    linked = Pair(*pair, links=frozenset({(0, 0)}), unit="char")
    for tokens in ("bpe", "word"):
        assert evaluate(load(translator(tokens=tokens)), [linked], ("alignment", "aer")).values == {}


def test_the_row_of_a_target_is_its_own(translator, monkeypatch):
    """Each target has all of its weight on the source at its place; the row of eos is left out."""

    def diagonal(model, pairs, batch_tokens):
        return [SimpleNamespace(weights=np.eye(len(target) + 1, len(source))) for source, target in pairs]

    monkeypatch.setattr(evaluate_module, "forced", diagonal)
    links = frozenset({(0, 0), (1, 1), (2, 2)})
    for tokens, unit, pair in (("char", "char", ("abc", "xyz")), ("word", "word", ("ab ba cc", "xy yx zz"))):
        model = load(translator(tokens=tokens), "cpu")
        found = evaluate(model, [Pair(*pair, links=links, unit=unit)], ("alignment", "aer")).values
        assert (found["alignment"], found["aer"]) == (1.0, 0.0)


def test_the_samples_of_a_step_are_spread_over_the_file(translator, recipe, monkeypatch):
    seen = []

    def measured(model, examples, metrics, **options):
        seen.append((list(examples), metrics))
        return Scores({"loss": 1.0})

    monkeypatch.setattr(evaluate_module, "evaluate", measured)
    valid = [Pair(str(number), "x") for number in range(10)]
    evaluate_step(load(translator(), "cpu"), valid, recipe("plan.samples=3"))
    assert seen == [(valid, {"loss"}), ([valid[0], valid[3], valid[6]], {"exact"})]


@pytest.mark.parametrize(
    ("metric", "value", "loss", "better"),
    [
        *(("exact", 0.5, 1.9, True), ("exact", 0.5, 2.0, False), ("exact", 0.5, 2.1, False)),
        *(("exact", 0.6, 9.0, True), ("exact", 0.4, 1.0, False), ("exact", math.nan, 1.0, False)),
        *(("word_error", 0.4, 9.0, True), ("word_error", 0.6, 1.0, False), ("word_error", 0.5, 1.9, True)),
    ],
)
def test_the_best_step_has_the_best_value_and_of_equal_values_the_lower_loss(metric, value, loss, better):
    state = RunState(step=8, evaluated=4, best=0.5, best_loss=2.0, best_step=4)
    found = select_best(state, metric, METRICS[metric], Scores({metric: value, "loss": loss}))
    best = (value, loss, 8, 0) if better else (0.5, 2.0, 4, 1)
    assert (found.best, found.best_loss, found.best_step, found.waited, found.evaluated) == (*best, 8)


def test_examples_past_the_limit_are_counted(translator, language):
    model = load(translator(), long="truncate")
    assert truncated(model, [*EXAMPLES, Pair("a" * 32, "x" * 31)]) == 0
    assert truncated(model, [*EXAMPLES, Pair("a" * 33, "x"), Pair("a", "x" * 33)]) == 2
    assert truncated(model, [Pair("a" * 33, "x" * 33)]) == 1
    speaker = load(language, long="truncate")
    assert truncated(speaker, [Text("a" * 31), Text("a" * 32)]) == 1  # the beginning takes a place


def test_the_attention_is_of_as_many_tokens_as_the_model_reads(translator, monkeypatch):
    seen, real = [], evaluate_module.forced

    def recorded(model, pairs, batch_tokens):
        seen.extend((len(source), len(target)) for source, target in pairs)
        return real(model, pairs, batch_tokens)

    monkeypatch.setattr(evaluate_module, "forced", recorded)
    model = load(translator(), long="truncate")
    room = tuple(model.fields[name].room(model.longest) for name in ("source", "target"))
    lengths = [(3, 2), (room[0] - 1, room[1] - 1), room, (room[0] + 1, room[1] + 1), (90, 90)]
    pairs = [Pair("a" * one, "x" * two, links=frozenset({(0, 0)}), unit="char") for one, two in lengths]
    assert evaluate(model, pairs, ("alignment",)).values.keys() == {"alignment", "chance"}
    assert sorted(seen) == [lengths[0], lengths[1], room, room, room]


def test_a_corruption_is_the_same_at_every_evaluation_and_in_batches_of_any_size(language):
    model = load(language, "cpu")
    examples = [Text("ab" * (1 + number % 6)) for number in range(300)]

    def drawn(batch_tokens: int) -> list[tuple[int, float]]:
        seen = []

        class Seen(Corruption):
            def __call__(self, rows, random):
                seen.append((len(rows), random.random()))
                return rows

        lanes = list(evaluate_module._lanes(model, examples, batch_tokens, Seen()))
        assert {len(lane) for lane in lanes} == {1}
        assert sum(len(batch.rows) for lane in lanes for batch in lane) == len(examples)
        return seen

    assert [rows for rows, _ in drawn(16)] == [128, 128, 44]
    assert len({number for _, number in drawn(16)}) == 3
    assert drawn(16) == drawn(16) == drawn(4096)


def test_what_cannot_be_measured_is_left_out(translator):
    model = load(translator(decoder="once"))
    linked = [Pair("ab", "xy", links=frozenset({(0, 0)}))]
    assert evaluate(model, linked, ("alignment", "aer")).values == {}
    assert evaluate(load(translator(), "cpu"), EXAMPLES, ("aer",)).values == {}
    with pytest.raises(UserError, match="no examples"):
        evaluate(model, [], ("loss",))


def test_classes_are_counted_as_right_or_wrong(classifier):
    model = load(classifier, "cpu")
    texts = ["ab ba", "bca", "cc", "a b c"]
    predicted = [one.label for one in classify(model, texts)]
    examples = [LabelledText(text, label) for text, label in zip(texts, predicted)]
    examples[0] = LabelledText(texts[0], "bad" if predicted[0] == "good" else "good")
    found = evaluate(model, examples, ("loss", "accuracy"), batch_tokens=8).values
    assert found["accuracy"] == 0.75
    batch = collate(model.encode(examples), model.task)
    with torch.no_grad():
        expected = float(F.cross_entropy(model.module(batch), batch["targets"]))
    assert found["loss"] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(UserError, match=r"label 'fine': not a class of the training examples; use one of bad, good"):
        evaluate(model, [LabelledText("ab", "fine")], ("accuracy",))


def test_what_autograd_keeps_is_counted_once():
    x, linear = torch.randn(100, requires_grad=True), torch.nn.Linear(10, 10)
    with (kept := SavedBytes(linear)):
        y = x.exp()  # keeps its result
        y * y.detach().view(10, 10).flatten()  # keeps the same storage, twice
        linear(x.view(10, 10))  # keeps x, and a weight, turned
    assert kept.bytes == 400 + 400


def test_an_estimate_is_timed_on_the_threads_of_the_run(recipe):
    before = torch.get_num_threads()
    try:
        estimate(recipe("plan.threads=3"))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_estimate_ends_at_the_first_limit_of_the_plan(recipe, monkeypatch):
    monkeypatch.setattr(estimate_module, "_try_steps", lambda prepared, trainer, plan: (0.5, 7))  # seconds of a step
    for settings, steps, ends_by in (
        ("plan.steps=1000", 1000, "steps"),
        ("plan.steps=1000 plan.minutes=9", 1000, "steps"),  # 500 seconds
        ("plan.steps=1000 plan.minutes=8", 960, "minutes"),
        ("plan.steps=1000 plan.minutes=0.001", 1, "minutes"),
        ("plan.epochs=2", 8, "epochs"),
        ("plan.epochs=2 plan.minutes=0.03", 4, "minutes"),
    ):
        found = estimate(recipe(*settings.split()))
        assert (found.steps, found.ends_by, found.seconds) == (steps, ends_by, steps * 0.5)
    prepared = prepare(recipe())
    assert (found.parameters, found.counts) == (sum(one.numel() for one in prepared.config.build().parameters()), False)
    assert (found.epoch, found.shapes) == (len(prepared.batches), prepared.batches.shapes)
    assert (found.examples, found.dropped, found.activations_bytes) == (60, 0, 7)
    assert found.gradients_bytes == found.weights_bytes
    assert found.peak_bytes == 2 * found.weights_bytes + found.optimizer_bytes + 7


def test_an_estimate_of_a_large_model_follows_from_a_few_rows(recipe, monkeypatch):
    """No update reads more than an eighth of the rows, or two, and the activations are those of all rows."""
    whole, rows, batches = estimate(recipe()), [], estimate_module.train

    def watched(loss_module, source, plan, *given, **named):
        rows.append(len(source.batch(0).rows))
        return batches(loss_module, source, plan, *given, **named)

    monkeypatch.setattr(estimate_module, "train", watched)
    monkeypatch.setattr(estimate_module, "LARGE", 0)
    found = estimate(recipe())
    assert not whole.extrapolated
    assert found.extrapolated
    most = max(shape[0] for shape in found.shapes)
    assert 1 < max(rows) <= max(2, most // 8) < most
    assert found.activations_bytes == pytest.approx(whole.activations_bytes, rel=0.05)
    assert found.peak_bytes == pytest.approx(whole.peak_bytes, rel=0.05)
    assert found.seconds_per_step > 0


def test_an_estimate_adds_up_and_leaves_no_trace(recipe, tmp_path):
    before = {path.name for path in tmp_path.iterdir()}
    found = estimate(recipe("plan.steps=1000"))
    assert found.weights_bytes == 4 * found.parameters
    assert found.optimizer_bytes >= 2 * found.weights_bytes  # adam's two moments
    assert found.peak_bytes >= 2 * found.weights_bytes + found.optimizer_bytes + found.activations_bytes
    assert found.activations_bytes > 0
    assert found.seconds == pytest.approx(1000 * found.seconds_per_step)
    assert found.epoch > 0
    assert found.shapes
    assert {path.name for path in tmp_path.iterdir()} == before
