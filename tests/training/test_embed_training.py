"""Training of text vectors: from nothing and from other models, with their pooling, to files that other tools open."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from regard import Run, UserError, embed, export, load, look, record, view
from regard.cli import main
from regard.metrics import pearson, spearman
from regard.recipes import KINDS, Recipe, change, find_recipe
from regard.training.evaluate import evaluate
from regard.training.events import Evaluated
from regard.training.warm_start import warm_start_from, warm_started
from regard.verbs.embedding import cosines, gathered
from regard.verbs.labelling import similarity
from regard.verbs.loaded import Loaded
from regard.verbs.pooling import Pooling
from tiny_public import bert, gpt2

ANIMALS, VERBS = ("cat", "dog", "bird", "fox", "cow", "hen"), ("runs", "sleeps", "eats", "sings")
PAIRS = [(f"the {one} {does}", f"there {does} a {one}") for one in ANIMALS for does in VERBS]
TEXTS = ["the cat runs", "a hen", "", "there sleeps a fox"]
SIZES = "model.width=16 model.heads=2 model.layers=1 model.inner=16 model.context=16 model.dropout=0"
PLAN = "plan.device=cpu plan.threads=1 plan.precision=float32 plan.batch_tokens=192 plan.warmup=2 data.tokens=word"


def recipe_of(settings: str) -> Recipe:
    return change(find_recipe("embed"), settings.split(), KINDS)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pairs.tsv, and scored.csv, in which every second pair does not belong together."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    seconds = [b for _, b in PAIRS]
    scored = [(a, seconds[n - 9 * (n % 2)], 5 - 4 * (n % 2)) for n, (a, _) in enumerate(PAIRS)]
    rows = "".join(f"{a},{b},{number}\n" for a, b, number in scored)
    (folder / "scored.csv").write_text(f"first,second,score\n{rows}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt the pairs from nothing, with the Spearman correlation of pairs with numbers."""
    settings = f"data.train={files}/scored.csv data.valid={files}/scored.csv data.number=score data.least=3"
    out = tmp_path_factory.mktemp("embed") / "run"
    run = Run(recipe_of(f"{settings} {SIZES} {PLAN} plan.steps=40 plan.evaluate=40 plan.rate=5e-3"), out)
    scores = [event.values for event in run if isinstance(event, Evaluated)]
    assert scores[-1]["accuracy"] == 1.0
    assert scores[-1]["spearman"] > 0.8
    return out


def vectors_of_sentence_transformers(path: Path, texts: list[str]) -> NDArray[np.float32]:
    tool = pytest.importorskip("sentence_transformers")
    found: NDArray[np.float32] = tool.SentenceTransformer(str(path), device="cpu").encode(texts)
    return found


def test_vectors_of_a_run_are_those_that_it_was_trained_with(run: Path) -> None:
    model = load(run, "cpu")
    vectors = embed(model, TEXTS).vectors
    tokens, real = _padded(model, TEXTS)
    np.testing.assert_allclose(vectors, model.logits(tokens, real).numpy(), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0, 1], atol=1e-5)  # the empty text has no tokens
    assert cosines(model, PAIRS[:1])[0] > max(cosines(model, [(PAIRS[0][0], other) for _, other in PAIRS[1:]]))
    assert look(model, "the cat runs").layers
    assert [one.number for one in similarity(model, PAIRS[:2])] == cosines(model, PAIRS[:2])
    assert model.kind == "a model of text vectors"


def _padded(model: Any, texts: list[str]) -> tuple[Any, Any]:
    ids = [model.tokenizer.encode(text) for text in texts]
    real = torch.tensor([[place < len(one) for place in range(4)] for one in ids])
    return torch.tensor([[*one, *[0] * (4 - len(one))] for one in ids]), real


def test_a_tape_has_the_attention_of_each_text(run: Path) -> None:
    model = load(run, "cpu")
    with record(model.module) as tape:
        embed(model, ["the cat runs", "a hen"])
    ids = model.tokenizer.encode("a hen")
    assert view(tape, item=1).columns == model.tokenizer.pieces(model.tokenizer.wrap_input(ids))
    with record(model.module), pytest.raises(UserError, match="batch_tokens=4; pass fewer lines"):
        embed(model, ["the cat runs", "a hen"], batch_tokens=4)


def test_an_unknown_token_of_the_prefix_is_named_by_the_prefix(run: Path) -> None:
    model = load(run, "cpu")
    with record(model.module) as tape:
        gathered(model, ["the zebra"], Pooling(prefix="query "))
    assert view(tape).columns == ["query", "the", "zebra"]


def test_similarity_of_a_file_is_the_cosine(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:2]), encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["similarity", str(run), str(tmp_path / "two.tsv"), "--device", "cpu"]) == 0
    lines = [float(line) for line in capsys.readouterr().out.split()]
    assert lines == pytest.approx(cosines(load(run, "cpu"), PAIRS[:2]), abs=1e-3)
    for line in ("one text", "a\tb\tc", "a\t "):
        (tmp_path / "two.tsv").write_text(f"a\tb\n{line}\n", encoding="utf-8")
        assert main(["similarity", str(run), str(tmp_path / "two.tsv"), "--device", "cpu"]) == 2
        assert "line 2: expected first and second, none of them empty, found" in capsys.readouterr().err
    with pytest.raises(UserError, match="text 1: expected first and second"):
        similarity(load(run, "cpu"), [("a", "")])


def test_spearman_is_that_of_the_cosines(run: Path, files: Path) -> None:
    model = load(run, "cpu")
    examples = model.examples("valid")[1]
    found = evaluate(model, examples, ("spearman", "pearson", "loss")).values
    pairs, numbers = [(one.first, one.second) for one in examples], [one.number for one in examples]
    assert found["spearman"] == pytest.approx(spearman(np.array(cosines(model, pairs)), np.array(numbers)))
    assert found["pearson"] == pytest.approx(pearson(np.array(cosines(model, pairs)), np.array(numbers)), abs=1e-6)


def test_a_run_opens_in_sentence_transformers_with_the_same_vectors(run: Path, tmp_path: Path) -> None:
    done = export(run, tmp_path / "out", to="sentence-transformers")
    assert {"modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"} <= {*done.files}
    assert [one["path"] for one in json.loads((done.path / "modules.json").read_text())] == [
        "",
        "1_Pooling",
        "2_Normalize",
    ]
    texts = [text for text in TEXTS if text] + ["the cat runs " * 9]  # longer than the model reads
    ours = embed(load(run, "cpu", long="truncate"), texts).vectors
    np.testing.assert_allclose(embed(load(done.path, "cpu", long="truncate"), texts).vectors, ours, atol=1e-6)
    np.testing.assert_allclose(vectors_of_sentence_transformers(done.path, texts), ours, atol=1e-5)
    again = export(run, tmp_path / "out", overwrite=True)  # transformers has no such head: the same files
    assert again.files == done.files


@pytest.mark.parametrize("pool", ["mean", "max", "first", "last"])
def test_any_encoder_is_exported_with_its_pooling(tmp_path: Path, pool: str) -> None:
    bert(tmp_path / "bert")
    export(tmp_path / "bert", tmp_path / "plain", to="sentence-transformers")
    names = {"mean": "mean_tokens", "max": "max_tokens", "first": "cls_token", "last": "lasttoken"}
    modes = {f"pooling_mode_{name}": one == pool for one, name in names.items()}
    settings = {"word_embedding_dimension": 16, **modes}
    (tmp_path / "plain" / "1_Pooling" / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    export(tmp_path / "plain", tmp_path / "out", to="sentence-transformers")
    texts = ["the grey heron", "rain fell on the tin roof", "a"]
    ours = embed(load(tmp_path / "bert", "cpu"), texts, pool, normalise=False).vectors
    np.testing.assert_allclose(embed(load(tmp_path / "out", "cpu"), texts).vectors, ours, atol=1e-6)
    np.testing.assert_allclose(vectors_of_sentence_transformers(tmp_path / "out", texts), ours, atol=1e-5)


def test_models_that_write_are_not_exported_for_sentence_transformers(tmp_path: Path) -> None:
    gpt2(tmp_path / "gpt2")
    with pytest.raises(UserError, match="sentence-transformers reads a text whole; give --to transformers"):
        export(tmp_path / "gpt2", tmp_path / "out", to="sentence-transformers")


def test_a_causal_body_with_the_last_state(files: Path, tmp_path: Path) -> None:
    settings = f"data.train={files}/pairs.tsv model=gpt {SIZES} head.pool=last head.normalise=false"
    list(Run(recipe_of(f"{settings} {PLAN} plan.steps=1 plan.evaluate=1"), tmp_path / "run"))
    done = export(tmp_path / "run", tmp_path / "out", to="sentence-transformers")
    texts = [text for text in TEXTS if text]
    ours = embed(load(tmp_path / "run", "cpu"), texts).vectors
    assert np.linalg.norm(ours, axis=1).max() > 1.1
    np.testing.assert_allclose(vectors_of_sentence_transformers(done.path, texts), ours, atol=1e-5)


def test_the_vectors_of_a_t5_are_those_of_its_encoder(files: Path, tmp_path: Path) -> None:
    start = recipe_of(f"data.train={files}/pairs.tsv model=t5-small {SIZES} model.inner=16 {PLAN} plan.steps=1")
    list(Run(start, tmp_path / "run"))
    model = load(tmp_path / "run", "cpu")
    texts = [text for text in TEXTS if text]
    ours = embed(model, texts).vectors
    for text, vector in zip(texts, ours):
        ids = torch.tensor([model.tokenizer.wrap_input(model.tokenizer.encode(text))])
        with torch.no_grad():
            states = model.module.body.encode(ids)  # type: ignore[union-attr,operator]
        np.testing.assert_allclose(F.normalize(states.mean(1), dim=-1)[0].numpy(), vector, atol=1e-6)
    assert {layer.part for layer in look(model, texts[0]).layers} == {"encoder"}
    done = export(model, tmp_path / "out", to="sentence-transformers")
    np.testing.assert_allclose(embed(load(done.path, "cpu"), texts).vectors, ours, atol=1e-6)
    np.testing.assert_allclose(vectors_of_sentence_transformers(done.path, texts), ours, atol=1e-5)


def test_the_layers_of_a_t5_that_trains_vectors_are_those_of_its_encoder(files: Path, tmp_path: Path) -> None:
    start = recipe_of(f"data.train={files}/pairs.tsv model=t5-small {SIZES} model.inner=16 {PLAN} plan.steps=2")
    start = change(start, ["model.layers=2", "model.decoder_layers=2"], KINDS)
    with pytest.raises(UserError, match=r"plan\.freeze=3: all 3 layers are frozen"):
        Run(change(start, ["plan.freeze=3"], KINDS), tmp_path / "frozen")
    run = Run(change(start, ["plan.unfreeze=9"], KINDS), tmp_path / "run")
    before = {name: weight.clone() for name, weight in run.model.state_dict().items()}
    list(run)
    changed = {name for name, weight in run.model.state_dict().items() if not weight.equal(before[name])}
    assert changed
    assert all(name.startswith(("body.encoder.blocks.1.", "body.encoder.norm.")) for name in changed)


def test_training_starts_from_a_directory_of_sentence_transformers_with_its_pooling(
    files: Path, tmp_path: Path
) -> None:
    bert(tmp_path / "bert")
    folder = export(tmp_path / "bert", tmp_path / "st", to="sentence-transformers").path
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 12, "do_lower_case": false}', encoding="utf-8"
    )
    plan = PLAN.replace("data.tokens=word", "") + " plan.steps=2 plan.evaluate=2 plan.rate=1e-3"
    settings = f"data.train={files}/pairs.tsv {plan}".split()
    recipe, init = warm_started(find_recipe("embed"), settings, warm_start_from(folder), folder)
    assert (recipe.head.pool, recipe.head.normalise, recipe.head.longest) == ("first", False, 12)
    run = Run(recipe, tmp_path / "run", init=init)
    np.testing.assert_allclose(  # before the first step
        _vectors(run, tmp_path), embed(load(folder, "cpu"), TEXTS).vectors, atol=1e-6
    )
    list(run)
    model = load(tmp_path / "run", "cpu")
    assert model.longest == 12
    assert not np.allclose(embed(model, TEXTS).vectors, embed(load(folder, "cpu"), TEXTS).vectors, atol=1e-4)
    again, init = warm_started(find_recipe("embed"), settings, warm_start_from(tmp_path / "run"), tmp_path / "run")
    assert again.head == recipe.head
    changed, _ = warm_started(find_recipe("embed"), [*settings, "head.pool=mean"], warm_start_from(folder), folder)
    assert (changed.head.pool, changed.head.longest) == ("mean", 12)
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    with pytest.raises(UserError, match="it lower-cases texts, which training does not"):
        warm_started(find_recipe("embed"), settings, warm_start_from(folder), folder)
    (folder / "modules.json").write_text('[{"type": "Dense", "path": ""}]', encoding="utf-8")
    with pytest.raises(UserError, match="Dense: not supported"):
        warm_started(find_recipe("embed"), settings, warm_start_from(folder), folder)
    warm_started(find_recipe("classify"), [f"data.train={files}/pairs.tsv"], warm_start_from(folder), folder)


def _vectors(run: Run, folder: Path) -> NDArray[np.float32]:
    prepared = run.prepared
    return embed(Loaded(folder / "new", run.model.eval(), prepared.device, prepared.fields, run.recipe), TEXTS).vectors


def test_without_numbers_accuracy_selects_the_step_and_the_run_resumes(files: Path, tmp_path: Path) -> None:
    recipe = recipe_of(f"data.train={files}/pairs.tsv {SIZES} {PLAN} plan.steps=2 plan.evaluate=1")
    run = Run(recipe, tmp_path / "run")
    assert any("spearman left out, and the best step selected by accuracy" in one for one in run.prepared.warnings)
    assert run.recipe.metrics == ("accuracy",)
    events = iter(run)
    for event in events:
        if isinstance(event, Evaluated):
            assert "spearman" not in event.values
            assert 0 <= event.values["accuracy"] <= 1
            break
    events.close()  # type: ignore[attr-defined]
    list(Run(recipe, tmp_path / "run", "resume"))
    assert load(tmp_path / "run", "cpu").step == 2


def test_long_texts_are_cut_and_batches_of_one_row_refused(files: Path, tmp_path: Path) -> None:
    long = [(f"{a} " * 10, b) for a, b in PAIRS]
    (tmp_path / "long.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in long), encoding="utf-8")
    recipe = recipe_of(f"data.train={tmp_path}/long.tsv {SIZES} {PLAN} plan.steps=1 plan.evaluate=1")
    run = Run(recipe, tmp_path / "run")
    assert run.prepared.batches.dropped == 0
    assert max(width for _, width in run.prepared.batches.shapes) == 16
    with pytest.raises(UserError, match=r"plan\.batch_tokens=20: every batch has one example.*give 32 or more"):
        Run(change(recipe, ["plan.batch_tokens=20"], KINDS), tmp_path / "one")


def test_pairs_that_are_alone_in_their_batches_are_told_when_a_model_is_evaluated(run: Path) -> None:
    model = load(run, "cpu")
    _, examples = model.examples(None)
    with pytest.raises(UserError, match=r"no pair has another one, of other texts, in its batch of 4 tokens"):
        evaluate(model, examples, ("loss",), batch_tokens=4)


def test_models_that_read_words_do_not_fit(files: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model=bilstm: does not fit data=related"):
        Run(recipe_of(f"data.train={files}/pairs.tsv model=bilstm plan.device=cpu"), tmp_path / "run")
