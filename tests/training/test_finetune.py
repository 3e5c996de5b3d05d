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
from regard.recipes import KINDS, Recipe, change, find_recipe
from regard.recording import record
from regard.stored import stored_recipe
from regard.training.run import Run
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs import classify, export, fill, generate, load, look, score, translate
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


# -- a Transformer under a head: both sides read the text --------------------------------------------------------------


def t5(folder: Path) -> Any:
    """A T5 with pieces of SentencePiece, and rows for the sentinels of its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, hard_vocab_limit=False, minloglevel=2, vocab_size=90, **ids
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    size = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).get_piece_size() + 100
    config = transformers.T5Config(
        vocab_size=size, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return saved(transformers.T5ForConditionalGeneration(config), folder)


def classifier(folder: Path, start: Path) -> Run:
    table = folder / "labelled.csv"
    table.write_text("".join(["label,text\n", *(f"{line[0]},{line}\n" for line in LINES[:4] * 4)]), encoding="utf-8")
    settings = [f"data.train={table}", f"data.valid={table}", "plan.epochs=none", *SHORT]
    recipe, init = warm_started(find_recipe("classify"), settings, warm_start_from(start), start)
    return Run(recipe, folder / "run", init=init)


def test_t5_is_fine_tuned_under_a_head_and_exported(tmp_path: Path) -> None:
    t5(tmp_path / "t5")
    run = classifier(tmp_path, tmp_path / "t5")
    assert run.transfer is not None
    assert run.transfer.new == ("head.hidden", "head.out")
    assert run.recipe.plan.schedule == "linear"  # as for every Transformer that is fine-tuned
    assert [*run][-1].reason == "steps"
    model = load(tmp_path / "run", "cpu")
    with record(model.module) as tape:
        found = classify(model, LINES[:2])
    assert {name.split(".")[1] for name in tape} == {"encoder", "decoder"}
    seen = look(model, LINES[0])
    assert {layer.part for layer in seen.layers} == {"encoder", "decoder", "cross"}
    read = model.tokenizer.pieces(model.tokenizer.wrap_input(model.tokenizer.encode(LINES[0])))
    assert [*look(model, LINES[0], part="encoder").columns] == [*look(model, LINES[0], part="cross").columns] == read
    # The decoder is one token behind: it begins with token 0, as that of T5.
    assert [*look(model, LINES[0], part="decoder").columns] == [*model.tokenizer.pieces([0]), *read[:-1]]
    export(model, tmp_path / "out", to="transformers")
    theirs = transformers.T5ForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    for line, ours in zip(LINES, found):
        ids = torch.tensor([model.tokenizer.wrap_input(model.tokenizer.encode(line))])
        with torch.no_grad():
            expected = theirs(input_ids=ids).logits.softmax(-1)[0]
        for number, label in theirs.config.id2label.items():
            assert ours.labels[label] == pytest.approx(float(expected[number]), abs=1e-4)
    assert classify(load(tmp_path / "out", "cpu"), LINES[:2])[0].label == found[0].label


def test_a_t5_whose_tokenizer_adds_no_eos_is_not_exported_as_a_classifier(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(LINES[:4] * 8), encoding="utf-8")
    sizes = [
        "model=t5",
        "model.width=16",
        "model.heads=2",
        "model.layers=1",
        "model.inner=24",
        "model.readout_scale=0.25",
    ]
    pretrain = change(
        find_recipe("pretrain"),
        [*sizes, f"data.train={tmp_path / 'lines.txt'}", "data.vocab=180", "data.window=24", *SHORT],
        KINDS,
    )
    list(Run(pretrain, tmp_path / "t5"))
    list(classifier(tmp_path, tmp_path / "t5"))
    with pytest.raises(UserError, match="T5ForSequenceClassification reads the state at eos"):
        export(load(tmp_path / "run", "cpu"), tmp_path / "out", to="transformers")


def test_sides_with_different_tokens_cannot_read_one_text(tmp_path: Path) -> None:
    marian(tmp_path / "marian")
    (tmp_path / "marian" / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    vocab = json.loads((tmp_path / "marian" / "vocab.json").read_text(encoding="utf-8"))
    other = {f"{name}x" if number > 2 and not name.startswith("<") else name: number for name, number in vocab.items()}
    (tmp_path / "marian" / "target_vocab.json").write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(UserError, match=r"from=.*marian: its source and its target have different tokens, and under"):
        classifier(tmp_path, tmp_path / "marian")
