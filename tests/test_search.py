"""Translate: with the special tokens of any tokenizer, with any model, and its decoder."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard import Attention, Memory, Penalty, UserError
from regard.data.fields import TargetText
from regard.data.tokenizers import SpecialTokens
from regard.layers.product import Product
from regard.models import Facts
from regard.models.causal import Causal
from regard.scores import Dot
from regard.verbs import export, generate, load, score, translate
from regard.verbs.forced import forced

LINES = ["ab ba", "c", "abc cab bca", ""]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    "special_tokens",
    [
        SpecialTokens(pad=6, bos=6, eos=0, unk=3, suffix=0),
        SpecialTokens(pad=0, bos=0, eos=5, unk=3, prefix=4, suffix=5),
    ],
    ids=["marian", "both ways"],
)
def test_the_search_uses_the_special_tokens_of_the_tokenizer(
    translator: Callable[..., Path], special_tokens: SpecialTokens, beam: int
) -> None:
    model = load(translator(decoder="bahdanau"))
    fields = {
        name: replace(field, tokenizer=replace(field.tokenizer, special_tokens=special_tokens))  # type: ignore[attr-defined, type-var]
        for name, field in model.fields.items()
    }
    model = replace(model, fields=fields)
    found = translate(model, LINES, beam=beam, limit=9)
    assert [one.line for one in found] == [0, 1, 2, 3]
    for one, line in zip(found[:3], LINES):
        assert len(one.tokens) + (one.ended == "end") <= 9
        assert not {special_tokens.eos, *special_tokens.forbidden, special_tokens.unk} & set(one.tokens)
        assert one.logps is not None
        assert len(one.logps) == len(one.tokens) + (one.ended == "end")
        assert one.logp == pytest.approx(float(np.sum(one.logps)), abs=1e-4)  # as a forced pass has it
        assert one.alignment is not None
        assert one.alignment.shape == (len(one.tokens), len(line))  # of the text, not of its special tokens
        assert one.alignment.sum() < len(one.tokens)  # some of the looks went there
    (alone,) = translate(model, LINES[1:2], beam=beam, limit=9)
    assert (alone.tokens, alone.logp) == (found[1].tokens, pytest.approx(found[1].logp, abs=1e-5))


def test_a_vocabulary_without_begin_and_end_is_scored_from_its_second_token(language: Path) -> None:
    model = load(language)
    tokenizer = replace(model.target_tokenizer, special_tokens=SpecialTokens(pad=0, bos=None, eos=None))
    bare = replace(model, fields={"text": TargetText(tokenizer)})
    (scored,) = score(bare, ["ab c"])
    assert scored.pieces == ["b", "␣", "c"]
    assert scored.logps.shape == (3,)
    assert scored.total < 0


@dataclass(eq=False)
class InPlaceState:
    """A state that its model writes into, as `decode.State` allows."""

    summed: Tensor  # (R, W)
    memory: Memory

    def select(self, rows: Tensor) -> "InPlaceState":
        return replace(self, summed=self.summed[rows])


class InPlace(Causal):
    """A translator from outside the library: the state is a decaying sum of target embeddings, which attends."""

    def __init__(self, config: "InPlaceConfig") -> None:
        super().__init__()
        self.config = config
        self.source, self.target = (nn.Embedding(size, 16) for size in (config.source_vocab, config.target_vocab))
        self.attention, self.out = Attention(Dot()), nn.Linear(16, config.target_vocab)

    def start(
        self, source: Tensor, source_real: Tensor | None = None, rows: int | None = None, capacity: int | None = None
    ) -> InPlaceState:
        x = self.source(source)
        return InPlaceState(x.new_zeros(len(x), 16), Memory(x, x, source_real))

    def advance(self, tokens: Tensor, state: InPlaceState) -> tuple[Tensor, InPlaceState]:
        features = []
        for column in tokens.unbind(1):
            state.summed.mul_(0.7).add_(self.target(column))
            queries = state.summed.clone().view(len(state.memory.keys), -1, 16)
            features.append(self.attention(queries, state.memory).reshape(len(tokens), -1) + state.summed)
        return torch.stack(features, 1), state

    def product(self, features: Tensor) -> Product:
        return Product(features, self.out.weight, self.out.bias)


@dataclass(frozen=True)
class InPlaceConfig(Facts):
    causal: ClassVar[bool] = True
    reads_source: ClassVar[bool] = True
    predicts: ClassVar[tuple[str, ...]] = ("target",)
    longest: ClassVar[None] = None
    width: ClassVar[int] = 16
    source_vocab: int = 0
    target_vocab: int = 0

    @property
    def token_vocab(self) -> int:
        return self.target_vocab

    def build(self) -> InPlace:
        return InPlace(self)


@pytest.mark.parametrize(("beam", "nbest"), [(1, 1), (3, 2)])
def test_alignments_and_log_probabilities_are_those_of_teacher_forcing(
    translator: Callable[..., Path], beam: int, nbest: int
) -> None:
    """For a model of ours, and for one from outside whose steps write into their state."""
    ours = load(translator(decoder="luong-feeding"), "cpu")
    sizes = [tokenizer.size for tokenizer in (ours.source_tokenizer, ours.target_tokenizer) if tokenizer]
    outside = replace(ours, module=InPlaceConfig(*sizes).build().eval(), recipe=None)
    for model in (ours, outside):
        found = translate(model, LINES[:3], beam=beam, nbest=nbest, limit=8)
        looks = forced(model, [(one.source_tokens, one.tokens) for one in found])
        assert len(found) == 3 * nbest
        for one, look in zip(found, looks):
            assert one.alignment is not None
            np.testing.assert_allclose(one.alignment, look.weights[: len(one.tokens)], atol=1e-5)
            np.testing.assert_allclose(one.logps, look.logps[: len(one.logps)], atol=1e-4)


def test_the_decoder_is_made_again_when_the_weights_change(translator: Callable[..., Path]) -> None:
    model = load(translator(), "cpu")
    first = model.decoder
    assert model.decoder is first
    weight = next(model.module.parameters())
    weight.data = weight.data * 0.5  # a new tensor, which torch does not count as a change
    second = model.decoder
    assert second is not first
    with torch.no_grad():
        weight.mul_(2.0)
    assert model.decoder is not second


def test_rounded_weights_are_not_exported(translator: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="loaded in bf16, which rounds its weights; load it with precision="):
        export(load(translator(), "cpu", precision="bf16"), tmp_path / "out")


def test_greedy_decoding_refuses_a_coverage_penalty(translator: Callable[..., Path], language: Path) -> None:
    with pytest.raises(UserError, match=r"coverage=0\.5 with beam=1: greedy decoding ranks nothing"):
        translate(load(translator()), LINES, penalty=Penalty(coverage=0.5))
    with pytest.raises(UserError, match=r"coverage=0\.5 with beam=1: greedy decoding ranks nothing"):
        generate(load(language), ["a"], penalty=Penalty(coverage=0.5))
