"""Rungs: what is compared, in which size, on which batches, beside which published figures."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from regard.data.sources import Multi30k, Pairs
from regard.errors import UserError
from regard.models import CaptionerConfig, GptConfig, Seq2SeqConfig, TransformerConfig
from regard.recipes import Recipe, find_recipe
from regard.training.ladder.cells import TOLERANCE, cells, fit_size, flops, parameters, with_vocabularies
from regard.training.ladder.rungs import OWN, attentions, published, rungs, select_rungs
from regard.training.prepare import prepare

FAMILIES = [
    *("no attention", "additive", "general", "gnmt", "convs2s", "transformer sinusoidal", "transformer learned"),
    *("transformer 1 head", "transformer 2 heads", "transformer 8 heads"),
]


def test_the_rungs_of_a_recurrent_recipe() -> None:
    found = attentions(Seq2SeqConfig(source_vocab=30, target_vocab=30))
    assert next(iter(found)) == "no attention"
    assert {"dot", "scaled_dot", "general", "additive", "cosine", "location"} < set(found)
    assert "relative" not in found
    assert found["general local-p"].window == "local-p"
    config = Seq2SeqConfig(source_vocab=30, target_vocab=30, width=16)
    assert parameters(config) == sum(weight.numel() for weight in config.build().parameters())


def test_the_rungs_of_a_transformer_differ_in_nothing_that_is_the_budget() -> None:
    recipe = find_recipe("multi30k")
    found = rungs(recipe)
    assert list(found) == FAMILIES
    for rung in found.values():
        budget = {name: value for name, value in asdict(rung.plan).items() if name not in OWN}
        assert budget == {name: value for name, value in asdict(recipe.plan).items() if name not in OWN}
        assert (rung.data, rung.objective, rung.metrics) == (recipe.data, recipe.objective, recipe.metrics)
    recurrent = find_recipe("multi30k-de-en").plan
    assert (found["additive"].plan.schedule, found["additive"].plan.betas) == (recurrent.schedule, recurrent.betas)
    assert found["transformer learned"].plan == recipe.plan
    assert [rung.model.longest for rung in found.values()] == [256] * len(FAMILIES)


def test_numbers_of_heads_are_compared_in_one_width() -> None:
    recipe = find_recipe("multi30k")
    sized = replace(recipe.model, source_vocab=600, target_vocab=600)
    found = {name: with_vocabularies(rung.model, sized) for name, rung in rungs(recipe).items() if "head" in name}
    models = {name: fit_size(name, model, parameters(sized)) for name, model in found.items()}
    assert [model.heads for model in models.values()] == [1, 2, 8]  # the others have 4
    assert {(model.width, parameters(model), flops(model)) for model in models.values()} == {
        (256, parameters(sized), flops(sized))
    }
    odd = replace(recipe, model=replace(recipe.model, width=36, heads=4, inner=36))
    assert [name for name in rungs(odd) if "head" in name] == ["transformer 1 head", "transformer 2 heads"]


def test_operations_are_those_of_the_matrices() -> None:
    """Twice the weights that a token is multiplied with; attention adds a little, embeddings are looked up."""
    vocab, width, embed = 30, 16, 8
    none = Seq2SeqConfig(source_vocab=vocab, target_vocab=vocab, width=width, embed=embed, decoder="once")
    encoder, decoder = 2 * 3 * 8 * (embed + 8), 3 * width * (embed + width)
    assert flops(none) == 2 * (encoder + decoder + width * vocab) + 2 * width * width // 16  # one bridge for 16 tokens
    attending = replace(none, decoder="luong", score="dot")
    assert flops(attending) == flops(none) + 2 * 2 * width * width + 2 * 2 * 16 * width  # [c; h], q·k and the values
    assert flops(GptConfig(vocab=vocab)) is None
    assert flops(CaptionerConfig(image=32, target_vocab=vocab, width=8, embed=8)) is None


def test_choosing_rungs() -> None:
    found = rungs(find_recipe("dates"))
    assert list(select_rungs(found, ["general-local-p", " no attention"])) == ["no attention", "general local-p"]
    with pytest.raises(UserError, match=r"--rungs addtive.*additive"):
        select_rungs(found, ["addtive"])
    with pytest.raises(UserError, match="regard ladder dates"):
        rungs(find_recipe("text"))


@pytest.mark.parametrize("width", [32, 128, 256])
def test_multi30k_in_one_size(width: int) -> None:
    recipe = find_recipe("multi30k")
    assert isinstance(recipe.model, TransformerConfig)
    recipe = replace(recipe, model=replace(recipe.model, width=width, inner=4 * width))
    sized = replace(recipe.model, source_vocab=6000, target_vocab=6000)
    target = parameters(sized)
    for name, rung in rungs(recipe).items():
        model = fit_size(name, with_vocabularies(rung.model, sized), target)
        assert abs(parameters(model) / target - 1) < (0.02 if width > 32 else TOLERANCE)
        assert model.width % (8 if width == 256 else 2) == 0
        assert with_vocabularies(model) == replace(model, source_vocab=0, target_vocab=0)
        if isinstance(model, Seq2SeqConfig):
            assert model.embed <= model.width  # whatever the vocabulary takes up


def test_widths_suit_a_gpu_where_that_is_near_enough() -> None:
    config = Seq2SeqConfig(source_vocab=90, target_vocab=90, width=200, embed=64)
    assert fit_size("additive", replace(config, width=10), parameters(config)) == config
    between = fit_size("additive", config, parameters(replace(config, width=206)))
    assert isinstance(between, Seq2SeqConfig)
    assert (between.width, between.embed) == (208, 64)
    narrow = fit_size("additive", replace(config, width=30, embed=64), parameters(replace(config, width=28, embed=64)))
    assert isinstance(narrow, Seq2SeqConfig)
    assert (narrow.width, narrow.embed) == (28, 64)  # so narrow it was asked for
    small = replace(config, width=36, embed=8)
    assert fit_size("additive", small, parameters(small)) == small  # 32 and 40 are too far


@pytest.mark.parametrize(
    "settings",
    [
        {"width": 32, "heads": 4, "inner": 64},
        {"width": 64, "heads": 16, "inner": 100},
        {"width": 18, "heads": 3, "inner": 7},
        {"width": 96, "heads": 4, "decoder_heads": 6, "decoder_inner": 50, "inner": 200},
        {"width": 40, "heads": 2, "head_width": 24, "inner": 80},
    ],
)
@pytest.mark.parametrize("target", [150_000, 400_000])
def test_a_transformer_of_any_shape_keeps_its_heads(settings: dict[str, int], target: int) -> None:
    config = TransformerConfig(source_vocab=90, target_vocab=90, layers=1, **settings)  # type: ignore[arg-type]
    found = fit_size("transformer", config, target)
    assert isinstance(found, TransformerConfig)
    assert abs(parameters(found) / target - 1) <= TOLERANCE
    assert (found.heads, found.decoder_heads, found.layers) == (config.heads, config.decoder_heads, 1)
    assert found.head_width or found.width % found.heads == 0
    before, after = config.inner / config.width, found.inner / found.width
    assert 0.5 < after / before < 2


def test_a_model_already_of_that_size_stays() -> None:
    config = TransformerConfig(source_vocab=50, target_vocab=50, width=30, heads=3, layers=1, inner=31)
    assert fit_size("transformer", config, parameters(config)) == config


def test_every_rung_sees_the_same_batches(tmp_path: Path) -> None:
    words = ["".join(chr(97 + (5 * i + j) % 7) for j in range(1 + i % 9)) for i in range(80)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words), encoding="utf-8")
    data = Pairs(train=str(tmp_path / "pairs.tsv"), source_tokens="char", target_tokens="char")
    model = TransformerConfig(width=24, heads=2, layers=1, inner=48, context=32)
    recipe = replace(find_recipe("translate"), data=data, model=model)
    todo = cells(recipe, rungs(recipe), 2, tmp_path / "out")
    assert [cell.seed for cell in todo] == [recipe.plan.seed] * 10 + [recipe.plan.seed + 1] * 10
    assert len({cell.result for cell in todo}) == 20
    first = [prepare(cell.recipe).batches for cell in todo[:7]]  # the others differ in heads alone
    for other in first[1:]:
        for n in range(4):
            assert torch.equal(first[0].batch(n)["targets"], other.batch(n)["targets"])


@pytest.mark.parametrize(
    ("source", "target", "rung", "figure"),
    [
        ("en", "de", "additive", 38.0),
        ("en", "fr", "transformer sinusoidal", 61.8),
        ("de", "en", "no attention", 20.6),
    ],
)
def test_published_figures_say_that_they_are_not_sacrebleu(source: str, target: str, rung: str, figure: float) -> None:
    recipe: Recipe = replace(find_recipe("multi30k"), data=Multi30k(source=source, target=target, joint=True))
    found = published(recipe)
    assert found is not None
    assert found.figures[rung] == figure
    assert "not sacreBLEU" in found.note
    assert set(found.figures) <= set(rungs(recipe))
    assert published(find_recipe("dates")) is None
    if source == "en":
        assert found.elsewhere is not None
        assert "not comparable" in found.elsewhere.title
        assert ["GNMT + RL", "24.6", "39.92"] in list(found.elsewhere.rows)
