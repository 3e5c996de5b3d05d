"""The limits of settings, what follows from settings, and what a model under a head takes over from its body."""

from dataclasses import replace
from math import lcm
from typing import Any

import pytest
import torch

from regard.data.batches import Batch
from regard.errors import UserError
from regard.heads import ClassHeadConfig, MaskedHead, pooled
from regard.layers.kv_cache import AttentionPlan
from regard.layers.tokens import check_capacity, check_length, real_positions
from regard.layers.transformer import Shape, Stack
from regard.models import (
    FAMILIES,
    BertConfig,
    BigramConfig,
    CaptionerConfig,
    GptConfig,
    HeadedConfig,
    LstmnConfig,
    RecurrentLmConfig,
    Seq2SeqConfig,
    StructuredConfig,
    TransformerConfig,
)
from regard.models.parts import parts, source_reads

XL: dict[str, Any] = {"positions": "xl"}
DROPOUTS = ("dropout", "attention_dropout", "feed_dropout", "output_dropout")
ADAPTIVE: dict[str, Any] = {"softmax": "adaptive", "width": 8, "vocab": 20}
# The nearest values on both sides of each limit: a config, settings that it refuses, the setting that the message
# names, and settings that it accepts.
LIMITS: list[tuple[type[Any], dict[str, Any], str, dict[str, Any]]] = [
    *((GptConfig, {name: 0}, name, {name: 4}) for name in ("width", "heads", "layers", "inner", "furthest", "buckets")),
    (GptConfig, {"context": 0}, "context", {"context": 1}),
    *((GptConfig, {name: 1.0}, name, {name: 0.0}) for name in DROPOUTS),
    *((GptConfig, {name: -0.1}, name, {name: 0.99}) for name in DROPOUTS),
    *((GptConfig, {name: "?"}, name, {}) for name in ("activation", "norm", "norm_place", "positions", "score")),
    (GptConfig, {"width": 30}, "heads", {"width": 30, "head_width": 5}),
    (GptConfig, {"layers": 1001, "groups": 1}, "layers", {"layers": 1000, "groups": 1}),
    (GptConfig, {"layers": 4, "groups": 3}, "groups", {"layers": 4, "groups": 2}),
    (GptConfig, {"group_blocks": 2}, "group_blocks", {"group_blocks": 2, "groups": 1}),
    (GptConfig, {"group_blocks": 0, "groups": 1}, "group_blocks", {"group_blocks": 1, "groups": 1}),
    (GptConfig, {"windows": (-1, 3)}, "windows", {"windows": (0, 3)}),
    (GptConfig, {"positions": "t5", "buckets": 3}, "buckets", {"positions": "t5", "buckets": 4}),
    (GptConfig, {"positions": "t5", "furthest": 16}, "furthest", {"positions": "t5", "furthest": 17}),
    (GptConfig, {**XL, "score": "dot"}, "positions", {"score": "dot"}),
    (GptConfig, {"numbers": -1}, "numbers", {"numbers": 0}),
    (GptConfig, {"numbers": 2, "vocab": 20}, "numbers", {"numbers": 2, "vocab": 0}),
    (GptConfig, {"memory": 1}, "memory", {**XL, "memory": 1}),
    (GptConfig, {"clamp": 1}, "clamp", {**XL, "clamp": 1}),
    (GptConfig, {"shared_biases": True}, "shared_biases", {**XL, "shared_biases": True}),
    (GptConfig, {**XL, "memory": -1}, "memory", {**XL, "memory": 0}),
    (GptConfig, {**XL, "clamp": -1}, "clamp", {**XL, "clamp": 0}),
    (GptConfig, {"softmax": "?"}, "softmax", {}),
    (GptConfig, {"cutoffs": (5,)}, "cutoffs", {**ADAPTIVE, "cutoffs": (5,)}),
    (GptConfig, {"divide": 2}, "divide", {**ADAPTIVE, "divide": 2}),
    (GptConfig, {"embed": 4}, "embed", {**ADAPTIVE, "embed": 4}),
    (GptConfig, {"projections": (0,)}, "projections", {**ADAPTIVE, "projections": (0,)}),
    (GptConfig, {**ADAPTIVE, "cutoffs": (20,)}, "cutoffs", {**ADAPTIVE, "cutoffs": (1, 19)}),
    (GptConfig, {**ADAPTIVE, "cutoffs": (5, 5)}, "cutoffs", {**ADAPTIVE, "cutoffs": (5, 6)}),
    (GptConfig, {**ADAPTIVE, "cutoffs": (0,)}, "cutoffs", {**ADAPTIVE, "vocab": 0, "cutoffs": (99,)}),
    (GptConfig, {**ADAPTIVE, "divide": 0}, "divide", {**ADAPTIVE, "divide": 9}),
    (GptConfig, {**ADAPTIVE, "divide": 9, "cutoffs": (5,)}, "divide", {**ADAPTIVE, "divide": 8, "cutoffs": (5,)}),
    (GptConfig, {**ADAPTIVE, "projections": (1,)}, "projections", {**ADAPTIVE, "cutoffs": (5,), "projections": (1,)}),
    (GptConfig, {**ADAPTIVE, "projections": (-1,)}, "projections", {**ADAPTIVE, "projections": ()}),
    (GptConfig, {**ADAPTIVE, "embedding": "a"}, "embedding", {"embedding": "a"}),
    *((BertConfig, {name: -1}, name, {name: 0}) for name in ("vocab", "embed", "segments", "first_position")),
    (BertConfig, {"outputs": ("masked", "?")}, "outputs", {"outputs": ()}),
    (BertConfig, {"outputs": ("next",)}, "outputs", {"outputs": ("pooled", "next")}),
    (BertConfig, {"head_activation": "?"}, "head_activation", {"head_activation": "tanh"}),
    (BertConfig, XL, "positions", {"positions": "relative"}),
    (TransformerConfig, XL, "positions", {"positions": "t5"}),
    (TransformerConfig, {"shared": "?"}, "shared", {"shared": "none", "source_vocab": 3}),
    (TransformerConfig, {"shared": "all", "source_vocab": 3}, "shared", {"shared": "target", "source_vocab": 3}),
    (TransformerConfig, {"shared": "sides", "source_vocab": 3}, "shared", {"shared": "sides"}),
    *((TransformerConfig, {name: -1}, name, {name: 2}) for name in ("decoder_layers", "decoder_heads")),
    (TransformerConfig, {"decoder_inner": -1}, "decoder_inner", {"decoder_inner": 0}),
    (TransformerConfig, {"decoder_heads": 3}, "decoder_heads", {"decoder_heads": 3, "head_width": 8}),
    *((LstmnConfig, {name: 0}, name, {name: 1}) for name in ("width", "embed", "context")),
    (LstmnConfig, {"score": "location"}, "score", {"score": "relative"}),
    *((RecurrentLmConfig, {name: 0}, name, {name: 1}) for name in ("width", "embed", "layers")),
    (RecurrentLmConfig, {"layers": 1001}, "layers", {"layers": 1000}),
    *((RecurrentLmConfig, {"chrono": wrong}, "chrono", {"chrono": 2}) for wrong in (-1, 1)),
    (CaptionerConfig, {"blocks": 1001}, "blocks", {"blocks": 1000}),
    (RecurrentLmConfig, {"tied": True, "embed": 8}, "tied", {"tied": True, "embed": 8, "width": 8}),
    *((StructuredConfig, {name: 0}, name, {name: 2}) for name in ("width", "embed", "layers", "hops", "attention")),
    *((Seq2SeqConfig, {name: 0}, name, {name: 2}) for name in ("width", "embed", "layers", "capacity", "radius")),
    (StructuredConfig, {"width": 3}, "width", {"width": 4}),
    (Seq2SeqConfig, {"coverage": True, "decoder": "every"}, "coverage", {"coverage": True, "decoder": "luong"}),
    (BigramConfig, {"k": -0.1}, "k", {"k": 0.0}),
    (BigramConfig, {"k": 1e6 + 1}, "k", {"k": 1e6}),
    (BigramConfig, {"weight": 1.1}, "weight", {"weight": 1.0}),
    (BigramConfig, {"weight": -0.1}, "weight", {"weight": 0.0}),
    (BigramConfig, {"pairs": -1}, "pairs", {"pairs": 1}),
    (BigramConfig, {"smoothing": "?"}, "smoothing", {"smoothing": "interpolated"}),
]


def test_settings_are_refused_beyond_their_limits_and_accepted_at_them() -> None:
    for config, wrong, name, right in LIMITS:
        with pytest.raises(UserError, match=rf"model\.{name}\b|{name}\b.* need model"):
            config(**wrong)
        config(**right)
    for wrong, name in (({"labels": -1}, "labels"), ({"dropout": 1.0}, "dropout"), ({"dropout": -0.1}, "dropout")):
        with pytest.raises(UserError, match=rf"head\.{name}="):
            ClassHeadConfig(**wrong)


def test_the_name_of_a_score_elsewhere_is_answered_with_its_name_here() -> None:
    for name, here in (("Bahdanau", "additive"), ("dot_product", "dot"), ("Multiplicative", "general")):
        with pytest.raises(UserError, match=rf"model\.score={name}: .* named {here} here"):
            GptConfig(score=name)


def block_weights(config: Any) -> float:
    """The number of weights in the matrices of the blocks of a Transformer: attention and feed-forward layers."""
    stacks = [(config, 1), (config.decoder, 2)] if config.reads_source else [(config, 1)]
    return sum(each.layers * (4 * count * each.width**2 + 2 * each.width * each.inner) for each, count in stacks)


def test_a_resized_transformer_has_a_width_of_whole_heads_and_as_many_weights_as_asked_for() -> None:
    small: dict[str, Any] = {"width": 96, "heads": 6, "layers": 2, "inner": 384}
    for config in (
        GptConfig(**small),
        GptConfig(**small | {"heads": 5, "head_width": 16}),
        BertConfig(**small | {"inner": 203}),
        TransformerConfig(**small),
        TransformerConfig(**small, decoder_heads=16, decoder_layers=5, decoder_inner=104),
    ):
        heads = 1 if config.head_width else lcm(config.heads, getattr(config, "decoder_heads", 0) or config.heads)
        changed = [name for name in ("width", "inner", "decoder_inner") if name in vars(config)]
        for width in (50, 100, 131, 192):
            resized = config.resized(width)
            assert resized == replace(config, **{name: getattr(resized, name) for name in changed})
            assert resized.width % heads == 0
            assert abs(resized.width - width) <= max(heads, 8) / 2
            expected = block_weights(config) * (width / config.width) ** 2
            assert block_weights(resized) == pytest.approx(expected, rel=0.06), (config, width)


def test_a_resized_t5_scales_its_last_states_by_its_width() -> None:
    t5 = replace(FAMILIES["t5"], readout_scale=0.0).resized(176)
    assert (t5.width, t5.readout_factor) == (176, pytest.approx(176**-0.5))


def test_the_widths_of_a_resized_recurrent_model_follow() -> None:
    sizes: dict[str, Any] = {"width": 8, "embed": 6}
    for config, width, expected in (
        (LstmnConfig(**sizes), 5, (5, 5)),
        (LstmnConfig(**sizes), 9, (9, 6)),
        (LstmnConfig(width=8, embed=10), 5, (5, 10)),  # an embedding wider than the states stays
        (RecurrentLmConfig(**sizes), 4, (4, 4)),
        (RecurrentLmConfig(width=8, embed=8, tied=True), 12, (12, 12)),
        (StructuredConfig(**sizes), 5, (6, 5)),
        (Seq2SeqConfig(**sizes), 11, (12, 6)),
        (Seq2SeqConfig(**sizes), 10, (10, 6)),
    ):
        resized = config.resized(width)
        assert (resized.width, resized.embed) == expected
        assert resized == replace(config, width=expected[0], embed=expected[1])


def test_every_encoder_decoder_has_a_form_without_attention() -> None:
    for decoder in ("once", "every", "bahdanau", "luong", "luong-feeding"):
        plain = Seq2SeqConfig(decoder=decoder, layers=2).without_attention()
        assert plain == Seq2SeqConfig(decoder="once", layers=2)
    assert Seq2SeqConfig(coverage=True).without_attention() == Seq2SeqConfig(decoder="once")
    assert GptConfig().without_attention() is None


def test_a_model_under_a_head_has_the_facts_of_its_body() -> None:
    xl = GptConfig(vocab=7, width=12, **XL, memory=3, scaled=True)
    bert = BertConfig(vocab=9, segments=3, first_position=2, context=20, embed=5, embedding="a.txt")
    for body in (xl, bert, LstmnConfig(vocab=4, embedding="b.txt"), GptConfig(vocab=7, context=11, scaled=True)):
        headed = HeadedConfig(body, ClassHeadConfig(3))
        for name in (
            *("width", "longest", "longest_setting", "token_vocab", "embedding", "embedding_width", "embedding_scale"),
            *("segment_kinds", "position_rows", "causal_attention"),
        ):
            assert getattr(headed, name) == getattr(body, name), name
        assert headed.input_embedding == f"body.{body.input_embedding}"
        assert headed.layer_groups[-1] == ("head",)
        assert headed.layer_groups[0][0] == f"body.{body.layer_groups[0][0]}"
        assert (headed.causal, headed.predicts, headed.one_per_text) == (False, ("class",), True)
        assert headed.split() == (body, ClassHeadConfig(3))
        assert headed.resized(2 * body.width).body == body.resized(2 * body.width)
    assert (bert.position_rows, bert.segment_kinds) == (22, 3)
    assert (xl.embedding_scale, xl.longest) == (12**0.5, None)


def test_sizes_of_a_model_under_a_head_are_those_of_its_fields() -> None:
    headed = HeadedConfig(BertConfig(), ClassHeadConfig()).with_sizes({"text": 30, "label": 3}, padded=True)
    assert (headed.head.labels, headed.body.vocab >= 30) == (3, True)
    structured = HeadedConfig(StructuredConfig(), ClassHeadConfig()).with_sizes({"text": 30, "label": 3})
    assert (structured.head.labels, structured.body.labels, structured.body.vocab) == (3, 0, 30)


def test_the_automatic_settings_of_a_class_head_follow_the_body_and_given_ones_stay() -> None:
    gpt, bert = GptConfig(width=8, heads=2), BertConfig(width=8, heads=2)
    for body, expected in ((gpt, ("last", "none", False)), (bert, ("first", "tanh", True))):
        head = ClassHeadConfig(3).for_body(body)
        assert (head.pool, head.hidden, head.bias) == expected
        built = head.build(body)
        assert (built.hidden is not None, built.out.bias is not None) == (body is bert, expected[2])
        for given in (True, False):
            head = ClassHeadConfig(3, pool="mean", hidden="relu", bias=given).for_body(body)
            assert (head.pool, head.hidden, head.bias) == ("mean", "relu", given)
            assert (head.build(body).out.bias is not None) == given


def test_pooling_reads_real_states_only() -> None:
    states = torch.arange(12.0).view(3, 4, 1)
    real = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()
    states[~real] = torch.nan
    expected = {"first": [1.0, 4.0], "last": [2.0, 7.0], "mean": [1.5, 5.5]}
    for pool, values in expected.items():
        found = pooled(states, real, pool)[:, 0]
        assert found[:2].tolist() == values
        if pool == "mean":
            assert found[2] == 0.0  # an empty text
    assert pooled(states[1:2], None, "last").item() == 7.0


def test_the_masked_output_has_an_activation_of_its_own() -> None:
    config = BertConfig(vocab=5, width=4, heads=2, activation="relu")
    x = torch.randn(3, 4)
    for name, function in (("", torch.relu), ("tanh", torch.tanh)):
        head = MaskedHead(replace(config, head_activation=name), 4)
        torch.testing.assert_close(head(x), head.norm(function(head.dense(x))))


def test_outputs_are_built_and_listed_in_their_order() -> None:
    config = BertConfig(vocab=5, width=4, heads=2, layers=1, outputs=("replaced", "pooled"))
    assert config.with_output("masked").outputs == ("masked", "pooled", "replaced")
    assert config.with_output("pooled").outputs == ("pooled", "replaced")
    features = torch.randn(2, 3, 4)
    for outputs, shape in ((("replaced",), (2, 3)), (("masked",), (2, 3, 5)), (("masked", "replaced"), (2, 3, 5))):
        model = replace(config, outputs=outputs).build()
        built = [name for name in ("masked", "pooled", "next", "replaced") if getattr(model, name) is not None]
        assert (tuple(built), model.readout(features).shape) == (outputs, shape)
    with pytest.raises(UserError, match=r"does not predict tokens \(it has: pooled\)"):
        replace(config, outputs=("pooled",)).build().readout(features)
    pooler = replace(config, outputs=("pooled",)).build()
    torch.testing.assert_close(pooler.pool(features), torch.tanh(pooler.pooled(features[:, 0])))


@torch.no_grad()
def test_segments_of_a_batch_reach_the_body() -> None:
    config = HeadedConfig(BertConfig(vocab=5, width=4, heads=2, layers=1), ClassHeadConfig(3))
    model = config.build().eval()
    tokens, real = torch.tensor([[1, 2, 3]]), torch.ones(1, 3, dtype=torch.bool)
    segments = torch.tensor([[0, 1, 1]])
    batch = Batch({"tokens": tokens, "segments": segments}, {"tokens": real}, {"tokens": 3, "targets": 1})
    expected = model.readout(model.features(tokens, real, segments), real)
    assert torch.equal(model(batch), expected)
    assert not torch.equal(expected, model.readout(model.features(tokens, real), real))


def test_each_attention_has_its_part_of_the_model() -> None:
    small: dict[str, Any] = {"width": 4, "heads": 2, "layers": 2, "inner": 4}
    transformer = TransformerConfig(source_vocab=5, target_vocab=5, **small, groups=1).build()
    assert parts(transformer) == {
        "encoder.blocks.0.attention.read": "encoder",
        "decoder.blocks.0.attention.read": "decoder",
        "decoder.blocks.0.cross.read": "cross",
    }
    assert source_reads(transformer) == [f"decoder.blocks.0.cross.read[{turn}]" for turn in range(2)]
    seq2seq = Seq2SeqConfig(source_vocab=5, target_vocab=5, width=4, embed=4).build()
    assert (parts(seq2seq), source_reads(seq2seq)) == ({"decoder.attention": "cross"}, ["decoder.attention"])
    gpt = GptConfig(vocab=5, **small)
    headed = HeadedConfig(gpt, ClassHeadConfig(2)).build()
    assert set(parts(gpt.build()).values()) == set(parts(headed).values()) == {"decoder"}
    assert set(parts(BertConfig(vocab=5, **small).build()).values()) == {"encoder"}
    assert source_reads(headed) == []


def test_texts_and_capacities_may_be_as_long_as_the_table_of_positions() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.long)
    for longest in (None, 5, 6):
        check_length(tokens, longest)
        assert check_capacity(5, 9, longest) == 5
        assert check_capacity(None, 9, longest) == 9
    with pytest.raises(UserError, match=r"a text of 5 tokens .*model\.context=4"):
        check_length(tokens, 4)
    with pytest.raises(UserError, match=r"capacity=5: .*model\.context=4"):
        check_capacity(5, 9, 4)
    real = torch.tensor([[0, 0, 1, 1, 0], [1, 0, 1, 1, 1]]).bool()
    assert real_positions(tokens, real).tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, 2, 3]]
    assert real_positions(tokens, None).tolist() == [[0, 1, 2, 3, 4]]
    for positions in ("learned", "sinusoidal", "sinusoidal-halves", "none", "t5", "relative"):
        config = GptConfig(context=7, positions=positions)
        limited = positions in ("learned", "sinusoidal", "sinusoidal-halves")
        assert (config.longest, config.longest_target, config.position_rows) == ((7 if limited else None),) * 3


@torch.no_grad()
def test_a_stack_ends_with_a_norm_only_if_it_is_pre_norm_and_has_a_last_one() -> None:
    small: dict[str, Any] = {"width": 4, "heads": 2, "layers": 2, "inner": 4}
    x = torch.randn(1, 3, 4)
    for place, last, ends in (
        ("pre", True, True),
        ("pre", False, False),
        ("post", True, False),
        ("post", False, False),
    ):
        stack = Stack(Shape(**small, norm_place=place, last_norm=last), causal=False).eval()
        y = x
        for block in stack.layers:
            y, _ = block(y, AttentionPlan())
        assert (stack.norm is not None) == ends
        torch.testing.assert_close(stack(x), torch.nn.functional.layer_norm(y, (4,)) if ends else y)
    for positions, causal in (("t5", True), ("t5", False), ("learned", True)):
        bias = Stack(Shape(**small, positions=positions), causal).bias
        assert (None if bias is None else bias.both_ways) == (None if positions == "learned" else not causal)


@torch.no_grad()
def test_a_state_of_some_sentences_continues_as_in_the_whole_batch() -> None:
    torch.manual_seed(1)
    small: dict[str, Any] = {"width": 4, "heads": 2, "layers": 1, "inner": 4}
    source, real = torch.randint(1, 5, (3, 4)), torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0]]).bool()
    tokens, more = torch.randint(5, (3, 2)), torch.randint(5, (6,))
    sentences, rows = torch.tensor([1, 2]), torch.tensor([2, 3, 4, 5])
    for config in (
        TransformerConfig(source_vocab=5, target_vocab=5, **small),
        Seq2SeqConfig(source_vocab=5, target_vocab=5, width=4, embed=4),
        Seq2SeqConfig(source_vocab=5, target_vocab=5, width=4, embed=4, decoder="luong-feeding", coverage=True),
        Seq2SeqConfig(source_vocab=5, target_vocab=5, width=4, embed=4, decoder="every"),
        GptConfig(vocab=5, **small),
    ):
        model = config.build().double().eval()
        states = []
        for _ in range(2):  # a step consumes its state
            state = model.start(source, real, rows=3, capacity=9)
            state = model.advance(tokens, state, *[real[:, :2]] * config.takes_padding)[1]
            states.append(state.select(torch.arange(3).repeat_interleave(2)))
        expected, _ = model.step(more, states[0])
        kept = states[1].keep(sentences, rows)
        assert kept.sentences == 2
        torch.testing.assert_close(model.step(more[rows], kept)[0], expected[rows])
