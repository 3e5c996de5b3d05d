"""CoVe: the vectors of a translator are its embeddings and the states of its encoder."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import UserError, load
from regard.cli import main
from regard.data.fields import InputText, TargetText
from regard.data.sources import Pairs
from regard.data.tokenizers import train_tokenizer
from regard.layers.embedding import init_embedding
from regard.models import ConvS2sConfig, GnmtConfig, TransformerConfig
from regard.objectives import TeacherForcing
from regard.recipes import Plan, Recipe
from regard.verbs import Loaded
from regard.verbs.embedding import gathered
from regard.verbs.pooling import Pooling

TEXTS = ["ab ba", "abc cab bca", ""]
SHAPE: dict[str, Any] = {"width": 8, "heads": 2, "layers": 2, "inner": 8, "context": 16, "dropout": 0.0}
CONFIGS: dict[str, Any] = {
    "gnmt": GnmtConfig(width=8, embed=6, layers=2, capacity=16, dropout=0.0),
    "transformer": TransformerConfig(**SHAPE),
    "convs2s": ConvS2sConfig(width=8, layers=2, channels=(6,), context=16, dropout=0.0),
}


def made(name: str, translator: Callable[..., Path]) -> Loaded:
    if name == "seq2seq":
        return load(translator("word"), "cpu")
    tokenizer = train_tokenizer("word", TEXTS, 40)
    config = replace(CONFIGS[name], source_vocab=tokenizer.size, target_vocab=tokenizer.size)
    recipe = Recipe("tiny", "tiny", Pairs(), config, TeacherForcing(), Plan(), ("bleu",))
    fields = {"source": InputText(tokenizer), "target": TargetText(tokenizer)}
    return Loaded(Path(name), config.build().eval(), torch.device("cpu"), fields, recipe)


@pytest.mark.parametrize("name", ["seq2seq", *CONFIGS])
def test_the_vectors_are_the_embeddings_and_the_states_of_the_encoder(
    name: str, translator: Callable[..., Path]
) -> None:
    model = made(name, translator)
    found = gathered(model, TEXTS, Pooling("tokens"), layers="cove")
    assert found.lengths.tolist() == [2, 3, 0]
    module: Any = model.module
    table = module.get_submodule(model.module.config.input_embedding).weight * model.module.config.embedding_scale
    for start, text in ((0, TEXTS[0]), (2, TEXTS[1])):
        ids = torch.tensor([model.tokenizer.wrap_input(model.tokenizer.encode(text))])
        vectors = torch.from_numpy(found.vectors[start : start + ids.shape[1]])
        embedded, states = vectors.split([table.shape[1], model.module.config.width], dim=-1)
        assert torch.equal(embedded, table[ids[0]])
        torch.testing.assert_close(states, module.encode(ids)[0], atol=1e-6, rtol=0.0)
        assert states.abs().sum() > 0


def test_the_embeddings_are_the_vectors_of_a_file(translator: Callable[..., Path], tmp_path: Path) -> None:
    """They are those of `model.embedding=FILE`, although a Transformer multiplies its embedding by a scale."""
    model = made("transformer", translator)
    embedding: Any = model.module.get_submodule(model.module.config.input_embedding)
    vectors = np.arange(16, dtype=np.float32).reshape(2, 8)
    rows = (f"{word} {' '.join(map(str, row))}" for word, row in zip(("ab", "ba"), vectors))
    (tmp_path / "vectors.txt").write_text("\n".join(rows), encoding="utf-8")
    scale = model.module.config.embedding_scale
    assert scale != 1
    init_embedding(
        embedding, tmp_path / "vectors.txt", model.tokenizer.pieces(range(model.tokenizer.size)), scale=scale
    )
    found = gathered(model, TEXTS[:1], Pooling("tokens"), layers="cove").vectors[:, :8]
    np.testing.assert_allclose(found, vectors, rtol=1e-6)


def test_the_command_prints_them(translator: Callable[..., Path], capsys: Any, tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("ab ba\n", encoding="utf-8")
    run = str(translator("word"))
    assert main(["embed", run, str(text), "--as", "cove", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["vectors"]
    expected = gathered(load(run, "cpu"), ["ab ba"], Pooling("tokens"), layers="cove").vectors
    np.testing.assert_allclose(shown, expected, rtol=1e-5)
    assert main(["embed", run, str(text), "--as", "cow", "--json"]) == 2
    assert "--as cow" in capsys.readouterr().err


def test_a_model_without_a_source_has_none(language: Path) -> None:
    with pytest.raises(UserError, match="cannot embed --as cove"):
        gathered(load(language, "cpu"), ["ab"], Pooling("tokens"), layers="cove")
