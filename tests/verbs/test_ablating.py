"""Heads switched off: what a change is, what it does to the answer of every kind of model, and the ranking."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import MultiHead
from regard.errors import UserError
from regard.recording import record
from regard.verbs import Loaded, look_ablated
from regard.verbs.head_changes import changed_weights, find_head, head_changes, heads_changed, heads_of

KEPT = Path(__file__).parents[1] / "kept" / "format-2"
TEXT = "the dog sees a house ."
GIVEN: Mapping[str, Any] = {  # the text of each kept run
    **dict.fromkeys(("seq2seq", "transformer", "convs2s", "gpt", "text-backward", "transformer-xl"), TEXT),
    **dict.fromkeys(("electra", "roberta", "classify", "headed-bert", "headed-gpt", "tag-pieces"), TEXT),
    **dict.fromkeys(("bert", "albert"), "the [MASK] sees a [MASK] ."),
    "t5": "the [MASK] sees",
    **dict.fromkeys(("pair", "similarity"), (TEXT, "a dog .")),
    "choice": (TEXT, "a house .", "a red bird ."),
}


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[str], Loaded]:
    """Loads the model of a kept run, with weights large enough that every head has an effect."""

    def load(name: str, larger: float = 10.0) -> Loaded:
        with zipfile.ZipFile(KEPT / "stored" / f"{name}.zip") as packed:
            packed.extractall(tmp_path)
        model = regard.load(tmp_path / "runs" / name, "cpu", precision="float32")
        with torch.no_grad():
            for each in model.module.modules():
                if isinstance(each, MultiHead):
                    each.qkv.weight.mul_(larger)
                    each.out.weight.mul_(larger)
        return model

    return load


def off(head: int) -> Callable[[Tensor], Tensor]:
    """The edit, made by hand, that sets the weights of a head to 0."""

    def edited(weights: Tensor) -> Tensor:
        changed = weights.clone()
        (changed if weights.dim() == 3 else changed[:, head]).zero_()
        return changed

    return edited


def test_a_change_is_what_its_definition_says() -> None:
    weights = torch.tensor([[0.4, 0.4, 0.2, 0.0], [0.25, 0.0, 0.75, 0.0], [0.0, 0.0, 0.0, 0.0]])
    visible = torch.tensor([[True, True, True, False], [True, True, True, True], [False] * 4])
    expected = {
        "off": [[0, 0, 0, 0]] * 3,
        "uniform": [[1 / 3, 1 / 3, 1 / 3, 0], [0.25] * 4, [0, 0, 0, 0]],  # a visible key may have the weight 0
        "one-hot": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]],  # of equal weights, the first
        1: [[0, 1, 0, 0]] * 3,  # the mask of the attention hides it again where it must
        7: [[0, 0, 0, 0]] * 3,  # a step of decoding at which the key is not there yet
        (0.5, -1.0): [[0.5, -1, 0, 0]] * 3,
        (1.0, 2.0, 3.0, 4.0, 5.0): [[1, 2, 3, 4]] * 3,
    }
    for change, rows in expected.items():
        found = changed_weights(weights, visible, change)
        torch.testing.assert_close(found, torch.tensor(rows, dtype=torch.float32))


def test_uniform_is_over_the_keys_that_the_mask_allows(opened: Callable[..., Loaded]) -> None:
    """Also where a softmax gives a key no weight at all: these weights are large."""
    model = opened("transformer", 30.0)
    heads = {head: "uniform" for head in heads_of(model) if head.head == 0}
    with heads_changed(model, [heads]), record(model.module) as tape:
        regard.score(model, [(TEXT, "der Hund sieht")])
    for name in tape:
        causal = name.startswith("decoder") and "cross" not in name
        queries, keys = tape[name].shape[-2:]
        seen = torch.ones(queries, keys).tril() if causal else torch.ones(queries, keys)
        torch.testing.assert_close(tape[name][0, 0], seen / seen.sum(-1, keepdim=True))
    assert any(tape[name][0, 1].tril().eq(0).float().mean() > 0.5 for name in tape), "no weight is 0 by itself"


def test_an_ablated_translator_is_the_model_with_an_edit(opened: Callable[..., Loaded]) -> None:
    model = opened("transformer")
    found = regard.ablate(model, TEXT, "L0H1")
    (original,) = regard.translate(model, [TEXT])
    assert found.heads == {"cross:L0H1": "off"}
    assert (found.before.answer, found.before.pieces) == (original.text, found.pieces)
    (plain,) = regard.score(model, [(TEXT, original.text)])
    with regard.edit(model.module, {"decoder.blocks.0.cross.read": off(1)}):
        (edited,) = regard.score(model, [(TEXT, original.text)])
        (answer,) = regard.translate(model, [TEXT])
    assert found.pieces == edited.pieces[: len(found.pieces)]
    assert found.before.logps == pytest.approx(plain.logps[: len(found.pieces)].tolist(), abs=1e-5)
    assert found.after.logps == pytest.approx(edited.logps[: len(found.pieces)].tolist(), abs=1e-5)
    assert (found.after.answer, found.changed) == (answer.text, answer.tokens != original.tokens)
    assert found.deltas == [after - before for after, before in zip(found.after.logps, found.before.logps)]
    assert found.delta == pytest.approx(sum(found.deltas), abs=1e-9)
    assert abs(found.delta) > 1e-3


def test_a_layer_of_a_shared_module_is_changed_alone(opened: Callable[..., Loaded]) -> None:
    model = opened("albert")
    (_, *later) = (head for head in heads_of(model) if head.head == 0)
    with heads_changed(model, [{later[0]: "off"}]), record(model.module) as tape:
        regard.fill(model, [GIVEN["albert"]])
    first, second = (tape[name] for name in tape)
    assert second[:, 0].eq(0).all()
    assert first.sum(-1).allclose(torch.ones(()))
    assert second[:, 1].sum(-1).allclose(torch.ones(()))


@pytest.mark.parametrize("name", GIVEN)
def test_every_kind_of_model_answers_without_a_head(name: str, opened: Callable[..., Loaded]) -> None:
    """The ranking measures each head as `ablate` does, and greedy decoding changes where it says so."""
    model, text = opened(name), GIVEN[name]
    ranked = regard.rank_heads(model, text)
    assert {one.name for one in ranked} == {head.name for head in heads_of(model)}
    if model.task.head == "number":
        assert sorted(ranked, key=lambda one: -abs(one.delta)) == ranked
    else:
        assert sorted(ranked, key=lambda one: one.delta) == ranked
    if name != "choice":  # whose kept weights give all choices the same logit
        assert any(abs(one.delta) > 1e-5 for one in ranked)
    for one in (ranked[0], ranked[-1]):
        found = regard.ablate(model, text, one.name)
        assert one.delta == pytest.approx(found.delta, abs=1e-4)
        assert one.changed == found.changed == (found.before.answer != found.after.answer)
        assert len(found.pieces) == len(found.before.logps) == len(found.after.logps) == len(found.deltas)
        assert found.sentence.endswith(".")
        assert all(head in found.sentence for head in (f"L{one.layer}·H{one.head}",))


def test_a_head_that_the_model_does_not_read_does_no_damage(opened: Callable[..., Loaded]) -> None:
    model, kept = opened("transformer"), ("decoder.blocks.0.cross", 1)
    with torch.no_grad():
        for path, each in model.module.named_modules():
            if isinstance(each, MultiHead):
                for head in range(each.heads):
                    if (path, head) != kept:
                        each.out.weight[:, head * each.head_width : (head + 1) * each.head_width] = 0.0
    worst, *others = regard.rank_heads(model, TEXT)
    others = [one for one in others if one.name != "cross:L0H1"]
    found = next(one for one in regard.rank_heads(model, TEXT) if one.name == "cross:L0H1")
    assert abs(found.delta) > 1e-2
    assert all(abs(one.delta) < 1e-5 and not one.changed for one in others)
    assert worst.name == "cross:L0H1" or found.delta > 0
    uniform = next(one for one in regard.rank_heads(model, TEXT, "uniform") if one.name == "cross:L0H1")
    assert uniform.delta == pytest.approx(regard.ablate(model, TEXT, "L0H1=uniform").delta, abs=1e-5)


def test_a_classifier_without_its_head_reads_nothing(opened: Callable[..., Loaded]) -> None:
    model = opened("classify")  # hops over a recurrent encoder: without them the logits are those of zeros
    found, module = regard.ablate(model, TEXT, "L0H0"), model.module
    hidden = torch.relu(module.hidden(torch.zeros(1, module.hidden.in_features)))
    expected = module.readout_(hidden).log_softmax(-1)[0]
    names = list(regard.classify(model, [TEXT])[0].labels)
    assert found.before.answer == names[0]
    assert sorted(one.probability for place in found.after.places for one in place) == pytest.approx(
        sorted(expected.exp().tolist()), abs=1e-6
    )


def test_a_masked_text_and_one_without_masks(opened: Callable[..., Loaded]) -> None:
    model = opened("bert")
    filled = regard.fill(model, ["the [MASK] sees"])[0].masks[0]
    found = regard.ablate(model, "the [MASK] sees", "L0H0")
    assert [one.piece for one in found.before.places[0]] == [guess.piece for guess in filled]
    assert found.before.logps == pytest.approx([torch.tensor(filled[0].probability).log().item()], abs=1e-5)
    whole = regard.ablate(model, "the dog sees", "L0H0")  # each token hidden in turn
    assert whole.pieces == ["the", "dog", "sees"]
    (hidden,) = regard.fill(model, ["the [MASK] sees"], top=10_000)
    truth = next(guess.probability for guess in hidden.masks[0] if guess.piece == "dog")
    assert whole.before.logps[1] == pytest.approx(torch.tensor(truth).log().item(), abs=1e-5)


def test_a_language_model_reads_its_text_and_says_what_comes_next(opened: Callable[..., Loaded]) -> None:
    model = opened("gpt")
    found, (scored,) = regard.ablate(model, TEXT, "L0H0"), regard.score(model, [TEXT])
    count = len(found.pieces)
    assert found.pieces == scored.pieces[:count]
    assert set(scored.pieces[count:]) <= {"<eos>"}  # the end is no part of the text
    assert found.before.logps == pytest.approx(scored.logps[:count].tolist(), abs=1e-5)
    (written,) = regard.generate(model, [TEXT], limit=1)
    with regard.edit(model.module, {"*": off(0)}):
        (edited,) = regard.generate(model, [TEXT], limit=1)
    for said, generated in ((found.before, written), (found.after, edited)):
        assert said.places[0][0].probability == pytest.approx(float(torch.tensor(generated.logps[0]).exp()), abs=1e-5)


def test_a_chain_of_tags_adds_up(opened: Callable[..., Loaded]) -> None:
    from regard.layers.crf import LinearChain

    model = opened("tag-pieces")
    found = regard.ablate(model, TEXT, "L0H0")
    assert found.pieces == [f"{word}/{tag}" for word, tag in zip(TEXT.split(), regard.verbs.tag(model, [TEXT])[0].tags)]
    close = regard.ablate(model, "the dog sees a house.", "L0H0")  # the words of the picture, and of its prediction
    assert [piece.rpartition("/")[0] for piece in close.pieces] == ["the", "dog", "sees", "a", "house."]
    chain = next((each for each in model.module.modules() if isinstance(each, LinearChain)), None)
    assert chain is not None, "the kept tagger has a conditional random field"
    assert all(logp <= 1e-6 for logp in found.before.logps)
    assert found.before.total == pytest.approx(sum(found.before.logps), abs=1e-6)


def test_a_picture_says_which_heads_are_changed(opened: Callable[..., Loaded]) -> None:
    model = opened("transformer")
    view = look_ablated(model, TEXT, {"L0H0": "off", "encoder:L0H1": "uniform"})
    cross, encoder = view.parts["cross"][0].weights, view.parts["encoder"][0].weights
    assert (cross[0] == 0).all()
    assert cross[1].sum(-1) == pytest.approx(1.0, abs=1e-5)
    assert encoder[1] == pytest.approx(1 / encoder.shape[-1])
    assert view.title.endswith("without L0·H0 and with encoder L0·H1 uniform")
    assert view.about.endswith("The first picture is of the model without L0·H0 and with encoder L0·H1 uniform.")
    assert not (regard.look(model, TEXT).parts["cross"][0].weights[0] == 0).all()  # the model is as it was


def test_names_of_heads(opened: Callable[..., Loaded]) -> None:
    model = opened("transformer")
    for name in ("L0H1", "l0h1", "L0·H1", "cross:L0H1", "Cross:l0.h1", " L0H1 "):
        assert find_head(model, name).name == "cross:L0H1"
    assert find_head(model, "decoder:L0H0").label == "decoder L0·H0"
    assert find_head(model, "L0H0").label == "L0·H0"
    assert head_changes(model, ["L0H0", "encoder:L0H1=one-hot"]) == {
        find_head(model, "L0H0"): "off",
        find_head(model, "encoder:L0H1"): "one-hot",
    }


WRONG = {
    "head 3": "'head 3': no name of a head.*cross:L0H0",
    "L1H0": "L1H0: cross of .* has one layer, 0",
    "L0H2": "L0H2: layer 0 of cross has heads 0 to 1",
    "crossing:L0H0": 'no such part of .*Did you mean "cross"',
    "L0H0=none": "L0H0=none: no such change of a head; give off, uniform, one-hot",
    "L0H0=99": "cross:L0H0=99: cross has keys 0 to",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_names_are_refused(name: str, opened: Callable[..., Loaded]) -> None:
    with pytest.raises(UserError, match=WRONG[name]):
        regard.ablate(opened("transformer"), TEXT, name)


def test_other_wrong_calls_are_refused(opened: Callable[..., Loaded]) -> None:
    model = opened("transformer")
    wrong: list[tuple[str, Callable[[], object]]] = [
        ("named twice", lambda: regard.ablate(model, TEXT, ["L0H0", "cross:L0H0=3"])),
        ("none is named", lambda: regard.ablate(model, TEXT, [])),
        ("a row of weights", lambda: regard.ablate(model, TEXT, {"L0H0": [float("nan")]})),
        ("a row of 99 weights", lambda: regard.ablate(model, TEXT, {"L0H0": [0.0] * 99})),
        ("no name of a head", lambda: regard.ablate(model, TEXT, [3])),  # type: ignore[list-item]
        ("the text is empty", lambda: regard.ablate(model, " ", "L0H0")),
        ("this is None", lambda: regard.ablate(model, None, "L0H0")),  # type: ignore[arg-type]
        ("reads one text", lambda: regard.ablate(model, (TEXT, TEXT), "L0H0")),
        ("keys and rows are for one head", lambda: regard.rank_heads(model, TEXT, "3")),
        ("has no attention", lambda: regard.rank_heads(opened("kim"), TEXT)),
        ("heads are changed in translators", lambda: regard.ablate(opened("embed"), TEXT, "L0H0")),
    ]
    for message, call in wrong:
        with pytest.raises(UserError, match=message):
            call()


def test_a_recording_of_the_caller_stays_empty(opened: Callable[..., Loaded]) -> None:
    model = opened("gpt")
    with record(model.module) as tape:
        regard.ablate(model, TEXT, "L0H0")
        regard.rank_heads(model, TEXT)
    assert len(tape) == 0
    assert isinstance(model.module, nn.Module)
