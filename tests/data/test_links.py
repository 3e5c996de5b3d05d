"""Gold links: between characters or words, and between the tokens of a batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batches import Batches, collate
from regard.data.corruption import token_links
from regard.data.example import Pair
from regard.data.fields import Field, InputText, LinkField, TargetText, encode
from regard.data.flat import Rows
from regard.data.sources import Pairs
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.tasks import TASKS

WORDS = [
    Pair("the owl sat", "le hibou", frozenset({(0, 0), (1, 1)})),
    Pair("owl", "hibou assis", frozenset({(0, 0), (0, 1)})),
    Pair("the sat", "assis", None),
]
CHARS = [Pair("abc", "xy", frozenset({(0, 0), (2, 0), (1, 1)}), unit="char")]


def fields_of(pairs: list[Pair], tokens: str) -> dict[str, Field]:
    texts = [[pair.source for pair in pairs], [pair.target for pair in pairs]]
    source, target = (train_tokenizer(tokens, each, 60) for each in texts)
    links = LinkField.fit([pair.alignment for pair in pairs], "alignment", Pairs())
    return {"source": InputText(source), "target": TargetText(target), "alignment": links}


def batch_of(pairs: list[Pair], tokens: str):
    fields = fields_of(pairs, tokens)
    columns = encode(fields, pairs)
    rows = Rows.of([{name: column[n] for name, column in columns.items()} for n in range(len(pairs))])
    return collate(token_links(fields)(rows, np.random.default_rng(0)), TASKS["aligned"])


def test_links_between_characters_are_links_between_their_tokens() -> None:
    batch = batch_of(CHARS, "char")
    assert batch["alignment"][0].tolist() == [[0.5, 0, 0.5], [0, 1, 0], [0, 0, 0]]  # x, y, eos
    assert batch.counts["alignment"] == 2


def test_links_between_words_are_links_between_words() -> None:
    batch = batch_of(WORDS, "word")
    assert batch["alignment"][0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert batch["alignment"][1].tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert not batch["alignment"][2].any()  # not aligned
    assert batch.counts["alignment"] == 4


@pytest.mark.parametrize("tokens", ["bpe", "byte-bpe", "char"])
def test_every_token_of_a_word_has_the_links_of_the_word(tokens: str) -> None:
    pairs = WORDS[:1]
    source, target = (
        each.tokenizer for each in fields_of(pairs, tokens).values() if isinstance(each, InputText | TargetText)
    )
    columns, rows = (t.words(t.encode(text)) for t, text in ((source, pairs[0].source), (target, pairs[0].target)))
    gold = batch_of(pairs, tokens)["alignment"][0]
    assert gold.shape == (len(rows) + 1, len(columns))
    for row, word in enumerate(rows):
        linked = torch.tensor([float(column == word >= 0) for column in columns])  # word n is linked to word n
        torch.testing.assert_close(gold[row], linked / linked.sum().clamp_min(1))
    assert not gold[-1].any()


def test_batches_have_filler_rows_without_links() -> None:
    fields = fields_of(WORDS, "word")
    batches = Batches(encode(fields, WORDS * 3), TASKS["aligned"], 64, 1, corruption=token_links(fields))
    for step in range(len(batches)):
        batch = batches.batch(step)
        assert batch.counts["alignment"] == int((batch["alignment"].sum(-1) > 0).sum())
        assert not batch["alignment"][torch.tensor(batch.rows) < 0].any()


def test_the_field_is_saved_and_loaded(tmp_path: Path) -> None:
    field = LinkField.fit([None, CHARS[0].alignment], "alignment", Pairs())
    field.save(tmp_path / "alignment.json")
    assert LinkField.load(tmp_path / "alignment.json") == field == LinkField("char")
    (tmp_path / "alignment.json").write_text("{}")
    with pytest.raises(UserError, match=r"alignment.json: not the links of a run"):
        LinkField.load(tmp_path / "alignment.json")


def test_links_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(UserError, match="no example with gold links"):
        LinkField.fit([None, None], "alignment", Pairs())
    with pytest.raises(UserError, match="links between chars and between words"):
        LinkField.fit([CHARS[0].alignment, WORDS[0].alignment], "alignment", Pairs())
    with pytest.raises(UserError, match="links between words, but training had links between chars"):
        LinkField("char").encode([WORDS[0].alignment])
    words, chars = fields_of(CHARS, "word"), fields_of(CHARS, "char")
    for name in ("source", "target"):
        message = rf"data.{name}_tokens=word: the links of the data join characters; set data.{name}_tokens=char"
        with pytest.raises(UserError, match=message):
            token_links({**chars, name: words[name]})
    for tokens in ("word", "bpe", "char"):  # links between words fit all tokens
        token_links(fields_of(WORDS, tokens))
