"""Looking into Transformers, ours and those of `transformers`: every layer and head, under the right captions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from encoded import fields_for
from regard.attention import MultiHead
from regard.cli import main
from regard.data.fields import InputText, LabelField, MaskedText, TargetText
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.heads import ClassHeadConfig
from regard.models import BertConfig, GptConfig, HeadedConfig, TransformerConfig
from regard.models.parts import parts, source_reads
from regard.recording import Recorder, attentions, record
from regard.render.view_data import Unknown
from regard.tasks import TASKS
from regard.verbs import Loaded, align, load, look, score, translate, view
from regard.verbs.forced import aligning

SOURCES = ["ab ba", "abc cab", "bca", "a b c", "cc"]
TARGETS = ["xy yx", "xyz zxy", "yzx", "x y z", "zz"]
SMALL = {"width": 16, "heads": 4, "layers": 3, "inner": 32, "context": 24, "dropout": 0.0}


def translator(**settings: object) -> Loaded:
    source, target = (train_tokenizer("char", lines, 40) for lines in (SOURCES, TARGETS))
    sizes = {"source_vocab": source.size, "target_vocab": target.size}
    torch.manual_seed(0)
    module = TransformerConfig(**{**SMALL, **sizes, **settings}).build().eval()  # type: ignore[arg-type]
    return Loaded(Path("tiny"), module, torch.device("cpu"), fields_for(TASKS["translate"], source, target))


def speaker(**settings: object) -> Loaded:
    tokenizer = train_tokenizer("char", SOURCES, 40)
    torch.manual_seed(0)
    module = GptConfig(**{**SMALL, "vocab": tokenizer.size, **settings}).build().eval()  # type: ignore[arg-type]
    return Loaded(Path("tiny"), module, torch.device("cpu"), {"text": TargetText(tokenizer)})


def reader(**settings: object) -> Loaded:
    tokenizer = train_tokenizer("char", SOURCES, 40, mask="[MASK]")
    torch.manual_seed(0)
    module = BertConfig(**{**SMALL, "vocab": tokenizer.size, **settings}).build().eval()  # type: ignore[arg-type]
    return Loaded(Path("tiny"), module, torch.device("cpu"), {"text": MaskedText(tokenizer)})


def test_a_translator_shows_every_part_under_its_own_captions() -> None:
    seen = look(translator(), "abc", target="zz")
    assert {part: len(layers) for part, layers in seen.parts.items()} == {"cross": 3, "encoder": 3, "decoder": 3}
    said, read = ["z", "z", "<eos>"], ["a", "b", "c"]
    past = ["<bos>", "z", "z"]
    axes = {"cross": (said, read), "encoder": (read, read), "decoder": (past, past)}
    for part, layers in seen.parts.items():
        for number, layer in enumerate(layers):
            assert (list(layer.rows or ()), list(layer.columns or ())) == axes[part]
            assert (layer.heads, layer.number) == (4, number)
            np.testing.assert_allclose(layer.weights.sum(-1), 1.0, atol=1e-5)
    assert np.triu(seen.parts["decoder"][0].weights, 1).max() == 0  # the past only
    assert [frame.token for frame in seen.frames or ()] == said
    assert (seen.rows, seen.columns) == (said, read)


def test_what_is_seen_is_what_a_step_by_step_pass_sees() -> None:
    model = translator()
    seen = look(model, "abc", target="zz")
    tokens = model.target_tokenizer.special_tokens.wrap_target(model.target_tokenizer.encode("zz"))
    source = torch.tensor([model.tokenizer.encode("abc")])
    with record(model.module, "decoder.*.cross.*") as tape, torch.no_grad():
        state = model.module.start(source, capacity=3)  # type: ignore[union-attr, operator]
        assert seen.frames is not None
        for frame, token in zip(seen.frames, tokens[:-1], strict=True):
            logits, state = model.module.step(torch.tensor([token]), state)  # type: ignore[union-attr, operator]
            chances = dict(zip(model.target_tokenizer.display_names, logits.softmax(-1)[0].tolist()))
            offered = {piece: chance for piece, chance in chances.items() if piece not in ("<pad>", "<bos>", "<unk>")}
            assert frame.top[0][2] == pytest.approx(max(offered.values()), abs=1e-5)
            assert {piece for piece, _, _ in frame.top[:5]} <= offered.keys()
            told = {piece: chance for piece, _, chance in frame.top}
            assert told[frame.token] == pytest.approx(chances[frame.token], abs=1e-5)  # however unlikely
    for name, layer in zip(tape, seen.parts["cross"]):
        np.testing.assert_allclose(tape[name][0].numpy(), layer.weights, atol=1e-5)


def test_a_part_or_a_layer_alone_is_recorded_alone() -> None:
    model = translator()
    whole = look(model, "abc", target="zz")
    layer = look(model, "abc", target="zz", layer=2)
    assert [one.name for one in layer.layers] == ["decoder.blocks.2.cross.read"]
    np.testing.assert_array_equal(layer.layers[0].weights, whole.parts["cross"][2].weights)
    encoder = look(model, "abc", target="zz", part="encoder")
    assert len(encoder.layers) == 3
    assert encoder.rows == encoder.columns == ["a", "b", "c"]
    assert encoder.matrix().label == "encoder · mean of 3 layers, all heads"
    with pytest.raises(UserError, match=r"layer=3: cross has layers 0 to 2"):
        look(model, "abc", target="zz", layer=3)
    with pytest.raises(UserError, match=r'part=encoders: no such part of tiny. Did you mean "encoder"'):
        look(model, "abc", part="encoders")
    with pytest.raises(UserError, match=r"part=cross: no such part"):
        look(speaker(), "abc", part="cross")


def test_contexts_and_masks_belong_to_their_layers() -> None:
    model, outputs = translator(), {}
    for path, module in attentions(model.module).items():
        module.register_forward_hook(lambda _module, _inputs, output, path=path: outputs.update({path: output[0]}))
    seen = look(model, "abc", target="zz")
    assert len(seen.layers) == len(outputs) == 9
    for layer in seen.layers:
        np.testing.assert_array_equal(layer.contexts, outputs[layer.name])
        assert layer.query == "layer"
        causal = np.tri(3, dtype=bool) if layer.part == "decoder" else np.ones((3, 3), dtype=bool)
        np.testing.assert_array_equal(layer.visible, causal)
    for settings in ({}, {"positions": "xl", "memory": 8}):
        assert np.array_equal(look(speaker(**settings), "ab ba").layers[2].visible, np.tri(6, dtype=bool))


def test_unknown_characters_are_shown_as_themselves() -> None:
    seen = look(translator(), "a👩‍👩‍👧b", target="zé")
    assert list(seen.columns) == ["a", "👩", "\u200d", "👩", "\u200d", "👧", "b"]
    assert [isinstance(piece, Unknown) for piece in seen.columns] == [False, *[True] * 5, False]
    assert list(seen.rows) == ["z", Unknown("é"), "<eos>"]
    assert list(seen.parts["decoder"][0].columns or ()) == ["<bos>", "z", "é"]
    assert [frame.token for frame in seen.frames or ()] == ["z", "é", "<eos>"]
    assert "é" in [piece for piece, _, _ in (seen.frames or ())[1].top]
    assert list(look(speaker(), "aé").columns) == ["<bos>", "a", Unknown("é")]
    assert list(look(speaker(), "  aé\n").columns) == ["<bos>", "a", Unknown("é")]  # the model reads no space around it
    assert list(look(reader(), "é[MASK]a").columns)[1:3] == ["é", "[MASK]"]


def test_a_language_model_looks_at_its_past() -> None:
    for settings in ({}, {"positions": "xl", "memory": 8}):
        seen = look(speaker(**settings), "ab ba")
        assert list(seen.columns) == ["<bos>", "a", "b", "␣", "b", "a"]
        assert list(seen.rows) == list(seen.columns)  # each looks at itself and at its past
        assert [frame.token for frame in seen.frames or ()] == ["a", "b", "␣", "b", "a", "<eos>"]
        assert [layer.weights.shape for layer in seen.layers] == [(4, 6, 6)] * 3
        assert np.triu(seen.layers[0].weights, 1).max() == 0
        assert len(seen.frames or ()) == 6


def test_a_reader_looks_both_ways_at_its_marks_too() -> None:
    seen = look(reader(), "ab[MASK]c")
    assert seen.rows == seen.columns
    assert any("MASK" in piece.upper() for piece in seen.columns)
    assert seen.frames is None
    assert np.triu(seen.layers[0].weights, 1).max() > 0


@pytest.mark.parametrize("causal", [True, False])
def test_a_body_under_a_head_is_named_by_its_attention(causal: bool) -> None:
    tokenizer, config = train_tokenizer("char", SOURCES, 40), GptConfig if causal else BertConfig
    body = config(vocab=tokenizer.size, **SMALL)  # type: ignore[arg-type]
    module = HeadedConfig(body, ClassHeadConfig(2).for_body(body)).build().eval()
    fields = {"text": InputText(tokenizer), "label": LabelField(("good", "bad"))}
    seen = look(Loaded(Path("tiny"), module, torch.device("cpu"), fields), "abc")
    assert list(seen.parts) == ["decoder" if causal else "encoder"]
    ahead = max(np.triu(layer.weights[0], 1).sum() for layer in seen.layers)
    assert (ahead == 0) == causal
    assert seen.frames is None


def test_layers_that_share_a_block_are_layers_of_their_own() -> None:
    seen = look(reader(groups=1), "abc")
    assert [layer.name for layer in seen.layers] == [f"stack.blocks.0.attention.read[{turn}]" for turn in range(3)]
    assert [layer.label for layer in seen.layers] == [f"encoder · layer {number}" for number in range(3)]
    assert not np.allclose(seen.layers[0].weights, seen.layers[1].weights)
    pairs = look(reader(groups=1, group_blocks=2), "abc")  # two blocks, each thrice, in turn
    assert [layer.name[-6:] for layer in pairs.layers] == [f"ead[{t}]"[-6:] for t in (0, 0, 1, 1, 2, 2)]
    assert [layer.number for layer in pairs.layers] == list(range(6))
    assert look(reader(groups=1), "abc", layer=1).layers[0].number == 1


def test_only_what_reads_the_source_counts_for_an_alignment() -> None:
    model = translator()
    assert sorted(set(parts(model.module).values())) == ["cross", "decoder", "encoder"]
    assert source_reads(model.module) == [f"decoder.blocks.{at}.cross.read" for at in range(3)]
    assert aligning(model) == "decoder.blocks.1.cross.read"  # the last but one
    pair = ("abc", "xy")  # three tokens are read and three said: lengths tell nothing
    with record(model.module) as tape:
        score(model, [pair])
    for layer in range(3):
        (one,) = align(model, [pair], layer=layer)
        mean = tape[f"decoder.blocks.{layer}.cross.read"][0].mean(0)[:2]
        np.testing.assert_allclose(one.weights, mean.numpy(), atol=1e-6)
    np.testing.assert_array_equal(align(model, [pair])[0].weights, align(model, [pair], layer=1)[0].weights)
    with pytest.raises(UserError, match=r"layer=3: in tiny layers 0 to 2"):
        align(model, [pair], layer=3)
    assert source_reads(translator(groups=1).module)[2] == "decoder.blocks.0.cross.read[2]"
    assert align(translator(groups=1), [pair])[0].weights.shape == (2, 3)


def test_a_tape_of_a_verb_has_captions_for_every_part_and_no_padding() -> None:
    model = translator()
    pairs = [("a", "x"), ("abc cab", "xyz zxy")]
    with record(model.module) as tape:
        score(model, pairs)
    alone = look(model, "a", target="x")
    seen = view(tape, item=0)
    assert {part: layers[0].weights.shape for part, layers in seen.parts.items()} == {
        "cross": (4, 2, 1),
        "encoder": (4, 1, 1),
        "decoder": (4, 2, 2),
    }
    for one, other in zip(seen.layers, alone.layers, strict=True):
        assert (one.name, list(one.rows or ()), list(one.columns or ())) == (
            other.name,
            list(other.rows or ()),
            list(other.columns or ()),
        )
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


def test_a_view_of_some_heads_and_layers_has_the_numbers_of_the_model() -> None:
    model = translator()
    with record(model.module) as whole:
        score(model, [("abc", "xy")])
    with record(model.module, "decoder.blocks.[12].cross.read", heads=[3, 1]) as tape:
        score(model, [("abc", "xy")])
    every, some = view(whole), view(tape)
    assert [(layer.number, layer.head_numbers) for layer in some.layers] == [(1, [3, 1]), (2, [3, 1])]
    np.testing.assert_allclose(some.only("cross", 2, 1).layers[0].weights, every.only("cross", 2, 1).layers[0].weights)
    assert some.matrix(layer=2, head=1).label == every.matrix(layer=2, head=1).label == "cross · layer 2 · head 1"
    with pytest.raises(UserError, match="layer=0: there are layers 1 to 2"):
        some.only("cross", 0)
    with pytest.raises(UserError, match=r"head=0: .* has heads 3, 1"):
        some.only("cross", 1, 0)
    with record(model.module, "decoder.blocks.1.cross.read", heads=[2]) as tape:
        score(model, [("abc", "xy")])
    assert view(tape).matrix().label == "cross · layer 1 · head 2"


def test_reads_without_captions_are_parted_by_their_names() -> None:
    model = translator()
    with record(model.module) as tape, torch.no_grad():
        state = model.module.start(torch.randint(4, 7, (1, 5)), capacity=3)  # type: ignore[union-attr, operator]
        model.module.advance(torch.randint(4, 7, (1, 3)), state)  # type: ignore[union-attr, operator]
    assert sorted(view(tape).parts) == [
        "decoder.blocks.*.attention.read",
        "decoder.blocks.*.cross.read",
        "encoder.blocks.*.attention.read",
    ]


def test_reads_of_different_shapes_are_parts_of_their_own_under_their_names() -> None:
    class Sized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([MultiHead(4, 2) for _ in range(2)])

    model = Sized()
    with record(model) as tape, torch.no_grad():
        for number, layer in enumerate(model.layers):
            layer(torch.randn(1, 3 + number, 4))
    assert list(view(tape).parts) == ["layers.0.read", "layers.1.read"]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_ends_where_positions_do(beam: int) -> None:
    model = translator(context=8)
    for limit in (None, 100):
        (one,) = translate(model, ["abcabc"], beam=beam, limit=limit)
        assert len(one.tokens) < 8
        assert one.logps is not None
        assert one.logp == pytest.approx(float(one.logps.sum()), abs=1e-4)
    assert len(translate(translator(context=8, positions="relative"), ["abcabc"], limit=20)[0].tokens) <= 20
    with pytest.raises(UserError, match=r"line 1: 9 tokens, but the model reads at most 8"):
        translate(model, ["abcabcabc"])
    with pytest.raises(UserError, match=r"text 1: a target of 8 tokens, but the model generates at most 7.*truncate"):
        score(model, [("a", "xyzxyzxy")])


def test_scores_are_the_chain_rule() -> None:
    model = speaker()
    (one,) = score(model, ["ab"])
    tokens = torch.tensor([model.tokenizer.special_tokens.wrap_target(model.tokenizer.encode("ab"))])
    logps = model.logits(tokens[:, :-1]).log_softmax(-1)[0]
    expected = [float(logps[at, token]) for at, token in enumerate(tokens[0, 1:])]
    np.testing.assert_allclose(one.logps, expected, atol=1e-5)
    with pytest.raises(UserError, match="regard fill"):
        score(reader(), ["ab"])
    with pytest.raises(UserError, match="regard fill"):
        translate(reader(), ["ab"])


def test_scores_look_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plain = translator(), score(translator(), [("abc", "xy")])
    written, record_read = list[str](), Recorder.record_read

    def noted(recorder: Recorder, *given: Any) -> None:
        written.append(recorder.name)
        record_read(recorder, *given)

    monkeypatch.setattr(Recorder, "record_read", noted)
    assert [one.total for one in score(model, [("abc", "xy")])] == [one.total for one in plain]
    assert written == []
    align(model, [("abc", "xy")])
    assert written == ["decoder.blocks.1.cross.read"]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_compiled_blocks_are_recorded_without_a_break_or_a_bit_of_difference(backend: str) -> None:
    torch._dynamo.reset()
    model = reader(groups=1, layers=2)
    tokens = torch.randint(4, 7, (2, 5))
    with torch.no_grad():
        with record(model.module) as eager:
            model.module.features(tokens)  # type: ignore[union-attr, operator]
        for block in model.module.stack.blocks:  # type: ignore[union-attr]
            block.compile(fullgraph=True, backend=backend)  # a break of the graph is an error
        plain = model.module.features(tokens)  # type: ignore[union-attr, operator]
        graphs = []
        for _ in range(3):
            with record(model.module) as tape:
                seen = model.module.features(tokens)  # type: ignore[union-attr, operator]
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
            assert torch.equal(plain, seen)
            assert tape.names() == eager.names() == [f"stack.blocks.0.attention.read[{turn}]" for turn in range(2)]
            assert all(torch.allclose(tape[name], eager[name], atol=1e-6) for name in eager)
    assert len(set(graphs)) == 1  # another tape needs no other program
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def public_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "bark", "##ed", "."]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)
    torch.manual_seed(0)
    transformers.BertForMaskedLM(config).save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(words) + "\n")
    return path


@pytest.fixture(scope="module")
def public_gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("gpt2")
    letters = [*"abcdefghij", "Ġ", "<|endoftext|>"]
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 16}
    config = transformers.GPT2Config(vocab_size=len(letters), bos_token_id=11, eos_token_id=11, **sizes)
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    (path / "vocab.json").write_text(json.dumps({letter: at for at, letter in enumerate(letters)}))
    (path / "merges.txt").write_text("#version: 0.2\n")
    return path


def test_a_public_reader_shows_its_marks_and_the_same_weights(public_bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = load(public_bert, device="cpu")
    seen = look(model, "the [MASK] barked.")
    assert list(seen.rows) == ["[CLS]", "the", "[MASK]", "bark", "##ed", ".", "[SEP]"]
    reference = transformers.BertModel.from_pretrained(public_bert, attn_implementation="eager").eval()
    ids = torch.tensor([[2, 5, 4, 7, 8, 9, 3]])
    with torch.no_grad():
        found = reference(ids, output_attentions=True).attentions
    for layer, theirs in zip(seen.layers, found, strict=True):
        np.testing.assert_allclose(layer.weights, theirs[0].numpy(), atol=1e-5)
    with pytest.raises(UserError, match="regard fill"):
        score(model, ["the dog"])


def test_a_public_language_model_is_scored_and_seen(public_gpt: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = load(public_gpt, device="cpu")
    reference = transformers.GPT2LMHeadModel.from_pretrained(public_gpt, attn_implementation="eager").eval()
    told = torch.tensor([[11, 0, 1, 2, 11]])
    with torch.no_grad():
        found = reference(told[:, :-1], output_attentions=True)
    expected = found.logits.log_softmax(-1)[0].gather(1, told[0, 1:, None])[:, 0]
    (one,) = score(model, ["abc"])
    np.testing.assert_allclose(one.logps, expected.numpy(), atol=1e-5)
    seen = look(model, "abc")
    assert list(seen.columns[1:]) == ["a", "b", "c"]
    for layer, theirs in zip(seen.layers, found.attentions, strict=True):
        np.testing.assert_allclose(layer.weights, theirs[0].numpy(), atol=1e-5)
    assert "decoder" in seen.html()


def test_a_public_translator_shows_all_three_parts(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    words = ["<pad>", "</s>", "<unk>", "▁the", "▁dog", "▁bark", "ed", "▁der", "▁Hund", "▁bell", "te"]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram([(word, -float(at)) for at, word in enumerate(words)], 2))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.save(str(tmp_path / "tokenizer.json"))
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    torch.manual_seed(0)
    transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=11, **sizes)).save_pretrained(tmp_path)
    model = load(tmp_path, device="cpu")
    seen = look(model, "the dog barked", target="der Hund bellte")
    reads, says = ["▁the", "▁dog", "▁bark", "ed", "</s>"], ["▁der", "▁Hund", "▁bell", "te", "</s>"]
    assert (list(seen.rows), list(seen.columns)) == (says, reads)
    reference = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.no_grad():
        given = {"input_ids": torch.tensor([[3, 4, 5, 6, 1]]), "decoder_input_ids": torch.tensor([[0, 7, 8, 9, 10]])}
        found = reference(**given, output_attentions=True)
    for part in ("encoder", "decoder", "cross"):
        for layer, theirs in zip(seen.parts[part], found[f"{part}_attentions"], strict=True):
            np.testing.assert_allclose(layer.weights, theirs[0].numpy(), atol=1e-5)
    (one,) = align(model, [("the dog barked", "der Hund bellte")], layer=1)
    assert (one.source, one.target) == (["the", "dog", "barked"], ["der", "Hund", "bellte"])
    pieces = seen.parts["cross"][1].weights.mean(0)[:4, :4]  # of the text alone, neither end
    merged = [[pieces[0, 0], pieces[0, 1], pieces[0, 2:].sum()]]
    np.testing.assert_allclose(one.weights[:1], merged, atol=1e-5)


def test_the_commands_show_parts_layers_and_the_chain_rule(
    public_gpt: Path, public_bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    one = translator(layers=1)
    assert {layer.label for layer in look(one, "abc", target="zz").layers} == {"encoder", "decoder", "cross"}
    assert "decoder · mean of 2 layers, all heads" in said("look", public_gpt, "abc")
    assert "decoder · layer 1 · head 3" in said("look", public_gpt, "abc", "--layer", 1, "--head", 3)
    found = json.loads(said("look", public_bert, "the dog", "--json", "--layer", 0))
    assert found["parts"] == {"stack.blocks.0.attention.read": "encoder"}  # a program is told the path
    assert found["axes"]["encoder"]["rows"] == ["[CLS]", "the", "dog", "[SEP]"]
    said("look", public_bert, "the dog", "--layer", 1, "--lines", "-o", tmp_path / "look.svg")
    assert "head 3, [CLS]" in (tmp_path / "look.svg").read_text(encoding="utf-8")
    (tmp_path / "lines.txt").write_text("abc\n")
    told = said("score", public_gpt, tmp_path / "lines.txt", "--tokens").splitlines()
    assert told[0].split() == ["piece", "p(piece", "|", "before)", "ln", "p", "sum"]
    pieces = [line.split() for line in told[1:5]]
    assert [piece[0] for piece in pieces[:3]] == ["a", "b", "c"]
    sums = np.cumsum([np.log(float(piece[1])) for piece in pieces])
    np.testing.assert_allclose([float(piece[3]) for piece in pieces], sums, atol=1e-3)
    assert f"ln p(text) = {pieces[-1][3]}" in told[5]


def test_align_names_the_layer_that_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs.tsv").write_text("abc\txy\n")
    for layers, given, place in ((3, [], "1 of 0 to 2"), (3, ["--layer", "2"], "2 of 0 to 2"), (1, [], "")):
        model = translator(layers=layers)
        monkeypatch.setattr("regard.cli.options.opened", lambda *_, model=model: model)
        assert main(["align", str(tmp_path), str(tmp_path / "pairs.tsv"), *given]) == 0
        assert capsys.readouterr().err == (f"aligned by layer {place}, the mean of its heads\n" if place else "")


def test_the_json_of_look_is_the_view_that_was_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = translator()
    monkeypatch.setattr("regard.cli.options.opened", lambda *_: model)
    whole = look(model, "ab?", target="zz")
    for given, seen in (
        ([], whole),
        (["--part", "cross", "--layer", "2"], whole.only("cross", 2)),
        (["--part", "encoder", "--layer", "0", "--head", "1"], whole.only("encoder", 0, 1)),
        (
            ["--part", "decoder", "--layer", "1", "--head", "0", "-o", str(tmp_path / "look.npz")],
            whole.only("decoder", 1, 0),
        ),
    ):
        assert main(["look", str(tmp_path), "ab?", "--target", "zz", "--json", *given]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["title"], found["rows"], found["columns"]) == ("ab? → zz", list(seen.rows), list(seen.columns))
        assert found["parts"] == {layer.name: layer.part for layer in seen.layers}
        for layer in seen.layers:
            np.testing.assert_allclose(found["layers"][layer.name], layer.weights, rtol=1e-6)
        for part, (first, *_) in seen.parts.items():
            unknown = {"rows": [2] if part == "encoder" else [], "columns": [] if part == "decoder" else [2]}
            for side, pieces in (("rows", first.rows), ("columns", first.columns)):
                assert found["axes"][part][side] == list(pieces or ())
                assert found["axes"][part][f"unknown_{side}"] == unknown[side]
    assert (tmp_path / "look.npz").is_file()


def test_one_part_alone_may_have_no_steps() -> None:
    """The rows of the encoder are of the source, which nobody says."""
    encoder = look(translator(), "abc", target="zz", part="encoder")
    assert (list(encoder.rows), encoder.frames) == (["a", "b", "c"], None)
    decoder = look(translator(), "abc", target="zz", part="decoder")
    assert [frame.token for frame in decoder.frames or ()] == ["z", "z", "<eos>"]
    source = look(translator(), "abc", target="zz", part="encoder", layer=1)
    assert len(source.layers) == 1


@pytest.mark.parametrize("model", [speaker, reader])
def test_a_target_is_for_translators(model: Callable[[], Loaded]) -> None:
    with pytest.raises(UserError, match=r"--target .in Python: target.: tiny is .*; leave it out"):
        look(model(), "abc", target="zz")
