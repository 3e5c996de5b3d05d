"""Going on with a public checkpoint: trained on a person's own data, resumed, and loaded as any run of ours."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from encoded import MASKED_LINES
from regard.config import override
from regard.errors import UserError
from regard.models import BertConfig, GptConfig, TransformerConfig
from regard.recipes import KINDS, Recipe, find_recipe
from regard.stored import stored_recipe
from regard.training.run import Run
from regard.training.warm_start import warm_start_from
from regard.verbs import fill, generate, load, score, translate
from tiny_public import LINES, bert, gpt2, saved, transformers

sentencepiece = pytest.importorskip("sentencepiece")

SHORT = [
    *("plan.steps=4", "plan.evaluate=2", "plan.batch_tokens=256", "plan.warmup=1", "plan.samples=2"),
    *("plan.threads=1", "plan.rate=1e-2", "plan.device=cpu"),
]


def marian(folder: Path) -> Any:
    """A translator of lines into capitals, with SentencePiece models of its own and a padded vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    names: set[str] = set()
    for side, lines in (("source", LINES), ("target", [line.upper() for line in LINES])):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2, vocab_size=90
        )
        (folder / f"{side}.spm").write_bytes(model.getvalue())
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        names |= {pieces.id_to_piece(number) for number in range(pieces.get_piece_size())}
    listed = ["</s>", "<unk>", *sorted(names - {"</s>", "<unk>", "<s>"}), "<pad>"]
    vocab = {name: number for number, name in enumerate(listed)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    config = transformers.MarianConfig(
        vocab_size=len(vocab), d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64, dropout=0.0,
        pad_token_id=vocab["<pad>"], decoder_start_token_id=vocab["<pad>"], eos_token_id=0, scale_embedding=True,
    )  # fmt: skip
    return saved(transformers.MarianMTModel(config), folder)


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in LINES * 4), encoding="utf-8")
    (tmp_path / "lines.txt").write_text("\n".join(f"{line} {n}" for n in range(8) for line in LINES), encoding="utf-8")
    return {name: f"data.train={tmp_path / name}" for name in ("pairs.tsv", "lines.txt")}


def made(name: str, *settings: str) -> Recipe:
    kind = MASKED_LINES if name == "pretrain" else ()
    return override(find_recipe(name), [*kind, *settings, *SHORT], KINDS)


def weights(run: Path, step: int = 4) -> bytes:
    return (run / f"steps/{step:06d}/weights.safetensors").read_bytes()


KNOWN: list[tuple[Callable[..., Any], str, str, type]] = [
    (marian, "translate", "pairs.tsv", TransformerConfig),
    (gpt2, "text", "lines.txt", GptConfig),
    (bert, "pretrain", "lines.txt", BertConfig),
]


@pytest.mark.parametrize(("make", "name", "file", "kind"), KNOWN)
def test_a_public_model_is_trained_on_and_resumed(
    make: Callable[..., Any], name: str, file: str, kind: type, data: dict[str, str], tmp_path: Path
) -> None:
    public, recipe = tmp_path / "public", made(name, data[file])
    make(public)
    start = load(public, device="cpu")
    whole = Run(recipe, tmp_path / "whole", init=warm_start_from(public))
    config = whole.prepared.config
    assert config == start.module.config
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, start.module.state_dict()[name])
    list(whole)
    assert isinstance(stored_recipe(tmp_path / "whole").model, kind)

    first = iter(Run(recipe, tmp_path / "cut", init=warm_start_from(public)))
    while next(first).step < 2:
        pass
    first.close()
    list(Run(None, tmp_path / "cut", "resume"))  # the public model is not given again
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut") != weights(tmp_path / "cut", 2)

    tuned = load(tmp_path / "whole", device="cpu")
    assert tuned.module.config == whole.prepared.config
    assert tuned.target_tokenizer.special_tokens == start.target_tokenizer.special_tokens
    examples = whole.prepared.corpus.valid
    for before, after in zip(start.encode(examples), tuned.encode(examples), strict=True):
        assert {name: ids.tolist() for name, ids in before.items()} == {
            name: ids.tolist() for name, ids in after.items()
        }


def test_what_was_tuned_is_used_as_any_run(data: dict[str, str], tmp_path: Path) -> None:
    for make, name, file, _ in KNOWN:
        make(tmp_path / name / "public")
        list(Run(made(name, data[file]), tmp_path / name / "run", init=warm_start_from(tmp_path / name / "public")))
    runs = {name: load(tmp_path / name / "run", device="cpu", long="truncate") for _, name, _, _ in KNOWN}
    (translation,) = translate(runs["translate"], [LINES[0]], beam=2, limit=20)
    assert translation.text
    assert (score(runs["translate"], [(LINES[0], LINES[0].upper())])[0].logps < 0).all()
    assert generate(runs["text"], ["the grey"], limit=5)[0].tokens
    assert fill(runs["pretrain"], ["the [MASK] heron stood"])[0].masks


def test_training_makes_it_better(data: dict[str, str], tmp_path: Path) -> None:
    gpt2(tmp_path / "public")
    run = Run(
        made("text", data["lines.txt"], "plan.steps=30"), tmp_path / "run", init=warm_start_from(tmp_path / "public")
    )
    before = run.evaluate().values["loss"]
    list(run)
    assert run.evaluate().values["loss"] < before - 0.5


def test_running_text_of_a_public_model_has_no_marks(data: dict[str, str], tmp_path: Path) -> None:
    gpt2(tmp_path / "public")
    list(Run(made("text", "data=book", data["lines.txt"]), tmp_path / "run", init=warm_start_from(tmp_path / "public")))
    tuned = load(tmp_path / "run", device="cpu")
    special_tokens = tuned.target_tokenizer.special_tokens
    assert (special_tokens.bos, special_tokens.eos) == (None, None)
    assert load(tmp_path / "public", device="cpu").target_tokenizer.special_tokens.bos is not None


def test_a_public_model_for_another_task_is_refused(data: dict[str, str], tmp_path: Path) -> None:
    gpt2(tmp_path / "public")
    with pytest.raises(UserError, match="model=gpt: does not fit data=pairs"):
        Run(made("translate", data["pairs.tsv"]), tmp_path / "run", init=warm_start_from(tmp_path / "public"))
    assert not (tmp_path / "run").exists()
