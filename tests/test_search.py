"""Search with the special tokens of any tokenizer: a sentence may end with id 0, which is also what idle rows say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.data.fields import TargetText
from regard.data.tokenizers import SpecialTokens
from regard.verbs import load, score, translate

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
