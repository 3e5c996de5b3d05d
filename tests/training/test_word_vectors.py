"""Runs whose embedding starts from a file of word vectors."""

import pytest
import torch

from encoded import MASKED_LINES
from regard.cli.progress import _started
from regard.config import override
from regard.data.fields import TextField
from regard.errors import UserError
from regard.recipes import KINDS, find_recipe
from regard.training.run import Run


@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        ("byte-bpe", {"▁house": "house", ".": ".", "s": None, "▁s": "s", "the": None}),
        ("word", {"the": "the", "house": "house", "house.": None}),
        ("bpe", {"▁the": "the", "▁house": "house", ".": ".", "s": None, "▁s": "s", "<unk>": "<unk>"}),
    ],
)
def test_word_vectors_are_found_for_words_and_for_pieces_that_begin_one(recipe, tmp_path, tokens, named):
    """`s` goes on with a word, and so is not the word s."""
    path = tmp_path / "pairs.tsv"
    path.write_text("the house.\tdas\nthe houses\tdie\nthe s house\tein\n" * 9, encoding="utf-8")
    words = ["the", "house", "s", ".", "<unk>", "elsewhere"]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {' '.join([str(n + 1)] * 8)}\n" for n, word in enumerate(words)))
    vocab = 300 if tokens == "byte-bpe" else 40
    settings = (f"data.source_tokens={tokens}", f"data.vocab={vocab}", f"model.embedding={vectors}")
    run = Run(recipe(*settings), tmp_path / "run")
    tokenizer = run.prepared.fields["source"].tokenizer
    pieces = tokenizer.pieces(range(tokenizer.size))
    assert named.keys() <= set(pieces)
    for piece, row in zip(pieces, run.model.encoder.embedding.weight):
        word = named.get(piece)
        if word:
            assert (row == words.index(word) + 1).all(), piece
        elif piece in named:
            assert not (row == row.round()).all(), piece


STACK = "model.width=8 model.heads=2 model.layers=1 model.inner=8"
PAIRED = ("translate", "data.source_tokens=word data.target_tokens=word")
MASKED = " ".join(MASKED_LINES)
VECTORS = {  # recipe, settings, and the embedding that starts from the file
    "seq2seq": (*PAIRED, "model.width=8 model.embed=8", "encoder.embedding"),
    "transformer": (*PAIRED, f"model=transformer {STACK}", "source_embedding.tokens"),
    "joint": (*PAIRED, f"model=transformer {STACK} data.joint=true model.shared=all", "embedding.tokens"),
    "lstmn": ("text", "data.tokens=word", "model.width=8 model.embed=8", "embedding"),
    "lstm": ("text", "data.tokens=word", "model=lstm model.width=8 model.embed=8", "embedding"),
    "gpt": ("text", "data.tokens=word", f"model=gpt {STACK}", "embedding.tokens"),
    "running": ("text", "data=book data.window=16 data.tokens=word", f"model=gpt {STACK}", "embedding.tokens"),
    "bert": ("pretrain", f"{MASKED} data.tokens=word", STACK, "embedding.tokens"),
    "albert": ("pretrain", f"{MASKED} data.tokens=word", f"{STACK} model.width=12 model.embed=8", "embedding.tokens"),
    "structured": ("classify", "data.tokens=word", "model=structured model.width=8 model.embed=8", "embedding"),
    "headed": ("classify", "data.tokens=word", f"model=bert {STACK}", "body.embedding.tokens"),
}


@pytest.fixture
def word_files(tmp_path):
    """Data for each recipe, of eight words; vectors of five of them, and of a word that no text has."""
    sea = [f"sea{n}" for n in range(8)]
    lines = [" ".join(sea[n % 8 : n % 8 + 4] or sea) for n in range(40)]
    for name, text in {
        "translate": [f"{line}\t{line}" for line in lines],
        "text": lines,
        "pretrain": lines,
        "classify": [f"{'good' if n % 2 else 'bad'}\t{line}" for n, line in enumerate(lines)],
    }.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(text) + "\n")
    values = [f"{word} {' '.join([str(n + 1)] * 8)}\n" for n, word in enumerate([*sea[:5], "desert"])]
    (tmp_path / "vectors.txt").write_text("".join(values))
    return tmp_path


@pytest.mark.parametrize("name", VECTORS)
def test_word_vectors_start_the_embedding_of_any_model(name, word_files):
    """What the model reads for a word is the vector of the file, whatever it multiplies its embedding by."""
    kind, data, model, path = VECTORS[name]
    file, vectors = word_files / f"{kind}.tsv", word_files / "vectors.txt"
    settings = (
        f"data.train={file} data.valid={file} {data} {model} model.embedding={vectors} plan.steps=1 plan.threads=1"
    )
    run = Run(override(find_recipe(kind), settings.split(), KINDS), word_files / "run")
    (text, *_) = (each for each in run.prepared.fields.values() if isinstance(each, TextField))
    weight = run.model.get_submodule(path).weight * run.prepared.config.embedding_scale
    for word, row in zip(text.tokenizer.pieces(range(text.size)), weight):
        number = int(word[3:]) if word.startswith("sea") else 9
        if number < 5:
            torch.testing.assert_close(row, torch.full_like(row, number + 1.0))
        else:
            assert not (row == row[0]).all() or not row.any(), word
    started = next(iter(run))
    words = sum(word.startswith("sea") or word == "<unk>" for word in text.tokenizer.pieces(range(text.size)))
    assert started.vectors == pytest.approx(5 / words)
    assert f"word vectors for {5 / words:.1%} of the vocabulary" in _started(started)


def test_word_vectors_that_do_not_fit_are_refused(recipe, word_files):
    vectors = word_files / "vectors.txt"
    message = r"model.embedding=.*vectors.txt: data.source_tokens=char has no words; set data.source_tokens=word or"
    with pytest.raises(UserError, match=message):
        Run(recipe(f"model.embedding={vectors}"), word_files / "run")
    for kind, data, model, cure in [
        ("text", "data.tokens=char model=gpt", STACK, "data.tokens=char has no words"),
        ("text", "data.tokens=word model=gpt", STACK.replace("width=8", "width=6"), "set model.width=8"),
        ("text", "data.tokens=word", "model.width=8 model.embed=6", "model.embed=6: the vectors .* set model.embed=8"),
        ("pretrain", f"{MASKED} data.tokens=word", STACK.replace("width=8", "width=6"), "set model.embed=8"),
        ("text", "model=gpt model.softmax=adaptive model.cutoffs=4", STACK, "set model.softmax=plain"),
    ]:
        file = word_files / f"{kind}.tsv"
        settings = f"data.train={file} data.valid={file} {data} {model} model.embedding={vectors}".split()
        with pytest.raises(UserError, match=cure):
            Run(override(find_recipe(kind), settings, KINDS), word_files / "run")
