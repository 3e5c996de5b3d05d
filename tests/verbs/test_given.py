"""What a caller may give to a verb: any iterable of texts; what is no text is named by its place."""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pytest

from regard.cli.lines import plain
from regard.data.example import Text
from regard.errors import UserError
from regard.verbs import (
    Loaded,
    align,
    answer,
    classify,
    embed,
    fill,
    generate,
    generate_stream,
    in_pieces,
    load,
    neighbours,
    score,
    tag,
    translate,
)
from regard.verbs.embedding import cosines
from regard.verbs.filters import strongest_ngrams
from regard.verbs.given import part_list, text_list
from regard.verbs.labelling import choose, label_sets, rate, similarity
from regard.verbs.occurrences import occurrence_neighbours
from regard.verbs.prompting import Prompt, rank_labels
from regard.verbs.running import score_running
from regard.verbs.scoring import last_words
from regard.verbs.tagging import tag_words, word_tags
from regard.verbs.words import embed_words, iterate_words
from untrained import save_untrained

TEXTS, MASKED = ["a b", "b c a", "c a"], ["a [MASK]", "b [MASK] a"]
PAIRS, CHOICES = [("a b", "b"), ("b c", "c a")], [("a b", "b", "c"), ("b c", "a", "c")]
PROMPT = Prompt("{text} {label}", {"one": "a", "two": "b"})
# By what a verb is called here: the model, the verb, the name of its argument, and items that it reads.
VERBS: dict[str, tuple[str, Callable[..., Any], str, list[Any]]] = {
    "translate": ("translator", translate, "lines", TEXTS),
    "score": ("language", score, "texts", TEXTS),
    "score a translation": ("translator", score, "texts", PAIRS),
    "align": ("translator", align, "pairs", PAIRS),
    "generate": ("language", lambda model, texts: generate(model, texts, limit=2), "prompts", TEXTS),
    "fill": ("pretrain", fill, "texts", MASKED),
    "fill from context": ("language", fill, "texts", MASKED),
    "embed": ("classify", embed, "texts", TEXTS),
    "embed words": ("language", embed_words, "texts", TEXTS),
    "classify": ("classify", classify, "texts", TEXTS),
    "classify pairs": ("pair", classify, "texts", PAIRS),
    "label sets": ("multilabel", label_sets, "texts", TEXTS),
    "rate": ("rate", rate, "texts", TEXTS),
    "similarity": ("similarity", similarity, "pairs", PAIRS),
    "similarity of vectors": ("embed", similarity, "pairs", PAIRS),
    "cosines": ("embed", cosines, "pairs", PAIRS),
    "choose": ("choice", choose, "contexts", CHOICES),
    "tag": ("tag", tag, "texts", TEXTS),
    "word tags": ("tag", word_tags, "texts", TEXTS),
    "tag words": ("tag", tag_words, "sentences", [("a", "b"), ("b", "c")]),
    "answer": ("answer", answer, "questions", [("a b?", "a b c."), ("b?", "c b a.")]),
    "rank labels": ("language", lambda model, texts: rank_labels(model, texts, PROMPT), "texts", TEXTS),
    "last words": ("language", last_words, "texts", TEXTS),
    "running": ("language", lambda model, texts: score_running(model, texts), "examples", TEXTS),
    "n-grams": ("multilabel", strongest_ngrams, "texts", TEXTS),
    "neighbours": ("word2vec", neighbours, "question", ["a", "+", "b"]),
    "occurrences": ("language", lambda model, texts: occurrence_neighbours(model, "*a* b", texts), "texts", TEXTS),
}


@dataclass
class Series:
    """A column of pandas: it has no order of its own but that of its iterator, and a table of indices."""

    items: list[Any]

    def __iter__(self) -> Any:
        return iter(self.items)


FORMS: dict[str, Callable[[list[Any]], Iterable[Any]]] = {
    "tuple": tuple,
    "generator": lambda items: (one for one in items),
    "keys": lambda items: dict.fromkeys(items).keys(),
    "series": Series,
    "array": np.array,
    "rows": lambda items: (one if isinstance(one, str) else iter(one) for one in items),
}


@pytest.fixture(scope="module")
def models(
    translator: Callable[..., Path], language: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Loaded]:
    """Loads a model by its name; the runs of recipes are made when they are first asked for."""
    folder, found = tmp_path_factory.mktemp("given"), dict[str, Loaded]()

    def model(name: str) -> Loaded:
        if name not in found:
            ours = {"translator": translator, "language": lambda: language}
            found[name] = load(ours[name]() if name in ours else save_untrained(name, folder), device="cpu")
        return found[name]

    return model


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", VERBS)
def test_any_iterable_gives_what_a_list_gives(models: Callable[[str], Loaded], verb: str, form: str) -> None:
    name, call, _, items = VERBS[verb]
    if form == "array" and len({len(one) for one in items if not isinstance(one, str)}) > 1:
        pytest.skip("numpy has no rows of several lengths")
    assert plain(call(models(name), FORMS[form](items))) == plain(call(models(name), items))


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_text_is_named_by_its_place_and_its_type(models: Callable[[str], Loaded], verb: str) -> None:
    name, call, argument, items = VERBS[verb]
    for wrong, kind in (
        (None, "is None"),
        (3, "of the type int"),
        (2.5, "of the type float"),
        (b"a", "type bytes"),
    ):
        given = [*items[:1], wrong]
        with pytest.raises(UserError, match=rf"^{argument}\[1\](\[\d\])?={wrong!r}: .*{kind}"):
            call(models(name), given)
    for wrong in (None, 3, b"a b"):
        with pytest.raises(UserError, match=rf"^{argument}={wrong!r}: this is (None|of the type \w+); pass a list"):
            call(models(name), wrong)
    if verb not in ("tag words", "neighbours"):  # a question of neighbours may be one text
        with pytest.raises(UserError, match=rf"^{argument}='a b': this is one text; pass a list of them, such as"):
            call(models(name), "a b")


@pytest.mark.parametrize("verb", [name for name, (_, _, _, items) in VERBS.items() if isinstance(items[0], str)])
def test_a_pair_in_the_place_of_a_text_is_named(models: Callable[[str], Loaded], verb: str) -> None:
    name, call, argument, items = VERBS[verb]
    with pytest.raises(
        UserError, match=rf"^({argument}\[1\]=\('a', 'b'\): this is of the type tuple|text 2: this model s)"
    ):
        call(models(name), [items[0], ("a", "b")])


def test_a_part_that_is_no_text_is_named(models: Callable[[str], Loaded]) -> None:
    with pytest.raises(UserError, match=r"^pairs\[1\]\[0\]=None: this is None; pass a text"):
        cosines(models("embed"), [("a", "b"), (None, "c")])
    with pytest.raises(UserError, match=r"^pairs\[0\]=\('a', 'b', 'c'\): this is no pair; pass \(first, second\)"):
        cosines(models("embed"), [("a", "b", "c")])  # type: ignore[list-item]


def test_the_lines_of_a_file_have_no_ends(models: Callable[[str], Loaded]) -> None:
    model = models("language")
    answers = generate(model, io.StringIO("ab\nba\n"), limit=2)
    assert [one.prompt for one in answers] == ["ab", "ba"]


def test_texts_of_words_may_arrive_in_generators(models: Callable[[str], Loaded]) -> None:
    model = models("language")
    parts = ((text for text in TEXTS[at : at + 2]) for at in (0, 2))
    assert [len(part) for part in iterate_words(model, parts)] == [2, 1]


def test_a_running_text_may_be_strings_or_examples(models: Callable[[str], Loaded]) -> None:
    model = models("language")
    assert score_running(model, iter(["a b ", "c"])) == score_running(model, [Text("a b "), Text("c")])


def test_a_stream_has_one_prompt(models: Callable[[str], Loaded]) -> None:
    with pytest.raises(UserError, match=r"^prompt=\['a'\]: this is of the type list; pass a text"):
        generate_stream(models("language"), ["a"])  # type: ignore[arg-type]


def test_a_member_of_an_enum_is_its_text() -> None:
    class Colour(str, Enum):  # noqa: UP042 (its __str__ is "Colour.RED")
        RED = "red"

    for listed in (text_list, part_list):
        (found,) = listed([Colour.RED])
        assert (found, type(found)) == ("red", str)


@pytest.mark.parametrize("given", [{"question": "a", "passage": "b"}, {"a", "b"}, np.array("a"), b"ab"])
def test_parts_have_an_order(given: Any) -> None:
    with pytest.raises(UserError, match=r"texts\[1\]=.*: this is of the type .*; pass a text, or a tuple of its parts"):
        part_list(["a", given])


def test_the_lines_of_any_open_file_have_no_ends(tmp_path: Path) -> None:
    with NamedTemporaryFile("w+", newline="") as file:
        file.write("a b\r\nc\n")
        file.seek(0)
        assert text_list(file) == ["a b", "c"]


def test_in_pieces_answers_before_all_texts_are_read(models: Callable[[str], Loaded]) -> None:
    model, read = models("translator"), list[str]()

    def endless() -> Iterator[str]:
        while True:
            for line in TEXTS:
                read.append(line)
                yield line

    found = in_pieces(lambda some: translate(model, some), endless(), size=2)
    expected = [one.text for one in translate(model, TEXTS)]
    assert [one.text for one in islice(found, 3)] == expected
    assert len(read) == 4
    lines = in_pieces(lambda some: some, io.StringIO("a b\nc\n"), size=1)
    assert list(lines) == ["a b", "c"]
    with pytest.raises(UserError, match=r"texts='ab': this is one text"):
        next(in_pieces(lambda some: some, "ab"))
