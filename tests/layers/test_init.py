"""The first weights: by the depth of their own stack, and not drawn where a file has them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import UserError
from regard.layers.init import SkipInit, init_weights
from regard.layers.transformer import Shape, Stack
from regard.models import BertConfig, GptConfig, ModelConfig, Seq2SeqConfig, TransformerConfig
from regard.objectives import ReplacedTokens
from regard.pretrained.convert import deinterleave_sinusoids
from regard.pretrained.folder import read_model, read_settings, write_model
from regard.recording import record

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "inner": 24, "context": 12}
TRANSLATOR = TransformerConfig(source_vocab=9, target_vocab=9, **SMALL)
CONFIGS: dict[str, ModelConfig] = {
    "gpt": GptConfig(vocab=9, **SMALL),
    "xl": GptConfig(vocab=9, positions="xl", memory=4, shared_biases=True, softmax="adaptive", cutoffs=(4,), **SMALL),
    "relative": GptConfig(vocab=9, positions="relative", score="scaled_dot", tied=False, **SMALL),
    "additive": GptConfig(vocab=9, score="additive", **SMALL),
    "bert": BertConfig(vocab=9, tied=False, outputs=("masked", "pooled", "next"), mask=3, **SMALL),
    "neighbours": BertConfig(vocab=9, embed=8, neighbours=True, **SMALL),
    "transformer": TRANSLATOR,
    "copies": replace(TRANSLATOR, copies=True, positions="t5", shared="all"),
    "seq2seq": Seq2SeqConfig(source_vocab=9, target_vocab=9, width=8, embed=6),
}


def spread(part: torch.nn.Linear) -> float:
    return float(part.weight.detach().std())


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_what_a_block_adds_starts_smaller_by_the_depth_of_its_own_stack(depth: int) -> None:
    torch.manual_seed(1)
    model = TransformerConfig(source_vocab=9, target_vocab=9, **SMALL | {"width": 256}, decoder_layers=depth).build()
    for stack, layers in ((model.encoder, 2), (model.decoder, depth)):
        for block in stack.layers:
            smaller = math.sqrt(2 * layers)
            assert spread(block.attention.out) == pytest.approx(1 / 16 / smaller, rel=0.05)
            expected = math.sqrt(2 / (256 + 24)) / smaller
            assert spread(block.feed.down) == pytest.approx(expected, rel=0.05)
            if block.cross is not None:  # the only news of the source
                assert spread(block.cross.out) == pytest.approx(1 / 16, rel=0.05)


def test_a_block_that_layers_share_starts_smaller_by_their_number_once() -> None:
    torch.manual_seed(1)
    stack = Stack(Shape(**SMALL | {"width": 128, "layers": 8, "groups": 2}), causal=False)
    for deviation, wide in ((0.02, 0.02), (None, 1 / math.sqrt(128))):
        init_weights(stack, deviation)
        for block in stack.blocks:
            assert spread(block.attention.out) == pytest.approx(wide / 4, rel=0.05)
            assert spread(block.attention.qkv) == pytest.approx(wide, rel=0.05)
            assert block.attention.qkv.bias.eq(0).all()


def test_queries_of_a_score_that_is_not_scaled_start_smaller() -> None:
    """So the scores of T5 start as those of scaled attention do."""
    torch.manual_seed(1)
    for score, smaller in (("scaled_dot", 1.0), ("dot", math.sqrt(64))):
        stack = Stack(Shape(**SMALL | {"width": 256, "heads": 4}, score=score), causal=False)
        init_weights(stack)
        queries, keys, values = stack.layers[0].attention.qkv.weight.detach().chunk(3)
        assert float(queries.std()) == pytest.approx(1 / 16 / smaller, rel=0.05)
        assert float(keys.std()) == pytest.approx(1 / 16, rel=0.05)
        assert float(values.std()) == pytest.approx(1 / 16, rel=0.05)


def test_a_mimetic_start_attends_to_equal_tokens_of_both_segments() -> None:
    torch.manual_seed(1)
    tokens, segments = torch.tensor([[4, 5, 6, 7, 8, 4, 9, 10]]), torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    shape = SMALL | {"width": 64, "heads": 4, "positions": "t5", "initial": None, "vocab": 11}
    found = {}
    for mimetic in (False, True):
        model = BertConfig(mimetic=mimetic, **shape).build().eval()
        with record(model, "stack.blocks.0*") as tape:
            model.features(tokens, segments=segments)
        (weights,) = (tape[path] for path in tape)
        found[mimetic] = weights[0].mean(0)[0]  # of the first token, the mean of the heads
    assert found[True].topk(2).indices.sort().values.tolist() == [0, 5]
    assert found[True][5] > 0.25 > found[False][5]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="bert"),
        pytest.param({"initial": None}, id="glorot"),
        pytest.param({"embed": 64, "groups": 1}, id="albert"),
        pytest.param({"heads": 8}, id="narrow-heads"),
        pytest.param({"norm_place": "pre"}, id="pre-norm"),
        pytest.param({"first_position": 2, "segments": 1}, id="roberta"),
    ],
)
def test_two_heads_of_a_neighbour_start_attend_to_the_tokens_before_and_after(settings: dict[str, Any]) -> None:
    torch.manual_seed(1)
    shape = {"width": 128, "heads": 4, "layers": 2, "inner": 64, "context": 128, "vocab": 500}
    tokens = torch.randint(500, (2, 100))
    found = {}
    for neighbours in (False, True):
        model = BertConfig(**shape | settings, neighbours=neighbours).build().eval()
        with record(model, "stack.blocks.0*") as tape:
            model.features(tokens, segments=None)
        weights = tape[next(iter(tape))]  # (B, H, Tq, Tk)
        found[neighbours] = torch.stack(
            [weights[:, 0].diagonal(-1, 1, 2).mean(), weights[:, 1].diagonal(1, 1, 2).mean()]
        )
    assert (found[False] < 0.02).all()
    assert (found[True] > 0.4).all()


def test_the_generator_of_electra_starts_with_neighbour_heads_too() -> None:
    torch.manual_seed(1)
    config = BertConfig(width=128, heads=4, layers=2, inner=64, context=128, vocab=500, embed=64, outputs=("replaced",))
    model = replace(config, neighbours=True).build().eval()
    generator = ReplacedTokens().modules(model, {}).eval()
    tokens = torch.randint(500, (2, 100))
    with record(generator, "stack.blocks.0*") as tape:
        generator(model, tokens, torch.zeros(2, 1, dtype=torch.long), None)
    weights = tape[next(iter(tape))]
    assert weights[:, 0].diagonal(-1, 1, 2).mean() > 0.3 < weights[:, 1].diagonal(1, 1, 2).mean()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="scaled-dot"),
        pytest.param({"score": "dot", "scaled": False, "readout_scale": 0.0, "norm": "rms"}, id="t5"),
        pytest.param({"heads": 2, "decoder_heads": 8}, id="narrow-heads-of-the-decoder"),
        pytest.param({"layers": 4, "groups": 1}, id="shared-layers"),
    ],
)
def test_a_copy_start_predicts_the_tokens_that_it_attends_to(settings: dict[str, Any]) -> None:
    """Each source is read by a start token alone: its tokens are predicted, and others are not."""
    shape = {"width": 256, "heads": 4, "layers": 2, "inner": 64, "source_vocab": 500, "target_vocab": 500}
    source = torch.stack([torch.randperm(499)[:4] + 1 for _ in range(40)])
    found = {}
    for copies in (False, True):
        torch.manual_seed(1)
        model = TransformerConfig(**shape | settings, positions="t5", shared="all", copies=copies).build().eval()
        with record(model, "encoder.blocks.0*") as tape:
            features, _ = model.advance(torch.zeros(40, 1, dtype=torch.long), model.start(source))
        weights = tape[next(iter(tape))]  # (B, H, Tq, Tk)
        logits = model.readout(features)[:, 0]
        ranks = (logits[:, None] > logits.gather(-1, source)[..., None]).sum(-1)  # tokens with a higher probability
        found[copies] = (weights[:, 0].diagonal(-1, 1, 2).mean(), ranks.float().mean())
    assert found[False][0] < 0.5
    assert found[False][1] > 150
    assert found[True][0] > 0.95
    assert found[True][1] < 60


def test_settings_that_do_not_fit_a_copy_start_are_refused() -> None:
    with pytest.raises(UserError, match=r"model.positions=learned: does not fit model.copies=true; set model"):
        TransformerConfig(copies=True, positions="learned", shared="all")
    with pytest.raises(UserError, match=r"model.shared=target: does not fit model.copies=true; set model.shared=all"):
        TransformerConfig(copies=True, positions="t5")


@pytest.mark.parametrize("config", [pytest.param(config, id=name) for name, config in CONFIGS.items()])
def test_a_model_that_was_not_drawn_is_whole_when_its_weights_are_read(config: ModelConfig) -> None:
    drawn = config.build()
    before = torch.get_rng_state()
    with SkipInit():
        model = config.build()
    assert torch.equal(torch.get_rng_state(), before)
    for name, weight in drawn.named_parameters():
        if bool((weight == weight.flatten()[0]).all()):  # set, not drawn: norms, biases
            assert torch.equal(model.get_parameter(name), weight), name
    model.load_state_dict(drawn.state_dict())
    for (name, weight), (_, other) in zip(drawn.named_parameters(), model.named_parameters()):
        assert torch.equal(weight, other), name
    for (name, table), (_, other) in zip(drawn.named_buffers(), model.named_buffers()):
        assert torch.equal(table, other), name


def test_after_it_weights_are_drawn_again() -> None:
    with SkipInit():
        CONFIGS["gpt"].build()
    torch.manual_seed(1)
    first = CONFIGS["gpt"].build()
    torch.manual_seed(1)
    for one, other in zip(first.parameters(), CONFIGS["gpt"].build().parameters()):
        assert torch.equal(one, other)
    assert first.embedding.tokens.weight.std() > 0.01


def test_nothing_is_drawn_where_a_checkpoint_is_read_or_turned(tmp_path: Path) -> None:
    model = GptConfig(vocab=9, activation="gelu-tanh", **SMALL).build()
    write_model(model, tmp_path, {})
    before = torch.get_rng_state()
    read = read_model(tmp_path, read_settings(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)
    for (name, weight), (_, other) in zip(model.named_parameters(), read.named_parameters()):
        assert torch.equal(weight, other), name
    translator = TRANSLATOR.build()
    before = torch.get_rng_state()
    deinterleave_sinusoids(translator)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "setting",
    [{"positions": "t5"}, {"score": "cosine"}, {"heads": 1}, {"embedding": "v.txt"}, {"embedding_norm": False}],
)
def test_a_neighbour_start_names_the_setting_that_does_not_fit(setting: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"model.{next(iter(setting))}=.* add model.neighbours=false"):
        BertConfig(**SMALL | setting, neighbours=True)


def test_a_neighbour_start_of_very_narrow_states_is_an_ordinary_one() -> None:
    model = BertConfig(vocab=9, width=4, heads=2, layers=1, inner=8, neighbours=True).build()
    assert torch.isfinite(model.features(torch.tensor([[1, 2, 3]]))).all()
    assert model.embedding.positions is not None
    assert (model.embedding.positions.weight != 0).all()
