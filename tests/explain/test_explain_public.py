"""`attention` and `heads` on public checkpoints that read SentencePiece: T5, Marian, ALBERT."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.explain.by_hand import compute_by_hand, record_block_calls
from regard.explain.coreference import evaluate_coreference, pairs
from regard.explain.tokenized import load_transformer, tokenize
from regard.explain.worked import block_tables

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

LINES = [version.text for pair in pairs() for version in pair]


def pieces(path: Path, **ids: Any) -> list[str]:
    """A SentencePiece model of the sentences, in a file of that name; its pieces."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=str(path.with_suffix("")), vocab_size=220, hard_vocab_limit=False,
        character_coverage=1.0, minloglevel=2, **ids,
    )  # fmt: skip
    made = path.with_suffix(".model")
    if made != path:
        made.rename(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(at) for at in range(processor.get_piece_size())]


def t5(folder: Path) -> Any:
    vocab = pieces(folder / "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    config = transformers.T5Config(
        vocab_size=len(vocab) + 100, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, pad_token_id=0,
        eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def marian(folder: Path) -> Any:
    vocab = pieces(folder / "source.spm", pad_id=-1, bos_id=-1, eos_id=0, unk_id=1)
    shutil.copy(folder / "source.spm", folder / "target.spm")
    ids = {piece: at for at, piece in enumerate([*vocab, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    pad = ids["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(ids), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64,
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, bos_token_id=0, forced_eos_token_id=0,
    )  # fmt: skip
    return transformers.MarianMTModel(config)


def albert(folder: Path) -> Any:
    vocab = pieces(
        folder / "spiece.model", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]"],
        user_defined_symbols=["[MASK]"],
    )  # fmt: skip
    config = transformers.AlbertConfig(
        vocab_size=len(vocab), embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.AlbertForMaskedLM(config)


@pytest.mark.parametrize("build", [t5, marian, albert])
def test_blocks_by_hand_and_coreference_of_a_public_model(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    build(tmp_path).save_pretrained(tmp_path)
    model = load_transformer(str(tmp_path))
    it = evaluate_coreference(model)
    assert (it.pairs, it.skipped) == (len(pairs()), 0)
    assert it.scores is not None
    assert len(it.scores.heads) == 4  # of the encoder, where there is a decoder too
    assert all(0.2 < one.correct.rate < 0.8 for one in it.scores.heads)
    assert it.query == "“it”"
    text = tokenize(model, LINES[0])
    model.module.double()
    with torch.no_grad(), record_block_calls(model.module) as calls:
        text.forward()
    with torch.no_grad():
        worked = [compute_by_hand(call) for call in calls if call.block.cross is None]
    assert len(worked) == 2
    tables = [block_tables(one, "Layer", 1, 2, text.pieces) for one in worked]
    assert any("bias for the" in name for table in tables[0] for name in table.columns) == (build is t5)
    assert max(one.difference for one in worked) < 1e-9
