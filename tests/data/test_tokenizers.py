"""Tokenizers: decoding restores text, ids are stable, and no text contains a special token."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models

from regard.data.tokenizers import (
    BOS,
    EOS,
    KINDS,
    PAD,
    SPECIALS,
    UNK,
    SpecialTokens,
    Tokenizer,
    check_vocab,
    rust_unknown_function,
    train_tokenizer,
)
from regard.errors import UserError

LINES = [
    "The ferry leaves at seven, doesn't it?",
    "the Ferry  left (at last) at 7:30!",
    " Où est la gare ?  Là-bas.",
    "<pad> <eos> < pad > < bos > \N{REPLACEMENT CHARACTER}",
    "tabs\tand\nlines",
]
ALPHABET = sorted(set("".join(LINES)))


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(request.param, LINES * 3, vocab=120)


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_characters_restore_any_text(text: str) -> None:
    tokenizer = train_tokenizer("char", [text], vocab=200)
    tokens = tokenizer.encode(text)
    assert len(tokens) == len(text)
    assert tokenizer.decode(tokens) == text
    assert not {PAD, BOS, EOS} & set(tokens)


@pytest.fixture(scope="module")
def characters() -> Tokenizer:
    return train_tokenizer("char", LINES, vocab=120)


@settings(max_examples=60)
@given(text=st.text(max_size=60))
def test_characters_are_encoded_as_the_library_does(characters: Tokenizer, text: str) -> None:
    library = RustTokenizer.from_str(characters.serialize())
    assert characters.encode(text) == library.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def subwords() -> Tokenizer:
    return train_tokenizer("bpe", LINES, vocab=120)


@given(text=st.text(st.sampled_from(ALPHABET), max_size=60))
def test_subwords_restore_text_of_seen_characters(subwords: Tokenizer, text: str) -> None:
    tokens = subwords.encode(text)
    assert subwords.decode(tokens) == text
    assert not {PAD, BOS, EOS} & set(tokens)


@pytest.fixture(scope="module")
def bytewise() -> Tokenizer:
    return train_tokenizer("byte-bpe", LINES * 3, vocab=300)


@given(text=st.text(max_size=60))
@example("")
@example("  η γάτα\t😀👩‍🚀 \x00\x1b\r\n\N{NO-BREAK SPACE} é e\N{COMBINING ACUTE ACCENT} ")
@example("< pad >< bos ><unk> \N{REPLACEMENT CHARACTER}")
def test_bytes_restore_any_text_even_unseen(bytewise: Tokenizer, text: str) -> None:
    tokens = bytewise.encode(text)
    assert bytewise.decode(tokens) == text
    assert not {PAD, BOS, EOS} & set(tokens)


def test_every_byte_is_a_token_and_none_is_unknown(bytewise: Tokenizer) -> None:
    assert bytewise.special_tokens == SpecialTokens(PAD, BOS, EOS)
    assert bytewise.size == 300
    assert train_tokenizer("byte-bpe", [], vocab=10).size == 3 + 256  # the alphabet is always kept
    emoji = train_tokenizer("byte-bpe", [], vocab=10).encode("😀")
    assert len(emoji) == 4
    assert bytewise.pieces(bytewise.encode("at \t😀")) == ["at", "▁", "\\t", "\\xf0", "\\x9f", "\\x98", "\\x80"]
    assert bytewise.decode(bytewise.encode("😀")[:2]) == "\N{REPLACEMENT CHARACTER}"  # a part of a character


def test_words_of_bytes() -> None:
    tokenizer = train_tokenizer("byte-bpe", ["the ferry leaves the ferry"] * 9, vocab=300)
    tokens = tokenizer.encode("the ferry leaves")
    assert tokenizer.pieces(tokens) == ["the", "▁ferry", "▁leaves"]
    assert tokenizer.words(tokens) == [0, 1, 2]


@given(text=st.text(st.sampled_from(ALPHABET), max_size=60))
def test_words_restore_the_words(text: str) -> None:
    tokenizer = train_tokenizer("word", [text, "more"], vocab=120)
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(text.split())


@given(text=st.text(st.sampled_from(ALPHABET), max_size=60))
def test_words_number_the_pieces_as_split_does(subwords: Tokenizer, characters: Tokenizer, text: str) -> None:
    for tokenizer in (subwords, characters):
        tokens = tokenizer.encode(text)
        indices = tokenizer.words(tokens)
        assert len(indices) == len(tokens)
        named = [index for index in indices if index >= 0]
        assert named == sorted(named)
        for index, word in enumerate(text.split()):
            inside = [token for token, owner in zip(tokens, indices) if owner == index]
            assert tokenizer.decode(inside).split() == [word]


def test_words_of_each_kind() -> None:
    text = "at  seven, at"
    char, word, bpe = (train_tokenizer(kind, [text], vocab=100) for kind in KINDS[:3])
    assert char.words(char.encode(text)) == [0, 0, -1, -1, 1, 1, 1, 1, 1, 1, -1, 2, 2]
    assert word.words([BOS, *word.encode(text), EOS, PAD]) == [-1, 0, 1, 2, -1, -1]
    tokens = bpe.encode(text)
    assert bpe.pieces(tokens) == ["▁at", "▁", "▁seven", ",", "▁at"]
    assert bpe.words(tokens) == [0, -1, 1, 1, 2]


def test_pieces_are_printable(tokenizer: Tokenizer) -> None:
    tokens = [PAD, BOS, EOS, UNK, *tokenizer.encode("at\tlast\n")]
    pieces = tokenizer.pieces(tokens)
    assert pieces[:4] == ["<pad>", "<bos>", "<eos>", "!" if tokenizer.kind == "byte-bpe" else "<unk>"]
    assert all(piece.isprintable() and piece and " " not in piece for piece in pieces)


def test_a_space_is_shown_as_a_sign() -> None:
    tokenizer = train_tokenizer("char", ["a b"], vocab=10)
    assert tokenizer.pieces(tokenizer.encode("a b")) == ["a", "␣", "b"]


def test_special_tokens_give_no_text(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("at seven, la gare")
    assert tokenizer.decode([BOS, *tokens, EOS, PAD, PAD]) == tokenizer.decode(tokens)
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode("") == []


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_unseen_characters_are_unk_and_decode_to_a_replacement(kind: str) -> None:
    tokenizer = train_tokenizer(kind, LINES * 3, vocab=120)
    tokens = tokenizer.encode("駅 at")
    assert UNK in tokens
    assert max(tokens) < tokenizer.size
    assert tokenizer.decode(tokens) == "\N{REPLACEMENT CHARACTER} at"


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "word-eos"])
def test_an_unseen_word_is_a_word_of_its_own(kind: str) -> None:
    tokenizer = train_tokenizer(kind, LINES * 3, vocab=120)
    tokens = tokenizer.encode("at 駅 at")
    assert tokenizer.decode(tokens).split() == ["at", "�", "at"]
    assert [word for word in tokenizer.words(tokens) if word >= 0][-1] == 2


def test_words_and_subwords_are_normalised_to_nfc_and_characters_are_not() -> None:
    decomposed, composed = "cafe\N{COMBINING ACUTE ACCENT}", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    char, word, bpe, byte, *_ = (train_tokenizer(kind, [decomposed], vocab=100) for kind in KINDS)
    assert word.encode(composed) == word.encode(decomposed)
    assert bpe.encode(composed) == bpe.encode(decomposed)
    assert char.decode(char.encode(decomposed)) == byte.decode(byte.encode(decomposed)) == decomposed
    assert len(char.encode(decomposed)) == 5


def test_words_may_be_in_lower_case(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("word-lower", ["The END of the end"], vocab=100)
    assert sorted(tokenizer.pieces(range(4, tokenizer.size))) == ["end", "of", "the"]
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.kind == "word-lower"
    assert again.decode(again.encode("THE End")) == "the end"


def test_punctuation_is_split_from_words() -> None:
    tokenizer = train_tokenizer("bpe", ["house house. (house)"] * 9, vocab=100)
    assert tokenizer.pieces(tokenizer.encode("house. (house)")) == ["▁house", ".", "▁(", "house", ")"]


def test_a_batch_equals_each_text_by_itself(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_batch(LINES) == [tokenizer.encode(line) for line in LINES]
    assert tokenizer.encode_batch([]) == []


def test_vocabulary_is_bounded_and_keeps_the_frequent() -> None:
    for kind, lines, kept in (("char", ["aaabbc"], "ab"), ("word", ["at at at it it on"], "at it")):
        tokenizer = train_tokenizer(kind, lines, vocab=6)
        assert tokenizer.size == 6
        assert tokenizer.decode(tokenizer.encode(kept)) == kept
        assert UNK not in tokenizer.encode(kept)
    assert train_tokenizer("bpe", LINES * 3, vocab=70).size == 70
    # The alphabet is always kept, so that decoding restores the text.
    tokenizer = train_tokenizer("bpe", ["abcdefgh"], vocab=5)
    assert tokenizer.decode(tokenizer.encode("cab")) == "cab"


def test_training_is_the_same_in_another_process(tmp_path: Path) -> None:
    script = """if True:
        import sys
        from regard.data.tokenizers import train_tokenizer
        lines = [f"{a} and {b} make {a + b}, or {a * b}." for a in range(30) for b in range(30)]
        for kind in ("char", "word", "bpe", "byte-bpe", "word-eos", "word-lower"):
            train_tokenizer(kind, lines, 300).save(f"{sys.argv[1]}.{kind}.json")
    """
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=True)
    for kind in KINDS:
        assert (tmp_path / f"one.{kind}.json").read_bytes() == (tmp_path / f"two.{kind}.json").read_bytes()


def test_saved_and_loaded_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("an older one")
    tokenizer.save(path)
    again = Tokenizer.load(path)
    assert (again.kind, again.size) == (tokenizer.kind, tokenizer.size)
    assert again.encode_batch(LINES) == tokenizer.encode_batch(LINES)
    assert [p.name for p in tmp_path.iterdir()] == ["tokenizer.json"]  # no temporary file is left


def test_a_failed_save_leaves_the_old_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder: cannot be written"):
        tokenizer.save(tmp_path / "folder")
    with pytest.raises(UserError, match=r"missing.tokenizer\.json: cannot be written"):
        tokenizer.save(tmp_path / "missing" / "tokenizer.json")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_errors_name_files_that_are_not_tokenizers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        Tokenizer.load(path)
    tokenizer.save(path)
    whole = path.read_bytes()
    foreign, renumbered = json.loads(whole), json.loads(whole)
    foreign["pre_tokenizer"] = {"type": "Whitespace"}
    renumbered["model"]["vocab"] = {f"t{i}": i for i in range(5)} | {SPECIALS[UNK]: 5}
    renumbered["model"].pop("merges", None)
    broken = (b"", b"{}", b"[1, 2", b"\xff\xfe\x00", whole[: len(whole) // 2])
    for data in (*broken, json.dumps(foreign).encode(), json.dumps(renumbered).encode()):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"tokenizer\.json"):
            Tokenizer.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_found_in_a_text_and_adds_prefix_and_suffix(kind: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(kind, LINES, vocab=120, mask="[MASK]")
    plain = train_tokenizer(kind, LINES, vocab=120)
    mask = 3 if kind == "byte-bpe" else 4  # the first id after the other special tokens
    assert tokenizer.special_tokens == replace(plain.special_tokens, mask=mask, prefix=BOS, suffix=EOS)
    text = "the [MASK] leaves" if kind == "word-lower" else "The [MASK] leaves"
    tokens = tokenizer.encode(text)
    assert tokens.count(mask) == 1
    assert tokenizer.pieces([mask]) == ["[MASK]"]
    assert tokenizer.decode(tokens) == text
    assert tokenizer.wrap_input(tokens) == [BOS, *tokens, EOS]
    assert plain.special_tokens.wrap_input(tokens) == tokens
    assert [plain.decode([token - 1]) for token in tokens if token > mask] == [
        tokenizer.decode([token]) for token in tokens if token > mask
    ]
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (again.special_tokens, again.encode(text)) == (tokenizer.special_tokens, tokens)
    least = mask + 1 + (256 if kind == "byte-bpe" else 1)
    with pytest.raises(UserError, match=rf"data\.vocab={mask + 1}.*at least {least}\b"):
        train_tokenizer(kind, LINES, vocab=mask + 1, mask="[MASK]")


@pytest.mark.parametrize("mask", [None, "[MASK]"])
def test_bytes_have_the_same_ids_in_transformers(mask: str | None, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = train_tokenizer("byte-bpe", LINES * 3, vocab=300, mask=mask)
    for name, data in ours.files().items():
        (tmp_path / name).write_bytes(data)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*LINES[:3], "", " η γάτα\t😀\x00\x1b  ", *(["the [MASK] leaves", "[MASK]\n"] if mask else [])):
        tokens = ours.encode(text)
        assert theirs(text, add_special_tokens=False).input_ids == tokens
        assert mask or theirs.decode(tokens) == text
    roles = [theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id, theirs.mask_token_id]
    assert roles == [PAD, BOS, EOS, None, ours.special_tokens.mask]
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode_batch(LINES) == ours.encode_batch(LINES)


def test_the_texts_of_unknown_tokens() -> None:
    expected = {
        "char": ["é", "👩", "\u200d", "👧"],
        "word": ["é", "x👩\u200d👧"],
        "bpe": ["é", "👩", "\u200d", "👧"],
        "byte-bpe": [],
    }
    for kind, parts in expected.items():
        tokenizer = train_tokenizer(kind, ["abc x cab ab"], vocab=300)
        text = "ab é x👩\u200d👧 c"
        unk = tokenizer.special_tokens.unk
        assert tokenizer.unknown(text) == [*parts, *["c"] * (kind == "word")]
        assert len(tokenizer.unknown(text)) == sum(token == unk for token in tokenizer.encode(text)), kind


def test_the_text_of_an_unknown_token_has_no_spaces_around_it() -> None:
    unknown = rust_unknown_function(RustTokenizer(models.WordLevel({"<unk>": 0}, "<unk>")))
    assert [unknown(text, 0) for text in (" é ", " ")] == [["é"], [" "]]


def test_unknown_kinds_and_sizes_are_errors() -> None:
    with pytest.raises(UserError, match=r'"chars".*Did you mean "char"'):
        train_tokenizer("chars", LINES, vocab=100)
    with pytest.raises(UserError, match=r"data\.vocab=4.*at least 5"):
        train_tokenizer("word", LINES, vocab=4)
    with pytest.raises(UserError, match=r"data\.vocab=2.*at least 259"):
        train_tokenizer("byte-bpe", LINES, vocab=2)
    assert train_tokenizer("byte-bpe", LINES, vocab=259).size == 259


def test_a_special_token_that_the_model_has_no_row_for(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("char", ["abc"], 60)
    check_vocab(tokenizer, tokenizer.size, tmp_path)
    for bos in (99, True, 1.0):  # config.json may have anything
        odd = replace(tokenizer, special_tokens=replace(tokenizer.special_tokens, bos=bos))
        with pytest.raises(UserError, match=f"its special token `bos` has the id {bos}, but the model's vocabulary 7"):
            check_vocab(odd, tokenizer.size, tmp_path)


def test_no_special_token_but_eos_may_be_generated() -> None:
    whole = SpecialTokens(pad=9, bos=8, eos=2, unk=5, mask=4, prefix=1, suffix=2)
    assert (whole.ids, whole.forbidden) == ((1, 2, 4, 8, 9), (4, 5, 8, 9))
    assert whole.wrap_input([6, 7]) == [1, 6, 7, 2]
    assert whole.wrap_target([6, 7]) == [8, 6, 7, 2]
    one = SpecialTokens(pad=3, bos=3, eos=3)  # GPT-2: one token has all roles
    assert (one.ids, one.forbidden, one.wrap_input([6])) == ((3,), (), [6])
    bare = SpecialTokens(pad=0, bos=None, eos=None)
    assert (bare.ids, bare.forbidden, bare.wrap_target([6])) == ((0,), (0,), [6])


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "byte-bpe"])
def test_the_tokens_of_words_are_those_of_the_text(kind: str) -> None:
    """Also of a tokenizer that reads backward, whose words have their tokens in the order of the text."""
    text = "the heron's nest, the tin roof"
    tokenizer = train_tokenizer(kind, [text], 300)
    expected = tokenizer.encode(text)
    for one in (tokenizer, tokenizer.in_direction("backward")):
        assert [token for word in one.encode_words(text.split()) for token in word] == expected
    (inner,) = tokenizer.encode_words(["nest,"], first=False)
    assert inner == tokenizer.encode_words(text.split())[2]
