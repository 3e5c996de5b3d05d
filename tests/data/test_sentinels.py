"""Tokenizers with sentinels, which stand for hidden spans of a text."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.example import Text
from regard.data.fields import SENTINELS, InputText, SpanSource, SpanTarget, TargetText, encode, fit_fields
from regard.data.sources import Lines
from regard.data.tokenizers import KINDS, Tokenizer, check_vocab, sentinel, train_tokenizer
from regard.errors import UserError
from regard.objectives import SpanCorruption
from regard.tasks import TASKS

TEXTS = ["the grey heron stood in the shallow water", "a lantern swung above the door"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word-eos"])
@pytest.mark.parametrize("mask", [None, "[MASK]"])
def test_sentinels_have_ids_of_their_own_and_are_found_in_a_text(kind: str, mask: str | None, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(kind, TEXTS, 400, mask=mask, sentinels=7)
    tokenizer.save(tmp_path / "tokenizer.json")
    for one in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        sentinels = one.special_tokens.sentinels
        assert one.pieces(sentinels) == [sentinel(number) for number in range(7)]
        assert (one.special_tokens.mask is None) == (mask is None)
        assert set(sentinels) <= set(one.special_tokens.ids)
        ids = one.encode(f"the {sentinel(0)} heron {sentinel(1)} in")
        assert [token for token in ids if token in sentinels] == list(sentinels[:2])
        assert one.decode(ids) == f"the {sentinel(0)} heron {sentinel(1)} in"


def test_a_text_is_encoded_as_without_sentinels() -> None:
    plain, other = train_tokenizer("bpe", TEXTS, 60), train_tokenizer("bpe", TEXTS, 160, sentinels=100)
    for text in TEXTS:
        assert plain.pieces(plain.encode(text)) == other.pieces(other.encode(text))


def test_exported_sentinels_are_special_tokens_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer("bpe", TEXTS, 200, sentinels=100)
    for name, content in tokenizer.files().items():
        (tmp_path / name).write_bytes(content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = f"the {sentinel(0)} heron"
    assert theirs(text)["input_ids"] == tokenizer.encode(text)
    assert sentinel(99) in theirs.all_special_tokens
    assert theirs.mask_token is None


def test_sentinels_past_the_vocabulary_of_a_model_are_refused() -> None:
    tokenizer = train_tokenizer("char", ["ab"], 60, sentinels=10)
    with pytest.raises(UserError, match=r"`sentinels` has the id 6, .* vocabulary 6"):
        check_vocab(tokenizer, 6, Path("run"))


def test_source_and_target_share_a_tokenizer_and_targets_are_made_later() -> None:
    fields = fit_fields(TASKS["infill"].fields, [Text(text) for text in TEXTS], Lines(tokens="char"))
    source, target = fields["source"], fields["target"]
    assert isinstance(source, SpanSource)
    assert isinstance(target, SpanTarget)
    assert source.tokenizer is target.tokenizer
    assert len(source.tokenizer.special_tokens.sentinels) == SENTINELS
    columns = encode(fields, [Text(text) for text in TEXTS])
    assert columns["source"].lengths.tolist() == [len(text) for text in TEXTS]
    assert columns["target"].lengths.tolist() == [0, 0]
    assert columns["source"].values.dtype == np.uint16


@pytest.mark.parametrize("sentinels", [0, 1])
def test_a_tokenizer_without_sentinels_is_refused(sentinels: int) -> None:
    tokenizer = train_tokenizer("char", TEXTS, 60, sentinels=sentinels)
    with pytest.raises(
        UserError,
        match=r"no sentinels \(<extra_id_0>, .*; take one that has them.* or leave from= and data.tokenizer= out",
    ):
        SpanCorruption().corruption({"source": InputText(tokenizer), "target": TargetText(tokenizer)})


def test_the_special_tokens_around_source_and_target_stay() -> None:
    tokenizer = train_tokenizer("char", TEXTS, 60, mask="[MASK]", sentinels=4)
    made = SpanCorruption(part=0.3, span=2.0).corruption(
        {"source": InputText(tokenizer), "target": TargetText(tokenizer)}
    )
    assert (made.before, made.after, made.begin, made.end) == (1, 1, (1,), (2,))
    assert (made.fraction, made.span, made.sentinels) == (0.3, 2.0, tokenizer.special_tokens.sentinels)


@pytest.mark.parametrize(
    ("settings", "found"),
    [({"part": 0.0}, "part=0.0: give more than 0"), ({"part": 1.0}, "part=1.0"), ({"span": 0.5}, "span=0.5: give 1")],
)
def test_settings_without_sense_are_refused(settings: dict[str, float], found: str) -> None:
    with pytest.raises(UserError, match=f"objective.{found}"):
        SpanCorruption(**settings)
