"""Public tokenizers: the ids are those of `transformers`, on awkward text and from every kind of file."""

import gzip
import io
import json
import lzma
import os
import random
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers as rust
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.data.fields import read_tokenizer
from regard.data.joined import JoinedText
from regard.data.public_builders import read_sentencepiece
from regard.data.public_tokenizers import read_tokenizers
from regard.data.tokenizers import SpecialTokens, check_vocab, train_tokenizer
from regard.errors import UserError

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

AWKWARD = [
    "",
    " ",
    "\n\n\n",
    "The ferry leaves at seven, doesn't it?",
    "  doubled  spaces   and some behind  ",
    "a tab\tand lines\nof both\r\nkinds",
    "\x00control\x07 \x1bcharacters\x7f\x85",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 ferry😀",
    "Το πλοίο φεύγει στις επτά, Ἑλλάς",
    "العبّارة تغادر في السابعة",
    "渡し船は七時に出る 七点开船 배가 떠난다",
    "cafe\N{COMBINING ACUTE ACCENT} café CAFÉ n\N{LATIN SMALL LETTER I WITH DIAERESIS}ve e\u0301\u0302\u0303",
    "ﬁ ｆｕｌｌ ① ½ İstanbul ß ẞ",
    "a\u00a0b\u3000c\u200bd\u2028e\ufefff",
    "seven" * 60 + " end",
    "x" * 150,
    "``quoted'' \"text\" ▁under ▁ line",
    "1,000,000 and 9, (brackets) [more] A.B.C.",
    "नमस्ते กรุงเทพ",
    "The [MASK] left. <mask> [CLS] [SEP] </s> <s> <pad> <|endoftext|> <unk> [UNK] <extra_id_0> <extra_id_12>!",
    " <mask> [MASK]  <extra_id_99>",
    ">>fra<< The ferry leaves.",
    ">>no such code<< ferry",
]
WORDS = ["the", "ferry", "leaves", "at", "seven", "doesn't", "café", "πλοίο", "επτά", "七時", "出る", "and,", "(more)"]
WORDS += ["1,000", "ferries", "left", "leaving", "Sevens!"]
LINES = [" ".join(random.Random(number).choices(WORDS, k=8)) for number in range(300)]


def byte_level(folder: Path, specials: list[str]) -> None:
    inner = rust.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(LINES, trainer)
    inner.model.save(str(folder))


def word_ends(folder: Path) -> None:
    inner = rust.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    inner.train_from_iterator(LINES, trainer)
    inner.model.save(str(folder))


def word_pieces(folder: Path) -> None:
    inner = rust.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    inner.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=150, special_tokens=specials))
    inner.model.save(str(folder))


def pieces(lines: list[str], **options: Any) -> bytes:
    """A SentencePiece model of the lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2,
        vocab_size=90, character_coverage=1.0, **options,
    )  # fmt: skip
    return model.getvalue()


def scored(model: bytes) -> list[tuple[str, float]]:
    """The pieces of a model as the library itself reads them."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]


def _bert(folder: Path) -> Any:
    word_pieces(folder)
    return transformers.BertTokenizer.from_pretrained(folder)


def _cased(folder: Path) -> Any:
    word_pieces(folder)
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}')
    return transformers.BertTokenizer.from_pretrained(folder)


def _accents(folder: Path) -> Any:
    word_pieces(folder)
    (folder / "tokenizer_config.json").write_text('{"strip_accents": false, "tokenize_chinese_chars": false}')
    return transformers.DistilBertTokenizer.from_pretrained(folder)


def _gpt2(folder: Path) -> Any:
    byte_level(folder, ["<|endoftext|>"])
    return transformers.GPT2Tokenizer.from_pretrained(folder)


def _prefixed(folder: Path) -> Any:
    byte_level(folder, ["<|endoftext|>"])
    (folder / "tokenizer_config.json").write_text('{"add_prefix_space": true, "pad_token": "<|padding|>"}')
    return transformers.GPT2Tokenizer.from_pretrained(folder)


def _roberta(folder: Path) -> Any:
    byte_level(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask}))
    return transformers.RobertaTokenizer.from_pretrained(folder)


def _openai(folder: Path) -> Any:
    word_ends(folder)
    return transformers.OpenAIGPTTokenizer.from_pretrained(folder)


def _t5(folder: Path) -> Any:
    model = pieces(LINES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    (folder / "spiece.model").write_bytes(model)
    extra = [(f"<extra_id_{i}>", 0.0) for i in reversed(range(100))]
    charsmap = read_sentencepiece(model).charsmap
    return transformers.T5Tokenizer(vocab=scored(model) + extra, _spm_precompiled_charsmap=charsmap)


def _albert(folder: Path) -> Any:
    model = pieces(LINES, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
    (folder / "spiece.model").write_bytes(model)
    charsmap = read_sentencepiece(model).charsmap
    return transformers.AlbertTokenizer(vocab=scored(model), _spm_precompiled_charsmap=charsmap)


def _xlm_roberta(folder: Path) -> Any:
    model = pieces(LINES)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    moved = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")] + scored(model)[3:] + [("<mask>", 0.0)]
    charsmap = read_sentencepiece(model).charsmap
    return transformers.XLMRobertaTokenizer(vocab=moved, _spm_precompiled_charsmap=charsmap)


def _marian(folder: Path) -> Any:
    source, target = pieces(LINES), pieces([line.upper() for line in LINES])
    names = sorted({name for model in (source, target) for name, _ in scored(model)} - {"</s>", "<unk>", "<s>"})
    random.Random(2).shuffle(names)  # other ids, and a few pieces that the vocabulary lacks
    names = [name for name in names if name not in ("七", "▁and")]
    vocab = {name: number for number, name in enumerate(["</s>", "<unk>", ">>fra<<", *names, "<pad>"])}
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    return transformers.MarianTokenizer.from_pretrained(folder)


FAMILIES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "bert": ("bert", _bert),
    "bert-cased": ("electra", _cased),
    "bert-accents": ("distilbert", _accents),
    "gpt2": ("gpt2", _gpt2),
    "gpt2-prefixed": ("gpt2", _prefixed),
    "roberta": ("roberta", _roberta),
    "openai-gpt": ("openai-gpt", _openai),
    "t5": ("t5", _t5),
    "albert": ("albert", _albert),
    "xlm-roberta": ("xlm-roberta", _xlm_roberta),
    "marian": ("marian", _marian),
}


class Case:
    """A tokenizer type with a small vocabulary: our tokenizer and the reference."""

    def __init__(self, name: str, folder: Path) -> None:
        self.kind, make = FAMILIES[name]
        self.folder = folder
        self.reference = make(folder)
        self.config = {"model_type": self.kind, "decoder_start_token_id": self.reference.pad_token_id}
        self.source, self.ours = read_tokenizers(folder, self.config)

    def expected(self, text: str) -> list[int]:
        ids: list[int] = self.reference(text, add_special_tokens=False)["input_ids"]
        return ids


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    cases: dict[str, Case] = {}

    def make(name: str) -> Case:
        if name not in cases:
            cases[name] = Case(name, tmp_path_factory.mktemp(name))
        return cases[name]

    return make


@pytest.fixture(params=FAMILIES)
def case(request: pytest.FixtureRequest, made: Callable[[str], Case]) -> Case:
    return made(request.param)


def test_ids_are_the_references(case: Case) -> None:
    reader = case.source or case.ours
    for text in AWKWARD:
        assert reader.encode(text) == case.expected(text), text
    assert reader.encode_batch(AWKWARD) == [reader.encode(text) for text in AWKWARD]


def test_every_unknown_token_has_its_text(case: Case) -> None:
    reader = case.source or case.ours
    for text in AWKWARD:
        found = reader.unknown(text)
        assert len(found) == reader.encode(text).count(-1 if (unk := reader.special_tokens.unk) is None else unk), text
        spellings = text + unicodedata.normalize("NFKC", text)  # a tokenizer may normalise the text first
        assert all(part in spellings for part in found), (text, found)


def test_a_word_that_marian_lacks_is_shown_as_itself(made: Callable[[str], Case]) -> None:
    source = made("marian").source
    assert source is not None
    assert source.unknown("The ferry 七 leaves") == ["七"]
    assert source.unknown("The ferry leaves") == []


def test_special_tokens_of_an_input_are_the_references(case: Case) -> None:
    reader, text = case.source or case.ours, "The ferry leaves"
    assert reader.wrap_input(reader.encode(text)) == case.reference(text)["input_ids"]


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "xlm-roberta", "t5"])
def test_two_texts_are_joined_as_by_the_references(made: Callable[[str], Case], name: str) -> None:
    case, texts = made(name), ("The ferry leaves at seven", "café and, the")
    field = JoinedText(case.ours)
    ids, segments = field.encode([texts])[0].T.tolist()
    assert ids == case.reference(*texts)["input_ids"]
    assert segments == case.reference(*texts, return_token_type_ids=True)["token_type_ids"]
    whole = len(ids)
    for longest in range(6, whole):  # the longest text is cut first
        for pair in (texts, texts[::-1], (texts[0], texts[0])):
            cut = case.reference(*pair, truncation="longest_first", max_length=longest)["input_ids"]
            assert replace(field, longest=longest).encode([pair])[0][:, 0].tolist() == cut


def test_two_texts_of_a_language_model_are_joined_by_its_end(made: Callable[[str], Case]) -> None:
    field, (one, other) = JoinedText(made("gpt2").ours), ("The ferry", "leaves")
    ends, (first, second) = made("gpt2").ours.special_tokens.eos, made("gpt2").ours.encode_batch([one, other])
    assert field.encode([(one, other)])[0][:, 0].tolist() == [ends, *first, ends, *second, ends]
    with pytest.raises(UserError, match="no special token to separate two texts"):
        JoinedText(made("openai-gpt").ours).encode([(one, other)])


def test_ids_from_a_tokenizer_json_are_the_same(case: Case, tmp_path: Path) -> None:
    if case.kind == "marian":
        pytest.skip("Marian has none")
    case.reference.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"tokenizer.json", "tokenizer_config.json"}
    _, again = read_tokenizers(tmp_path, case.config)
    assert (again.special_tokens, again.kind, again.size) == (case.ours.special_tokens, case.ours.kind, case.ours.size)
    for text in AWKWARD:
        assert again.encode(text) == case.expected(text), text
        assert again.pieces(again.encode(text)) == case.ours.pieces(case.ours.encode(text))


def test_targets_of_marian_are_encoded_by_their_own_model(made: Callable[[str], Case]) -> None:
    case = made("marian")
    text = "THE FERRY LEAVES AT SEVEN"
    assert case.ours.encode(text) == case.reference(text_target=text)["input_ids"][:-1]
    assert case.source is not None
    assert case.source.encode(text) != case.ours.encode(text)
    assert case.ours.decode(case.ours.encode(text)) == text
    assert case.ours.special_tokens == case.source.special_tokens
    assert (case.ours.special_tokens.eos, case.ours.special_tokens.bos) == (0, case.ours.special_tokens.pad)
    assert 0 not in case.ours.special_tokens.forbidden


def test_a_marian_of_a_tokenizer_json_alone(made: Callable[[str], Case], tmp_path: Path) -> None:
    """As a fast tokenizer saves it: one vocabulary for source and target."""
    case = made("marian")
    vocab = json.loads((case.folder / "vocab.json").read_text(encoding="utf-8"))
    scores = dict(scored((case.folder / "source.spm").read_bytes()))
    names = sorted(vocab, key=vocab.__getitem__)
    inner = rust.Tokenizer(models.Unigram([(name, scores.get(name, -99.0)) for name in names], 1))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    roles = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **roles).save_pretrained(tmp_path)
    source, target = read_tokenizers(tmp_path, case.config)
    assert source is not None
    assert target.special_tokens == source.special_tokens == case.ours.special_tokens
    for text in ("The ferry leaves at seven", "leaves at"):
        assert source.encode(text) == case.expected(text)
        assert target.decode(source.wrap_input(source.encode(text))) == text
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"separate_vocabs": True}))
    with pytest.raises(UserError, match=r"source\.spm is missing; put it there\.$"):
        read_tokenizers(tmp_path, case.config)


SPECIAL = re.compile(r"</?(s|pad|unk|mask|\|endoftext\|)>")


def test_special_tokens_of_each_type(made: Callable[[str], Case]) -> None:
    assert made("bert").ours.special_tokens == SpecialTokens(pad=0, bos=2, eos=3, unk=1, mask=4, prefix=2, suffix=3)
    assert made("gpt2").ours.special_tokens == SpecialTokens(pad=0, bos=0, eos=0)
    assert made("openai-gpt").ours.special_tokens == SpecialTokens(pad=0, bos=None, eos=None, unk=0)
    t5 = SpecialTokens(pad=0, bos=0, eos=1, unk=2, suffix=1, second_segment=0, sentinels=tuple(range(157, 57, -1)))
    assert made("t5").ours.special_tokens == t5
    roberta = made("roberta").ours.special_tokens
    assert (roberta.prefix, roberta.suffix, roberta.mask, roberta.pad) == (0, 2, 4, 1)


@given(text=st.text(max_size=40).filter(lambda text: not SPECIAL.search(text)))
def test_bytes_restore_any_text(made: Callable[[str], Case], text: str) -> None:
    """Any text without the name of a special token, which is encoded as this token."""
    for name in ("gpt2", "roberta"):
        ours = made(name).ours
        assert ours.decode(ours.encode(text)) == text


def test_decoding_restores_text(made: Callable[[str], Case]) -> None:
    text = "the ferry (at seven) doesn't, café!"
    for name in ("gpt2", "roberta", "t5", "xlm-roberta", "marian"):
        reader = made(name).source or made(name).ours
        assert reader.decode(reader.encode(text)) == text, name
    plain = "the ferry (at seven) doesn't, cafe!"
    for name in ("bert", "openai-gpt", "albert"):
        ours = made(name).ours
        assert ours.decode(ours.wrap_input(ours.encode(text))) == plain, name
    masks = {"bert": "the [MASK] leaves", "roberta": "the <mask> leaves", "xlm-roberta": "the <mask> leaves"}
    for name, masked in masks.items():
        ours = made(name).ours
        ids = ours.encode(masked)
        assert ids.count(ours.special_tokens.mask) == 1  # type: ignore[arg-type]
        assert ours.decode(ids) == masked


def test_pieces_are_printable_and_words_are_those_of_the_text(case: Case) -> None:
    ours = case.source or case.ours
    for text in AWKWARD:
        tokens = ours.wrap_input(ours.encode(text))
        shown, owners = ours.pieces(tokens), ours.words(tokens)
        assert len(shown) == len(owners) == len(tokens)
        assert all(piece.isprintable() and piece and " " not in piece for piece in shown)
        words = ours.decode(tokens).split()
        assert {owner for owner in owners if owner >= 0} == set(range(len(words)))
        assert [owner for owner in owners if owner >= 0] == sorted(owner for owner in owners if owner >= 0)


def test_display_names_of_each_kind(made: Callable[[str], Case]) -> None:
    text = "the ferries at"
    shown = {
        name: made(name).ours.pieces(made(name).ours.encode(text)) for name in ("bert", "gpt2", "openai-gpt", "t5")
    }
    assert shown["gpt2"][0] == "the"
    assert "".join(shown["gpt2"]) == "the▁ferries▁at"
    assert "".join(shown["t5"]) == "▁the▁ferries▁at"
    assert "".join(shown["openai-gpt"]) == "the▁ferries▁at▁"
    assert "".join(piece.removeprefix("##") for piece in shown["bert"]) == "theferriesat"
    assert made("gpt2").ours.pieces(made("gpt2").ours.encode("駅")) == ["\\xe9", "\\xa7", "\\x85"]
    assert made("gpt2").ours.words(made("gpt2").ours.encode("at 駅 a")) == [0, -1, 1, 1, 1, 2]


def test_ids_past_the_vocabulary_are_written_as_numbers(case: Case) -> None:
    tokens = case.ours.encode("the ferry")
    text, unused = case.ours.decode(tokens), f"<{case.ours.size + 3}>"
    assert case.ours.decode([*tokens, case.ours.size + 3]) in (f"{text}{unused}", f"{text} {unused}")
    assert case.ours.pieces([case.ours.size + 3]) == [f"<{case.ours.size + 3}>"]


def test_a_run_keeps_the_files_and_exports_them(case: Case, tmp_path: Path) -> None:
    for name, tokenizer in (("source.json", case.source), ("target.json", case.ours)):
        if tokenizer is None:
            continue
        tokenizer.save(tmp_path / name)
        again = read_tokenizer(tmp_path / name)
        assert again.special_tokens == tokenizer.special_tokens
        assert again.encode_batch(AWKWARD) == tokenizer.encode_batch(AWKWARD)
        for file, data in again.files().items():
            assert (case.folder / file).read_bytes() == data
        assert len(again.files()) == len(list(case.folder.iterdir()))


def test_ours_open_in_transformers(tmp_path: Path) -> None:
    text = "the ferry [MASK] seven"
    for kind in ("char", "word", "bpe"):
        ours = train_tokenizer(kind, LINES, 200, mask="[MASK]")
        for name, data in ours.files().items():
            (tmp_path / name).write_bytes(data)
        reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert reference(text, add_special_tokens=False)["input_ids"] == ours.encode(text)
        assert (reference.pad_token_id, reference.eos_token_id, reference.mask_token_id) == (0, 2, 4)
        assert reference.decode(ours.encode("the ferry")) == "the ferry"


def test_errors_name_the_file(tmp_path: Path, made: Callable[[str], Case]) -> None:
    with pytest.raises(UserError, match=r'model_type "bort".*Did you mean "bert"'):
        read_tokenizers(tmp_path, {"model_type": "bort"})
    for kind, name in (
        ("bert", r"vocab\.txt"),
        ("t5", r"spiece\.model"),
        ("marian", r"source\.spm"),
        ("gpt2", r"vocab\.json"),
    ):
        with pytest.raises(UserError, match=f"{name} is missing"):
            read_tokenizers(tmp_path, {"model_type": kind})
    whole = (made("t5").folder / "spiece.model").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"no model at all"):
        (tmp_path / "spiece.model").write_bytes(damaged)
        with pytest.raises(UserError, match=r"spiece\.model: damaged"):
            read_tokenizers(tmp_path, {"model_type": "t5"})
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(UserError, match=r"tokenizer\.json.*damaged"):
        read_tokenizers(tmp_path, {"model_type": "bert"})
    (tmp_path / "target.json").write_text('{"files": {"vocab.txt": "?"}, "config": {}}')
    with pytest.raises(UserError, match=r"target\.json: damaged"):
        read_tokenizer(tmp_path / "target.json")


def test_a_tokenizer_larger_than_the_model_is_an_error(made: Callable[[str], Case], tmp_path: Path) -> None:
    ours = made("bert").ours
    check_vocab(ours, ours.size, tmp_path)
    check_vocab(ours, ours.size + 28, tmp_path)
    with pytest.raises(UserError, match=r"ids, but the model's vocabulary 100"):
        check_vocab(ours, 100, tmp_path)


def test_a_sentencepiece_file_is_parsed_as_by_the_library() -> None:
    model = pieces(LINES, user_defined_symbols=["<br>"], control_symbols=["<ctl>"])
    read = read_sentencepiece(model)
    assert read.pieces == scored(model)
    assert ("<br>", False) in read.found_in_text
    assert ("<ctl>", True) in read.found_in_text
    assert normalizers.Precompiled(read.charsmap).normalize_str("ﬁ ｆｕｌｌ ①") == "fi full 1"
    with pytest.raises(ValueError, match="not a unigram model"):
        read_sentencepiece(pieces(LINES, model_type="bpe"))


# The published vocabularies, if they are on this machine


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, dict[str, str]], Path]:
    if "REGARD_DATA" not in os.environ:
        pytest.skip("REGARD_DATA is not set: no public vocabularies")

    def unpack(name: str, files: dict[str, str]) -> Path:
        folder = tmp_path_factory.mktemp(name)
        for file, stored in files.items():
            path = Path(os.environ["REGARD_DATA"]) / "tokenizers" / stored
            unpacked = (lzma if path.suffix == ".xz" else gzip).decompress(path.read_bytes())
            (folder / file).write_bytes(unpacked)
        return folder

    return unpack


def test_the_vocabulary_of_gpt2(real: Callable[[str, dict[str, str]], Path]) -> None:
    folder = real("gpt2", {"vocab.json": "gpt2_encoder.json.gz", "merges.txt": "gpt2_vocab.bpe.gz"})
    _agree(folder, "gpt2", transformers.GPT2Tokenizer.from_pretrained(folder))


def test_the_vocabulary_of_bert(real: Callable[[str, dict[str, str]], Path]) -> None:
    folder = real("bert", {"vocab.txt": "bert_uncased_vocab.txt.gz"})
    _agree(folder, "bert", transformers.BertTokenizer.from_pretrained(folder))


def test_the_vocabulary_of_t5(real: Callable[[str, dict[str, str]], Path]) -> None:
    folder = real("t5", {"spiece.model": "t5_spiece.model.xz"})
    _, ours = read_tokenizers(folder, {"model_type": "t5", "decoder_start_token_id": 0})
    line = "translate English to German: The house is wonderful."
    assert ours.encode(line) == [13959, 1566, 12, 2968, 10, 37, 629, 19, 1627, 5]
    assert ours.special_tokens.sentinels == tuple(range(32099, 31999, -1))
    model = (folder / "spiece.model").read_bytes()
    extra = [(f"<extra_id_{i}>", 0.0) for i in reversed(range(100))]
    charsmap = read_sentencepiece(model).charsmap
    _agree(folder, "t5", transformers.T5Tokenizer(vocab=scored(model) + extra, _spm_precompiled_charsmap=charsmap))


def _agree(folder: Path, kind: str, reference: Any) -> None:
    _, ours = read_tokenizers(folder, {"model_type": kind})
    assert ours.size == len(reference)
    for text in AWKWARD:
        assert ours.encode(text) == reference(text, add_special_tokens=False)["input_ids"], text
