"""Readers: hard attention, edits of the weights, and weights with gradient for a loss."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from encoded import pair_batch
from regard.attention import Attention, MultiHead
from regard.decode.fast_layers import _fusable
from regard.errors import UserError
from regard.mask import Mask
from regard.models import BertConfig, ModelConfig, Seq2SeqConfig, TransformerConfig
from regard.readers import Hard, edit
from regard.recording import attentions, intercepted, record, watch
from regard.scores import Dot
from regard.taps import visible_keys
from regard.verbs.loaded import Loaded

SEQ = {"source_vocab": 12, "target_vocab": 12, "width": 8, "embed": 6, "dropout": 0.0}
BATCH = pair_batch([([4, 5, 6, 7, 8], [9, 8, 7]), ([11, 4], [5, 10])])
TRANSLATORS: dict[str, ModelConfig] = {
    "bahdanau": Seq2SeqConfig(**SEQ, decoder="bahdanau"),
    "luong": Seq2SeqConfig(**SEQ, decoder="luong", score="general"),
    "luong-feeding": Seq2SeqConfig(**SEQ, decoder="luong-feeding", score="dot"),
    "transformer": TransformerConfig(source_vocab=12, target_vocab=12, width=8, heads=2, layers=2, inner=8),
}
translators = pytest.mark.parametrize("config", [pytest.param(one, id=name) for name, one in TRANSLATORS.items()])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def first_key(weights: Tensor) -> Tensor:
    """All weight on the first key."""
    return torch.zeros_like(weights).index_fill(-1, torch.tensor(0, device=weights.device), 1.0)


def source_attention(model: nn.Module) -> str:
    return [name for name in attentions(model) if name.endswith(("decoder.attention", "cross.read"))][-1]


def test_an_edited_row_reads_the_value_that_it_names() -> None:
    attention = Attention(Dot())
    q, states = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    plain = attention(q, attention.memory(states))

    def change(weights: Tensor) -> Tensor:
        changed = weights.clone()
        changed[:, 1] = torch.eye(5)[3]
        return changed

    with edit(attention, {"*": change}), record(attention) as tape:
        edited = attention(q, attention.memory(states))
    assert torch.equal(edited[:, 1], states[:, 3])
    torch.testing.assert_close(edited[:, [0, 2]], plain[:, [0, 2]])
    assert torch.equal(tape[""][:, 1], torch.eye(5)[3].expand(2, -1))  # what was really read
    assert torch.equal(attention(q, attention.memory(states)), plain)


@translators
def test_the_rest_of_the_model_reads_the_edited_context(config: ModelConfig) -> None:
    """An edit that puts all weight on one key equals a hook that replaces the output of the attention by its value."""
    model: Any = config.build().double().eval()
    path = source_attention(model)

    def replaced(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return args[1].values[..., :1, :].expand_as(output)

    hook = model.get_submodule(path).register_forward_hook(replaced)
    expected = model(BATCH)
    hook.remove()
    assert (model(BATCH) - expected).abs().max() > 1e-6
    with edit(model, {path: first_key}):
        torch.testing.assert_close(model(BATCH), expected, atol=1e-12, rtol=0.0)


@translators
def test_the_identity_changes_nothing(config: ModelConfig) -> None:
    model: Any = config.build().double().eval()
    with edit(model, {"*": lambda weights: weights}):
        found = model(BATCH)
    torch.testing.assert_close(found, model(BATCH), atol=1e-12, rtol=0.0)


@translators
def test_an_edit_does_not_read_padding(config: ModelConfig) -> None:
    """An even mixture of all keys: the answer of a row does not depend on the length of the others."""
    model: Any = config.build().double().eval()
    with edit(model, {source_attention(model): torch.ones_like}):
        together = model(BATCH)
        alone = model(pair_batch([([11, 4], [5, 10])]))
    torch.testing.assert_close(together[1:, : alone.shape[1]], alone, atol=1e-9, rtol=0.0)


@pytest.mark.parametrize("forbids", ["pairs", "bias"])
def test_an_edit_does_not_read_what_the_mask_forbids(forbids: str) -> None:
    attention, q, states = Attention(Dot()), torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    table = torch.arange(5).expand(3, 5) > 0  # all but the first key
    mask = Mask(pairs=table) if forbids == "pairs" else Mask(bias=torch.zeros(3, 5).masked_fill(~table, -torch.inf))
    with edit(attention, {"*": first_key}):
        assert not attention(q, attention.memory(states), mask).any()
    with edit(attention, {"*": lambda weights: first_key(weights).roll(1, -1)}):
        assert torch.equal(attention(q, attention.memory(states), mask), states[:, 1:2].expand(2, 3, 4))


def test_an_edit_needs_a_module_and_a_tensor() -> None:
    model: Any = TRANSLATORS["luong"].build()
    with (
        pytest.raises(UserError, match=r"edit: a str is no module; give model.module"),
        edit("model", {"*": first_key}),  # type: ignore[arg-type]
    ):
        pass
    with (
        pytest.raises(UserError, match=r"the function of 'decoder.attention' returned None; return a tensor"),
        edit(model, {"decoder.attention": lambda weights: None}),  # type: ignore[dict-item, return-value]
    ):
        model(BATCH)


def test_edits_nest_and_are_removed_after_an_error() -> None:
    attention = Attention(Dot(), reader=Hard()).eval()
    q, memory = torch.randn(2, 3, 4), attention.memory(torch.randn(2, 5, 4))
    more = {"*": lambda weights: weights + 1, "": lambda weights: 10 * weights}
    with suppress(RuntimeError), edit(attention, {"*": lambda weights: 2 * weights}):
        with edit(attention, more):
            found = attention.look(q, memory).weights
        raise RuntimeError
    hard = attention.look(q, memory).weights
    torch.testing.assert_close(found, 10 * (2 * hard + 1))
    assert isinstance(attention.reader, Hard)


def test_a_module_of_several_layers_is_edited_in_each() -> None:
    model = BertConfig(vocab=12, width=8, heads=2, layers=4, groups=1, inner=8).build().eval()
    reads: list[Tensor] = []
    with edit(model, {"*": lambda weights: reads.append(weights) or first_key(weights)}), record(model) as tape:  # type: ignore[func-returns-value]
        model.features(torch.tensor([[4, 5, 6]]))
    assert len(reads) == 4
    assert len(tape) == 4
    assert all(torch.equal(tape[name], first_key(tape[name])) for name in tape)
    assert not intercepted(model)


def test_errors_name_the_pattern_and_the_shape() -> None:
    heads = MultiHead(8, 2)
    with pytest.raises(UserError, match=r"edit: no attention module matches 'raed'"), edit(heads, {"raed": abs}):
        pass
    with pytest.raises(UserError, match=r'is no mapping; .* such as {"\*": function}'):
        edit(heads, torch.relu).__enter__()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"reader=Hard is a class; pass an instance, reader=Hard\(\)"):
        Attention(Dot(), reader=Hard)  # type: ignore[arg-type]
    shapes = r"'read' got weights of shape \(1, 2, 3, 3\) and returned \(1, 2, 3\)"
    with edit(heads, {"read": lambda weights: weights.sum(-1)}), pytest.raises(UserError, match=shapes):
        heads(torch.randn(1, 3, 8))
    assert not intercepted(heads)


def test_hard_attention_reads_one_key() -> None:
    attention = Attention(Dot(), reader=Hard())
    q, states = torch.randn(1, 1, 4), torch.randn(1, 5, 4)
    memory = attention.memory(states, torch.tensor([[True, True, True, True, False]]))
    attention.eval()
    expected = (q @ states.mT)[0, 0, :4].argmax()
    assert torch.equal(attention(q, memory)[0, 0], states[0, expected])
    attention.train()
    look = attention.look(q.expand(1, 20_000, 4), memory)
    assert torch.equal(look.weights.sum(-1), torch.ones(1, 20_000))
    soft = Attention(Dot()).look(q, memory).weights[0, 0]
    torch.testing.assert_close(look.weights.mean(1)[0], soft, atol=0.02, rtol=0.0)
    assert not attention.look(q, memory, Mask(keys=torch.zeros(1, 5, dtype=torch.bool))).weights.any()


@translators
def test_a_loss_on_watched_weights_reaches_the_model(config: ModelConfig) -> None:
    model: Any = config.build().double().eval()
    path = source_attention(model)
    expected = model(BATCH)
    with watch(model, path) as watched, record(model, path) as tape:
        logits = model(BATCH)
    torch.testing.assert_close(logits, expected, atol=1e-12, rtol=0.0)
    weights = watched.weights[path]
    assert weights.shape[-2:] == (BATCH["tokens"].shape[1], BATCH["source"].shape[1])
    assert torch.equal(weights.detach(), tape[path])
    assert list(watched.weights) == [path]
    weights[..., 0].log().sum().backward()
    embeddings = [weight for name, weight in model.named_parameters() if "embedding" in name]
    assert embeddings
    assert all(weight.grad is not None for weight in embeddings)
    assert model.get_submodule(path).watchers == ()


def test_watching_hard_attention_gives_the_distribution_and_the_sample() -> None:
    attention = Attention(Dot(), reader=Hard())
    q = torch.randn(2, 3, 4, requires_grad=True)
    with watch(attention) as watched:
        attention(q, attention.memory(torch.randn(2, 5, 4)))
    sampled = watched.read[""]
    assert torch.equal(sampled.sum(-1), torch.ones(2, 3))
    logp = (watched.weights[""] * sampled).sum(-1).log()  # of the sampled keys: what REINFORCE needs
    logp.sum().backward()
    assert q.grad is not None
    assert q.grad.abs().sum() > 0


def test_compiled_blocks_are_watched_without_compiling_again() -> None:
    torch._dynamo.reset()
    model: Any = TRANSLATORS["transformer"].build()
    for block in model.decoder.blocks:
        block.compile(backend="eager", fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            with watch(model, "decoder.blocks.*.cross.read") as watched:
                model(BATCH)
            assert len(watched.weights) == 2


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
def test_translate_decodes_with_the_edit(decoder: str, beam: int, device: str, translator: Callable[..., Path]) -> None:
    """The search and the pass of teacher forcing after it agree, so no fast step bypassed the edit.

    With a beam of 5, the steps of a CPU use weights reordered for oneDNN; those of a GPU are captured.
    """
    model = regard.load(translator(decoder=decoder), device)
    lines = ["abc cab", "bca a"]
    plain = regard.translate(model, lines, beam=beam)
    with regard.edit(model.module, {"decoder.attention": first_key}):
        edited = regard.translate(model, lines, beam=beam)
    assert len(edited) == len(lines)
    for one, before in zip(edited, plain, strict=True):
        assert one.alignment is not None
        assert one.logps is not None
        assert (one.alignment[:, 0] == 1).all()
        assert one.logp == pytest.approx(one.logps.sum(), rel=1e-4)
        assert abs(one.logp - before.logp) > 1e-3
    assert [one.logp for one in regard.translate(model, lines, beam=beam)] == [one.logp for one in plain]


def test_a_model_with_a_reader_has_no_fast_decoder() -> None:
    module: Any = TRANSLATORS["transformer"].build().eval()
    model = Loaded(Path("tiny"), module, torch.device("cpu"))
    fast = model.decoder
    assert all(map(_fusable, module.decoder.blocks))
    with edit(module, {"decoder.blocks.0.cross.read": first_key}):
        assert model.decoder is module
    assert model.decoder is fast
    module.decoder.blocks[0].cross.read.reader = Hard()
    assert model.decoder is module
    assert [_fusable(block) for block in module.decoder.blocks] == [False, True]


def test_an_edit_knows_which_keys_the_mask_allows() -> None:
    """Also a key whose weight is 0: no logit of a softmax in float32 is 200 below another one and keeps a weight."""
    attention, seen = Attention(Dot()), list[Tensor | None]()
    states = torch.tensor([[[200.0], [0.0], [1.0]]])

    def shown(weights: Tensor) -> Tensor:
        seen.append(visible_keys())
        return weights

    model = nn.ModuleDict({"attention": attention})
    with edit(model, {"*": shown}):
        look = attention.look(torch.ones(1, 3, 1), attention.memory(states), Mask(causal=True))
        attention(torch.ones(1, 3, 1), attention.memory(states))
        floats = Mask(bias=torch.zeros(3, 3).masked_fill(torch.eye(3) > 0, -torch.inf))
        attention(torch.ones(1, 3, 1), attention.memory(states), floats)
    causal, everything, biased = seen
    assert causal is not None
    assert causal.expand(1, 3, 3)[0].equal(torch.ones(3, 3).tril().bool())
    assert look.weights[0, 2, 1] == 0
    assert everything is None
    assert biased is not None
    assert biased.equal(torch.eye(3) == 0)
    assert visible_keys() is None
