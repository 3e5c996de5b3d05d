"""The verbs on tiny random models: a batch is its lines, forced scoring is the search, looking changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.checkpoint import resolve
from regard.errors import UserError
from regard.recording import Axes, record
from regard.render.view_data import Unknown
from regard.stored import read_fields
from regard.verbs import align, aligned, classify, generate, load, look, score, translate, view
from regard.verbs.forced import kept

Make = Callable[..., Path]
LINES = ["abc cab", "", "a", "cc bb aa cc bb aa", "   ", "b?a", "bca cab abc", "ab"]
DECODERS = ("once", "every", "bahdanau", "luong", "luong-feeding")


# Of the decoders, the fast tests have one of each kind of state: without attention, and with it before or after a step.
SOME_DECODERS = [
    pytest.param(one, marks=pytest.mark.slow) if one in ("every", "luong-feeding") else one for one in DECODERS
]


@pytest.mark.parametrize("decoder", SOME_DECODERS)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_batch_gives_what_each_line_alone_gives(translator: Make, decoder: str, beam: int) -> None:
    model = load(translator(decoder=decoder), device="cpu")
    together = translate(model, LINES, beam=beam, nbest=beam, batch_tokens=200)
    alone = [(line, one) for line, text in enumerate(LINES) for one in translate(model, [text], beam=beam, nbest=beam)]
    assert [(one.line, one.tokens) for one in together] == [(line, one.tokens) for line, one in alone]
    assert [one.score for one in together] == pytest.approx([one.score for _, one in alone], abs=1e-4)


@pytest.mark.parametrize("decoder", SOME_DECODERS)
@pytest.mark.parametrize(("beam", "penalty"), [(1, 1.0), (4, 0.0), (4, 0.6)])
def test_forced_scoring_reproduces_every_score(translator: Make, decoder: str, beam: int, penalty: float) -> None:
    model = load(translator(decoder=decoder), device="cpu")
    for one in translate(model, [line for line in LINES if line.strip()], beam=beam, nbest=beam, penalty=penalty):
        assert one.logps is not None
        assert len(one.logps) == len(one.tokens) + (one.ended == "end")
        assert one.logp == pytest.approx(float(one.logps.sum()), abs=1e-4)
        assert one.score == pytest.approx(one.logp / len(one.logps) ** penalty, abs=1e-4)


def test_blank_lines_are_answered_in_place(translator: Make) -> None:
    model = load(translator(), device="cpu")
    answers = translate(model, LINES, beam=2, nbest=2)
    assert [one.text for one in answers if one.line == 1] == [""]
    assert [one.line for one in answers] == sorted(one.line for one in answers)
    assert {one.line for one in answers} == set(range(len(LINES)))
    assert translate(model, []) == []
    assert [one.text for one in translate(model, ["", " "])] == ["", ""]


@pytest.mark.parametrize("beam", [1, 3])
def test_the_limit_bounds_every_answer_and_cuts_it_short(translator: Make, beam: int) -> None:
    model = load(translator(), device="cpu")
    whole, cut = (translate(model, LINES, beam=beam, limit=limit) for limit in (None, 2))
    for one, short in zip(whole, cut):
        assert len(short.tokens) + (short.ended == "end") <= 2
        assert short.ended == "end" or len(short.tokens) == 2
        if beam == 1:
            assert short.tokens == one.tokens[:2]
    assert {one.ended for one in cut} == {"end", "limit"}  # a blank line ends at once
    with pytest.raises(UserError, match="limit=0"):
        translate(model, LINES, limit=0)


@pytest.mark.parametrize("beam", [1, 3])
def test_what_spells_no_text_is_never_said(translator: Make, beam: int) -> None:
    """A model that likes nothing better than the marks and the unknown."""
    model = load(translator(decoder="luong"), device="cpu")
    assert model.forbidden == (0, 1, 3)
    with torch.no_grad():
        model.module.readout_.bias[list(model.forbidden)] += 50.0
    for one in translate(model, LINES, beam=beam, nbest=beam):
        assert not {*model.forbidden, 2} & set(one.tokens)
        assert "\N{REPLACEMENT CHARACTER}" not in one.text


def test_alignments_fit_their_pieces_and_rows_sum_to_one(translator: Make) -> None:
    (one,) = translate(load(translator(), device="cpu"), ["abc cab"])
    assert one.alignment is not None
    assert one.alignment.shape == (len(one.target_pieces), len(one.source_pieces))
    assert one.source_pieces == ["a", "b", "c", "␣", "c", "a", "b"]
    np.testing.assert_allclose(one.alignment.sum(axis=1), 1.0, atol=1e-5)


def test_a_model_without_attention_translates_but_has_no_alignment(translator: Make) -> None:
    model = load(translator(decoder="once"), device="cpu")
    assert translate(model, ["abc"])[0].alignment is None
    with pytest.raises(UserError, match="no attention"):
        align(model, [("abc", "xyz")])
    assert look(model, "abc").layers == []


def test_a_tape_gets_one_forced_pass_and_nothing_of_the_search(translator: Make) -> None:
    model = load(translator(), device="cpu")
    (plain,) = translate(model, ["abc cab"], beam=3)
    with record(model.module) as tape:
        (taped,) = translate(model, ["abc cab"], beam=3)
    assert (plain.text, plain.score) == (taped.text, taped.score)
    assert plain.alignment is not None
    (name,) = tape.names()
    assert tape[name].shape == (1, len(plain.tokens) + 1, 7)
    np.testing.assert_allclose(tape[name][0, :-1].numpy(), plain.alignment, atol=1e-6)
    seen = view(tape)
    assert (list(seen.rows[:-1]), list(seen.columns)) == (plain.target_pieces, plain.source_pieces)


def test_every_item_of_a_tape_has_its_own_captions(translator: Make) -> None:
    model = load(translator(), device="cpu")
    with record(model.module) as tape:
        answers = translate(model, ["abc cab", "", "a", "cc bb"], beam=2, nbest=2, limit=9)
    there = [one for one in answers if one.source_tokens]
    assert len(there) == 6
    for item, one in enumerate(there):  # those of the blank line are left out
        seen = view(tape, item=item)
        assert (list(seen.rows), list(seen.columns)) == ([*one.target_pieces, "<eos>"], one.source_pieces)
        np.testing.assert_allclose(seen.layers[0].weights[0, :-1], one.alignment, atol=1e-6)
    assert list(view(tape, rows=["x"], item=1).rows) == ["x"]
    with pytest.raises(UserError, match="item=6"):
        view(tape, item=6)


def test_captions_follow_the_rows_that_are_kept(translator: Make) -> None:
    model, pairs = load(translator(), device="cpu"), [("a", "x"), ("abc", "xyz")]
    with record(model.module, rows=[0, 2]) as tape:
        score(model, pairs)
    assert list(view(tape, item=1).rows) == ["x", "z"]
    assert list(view(tape, item=0).rows) == ["x", ""]
    with record(model.module) as whole:
        score(model, pairs)
    np.testing.assert_array_equal(
        view(tape, item=1).layers[0].weights, view(whole, item=1).layers[0].weights[:, [0, 2]]
    )


def test_every_verb_gives_a_tape_one_pass_in_the_order_of_its_input(
    translator: Make, language: Path, classifier: Path
) -> None:
    texts = ["cc bb aa cc", "a", "abc cab"]  # neither from short to long nor the other way
    pairs = [(text, "xyz"[: len(text)]) for text in texts]
    calls = {
        "translate": (translator(), lambda model: translate(model, texts, batch_tokens=200, limit=6)),
        "score": (translator(), lambda model: score(model, pairs, batch_tokens=50)),
        "align": (translator(), lambda model: align(model, pairs, batch_tokens=50)),
        "score lines": (language, lambda model: score(model, texts, batch_tokens=50)),
        "classify": (classifier, lambda model: classify(model, texts, batch_tokens=12)),
    }
    for name, (run, call) in calls.items():
        model = load(run, device="cpu")
        plain = call(model)
        with record(model.module) as tape:
            watched = call(model)
        assert len(plain) == len(watched) == 3
        (path,) = tape.names()
        assert len(tape[path]) == len(tape.captions) == 3, name
        for item, text in enumerate(texts):
            seen, rows = view(tape, item=item), look(model, text)
            names = ["<unk>" if isinstance(piece, Unknown) else piece for piece in rows.columns]
            assert list(seen.columns) == names, name
            if name in ("score lines", "classify"):
                assert list(seen.rows) == list(rows.rows)
                np.testing.assert_allclose(seen.layers[0].weights, rows.layers[0].weights, atol=1e-5)
        if name == "align":
            for item, one in enumerate(watched):
                np.testing.assert_allclose(view(tape, item=item).layers[0].weights[0, :-1], one.weights, atol=1e-5)


def test_a_tape_holds_one_batch_and_one_pass(translator: Make, classifier: Path) -> None:
    model = load(translator(), device="cpu")
    for call in (
        lambda: translate(model, ["abc"] * 20, batch_tokens=64),
        lambda: score(model, [("abc", "xyz")] * 20, batch_tokens=64),
        lambda: align(model, [("abc", "xyz")] * 20, batch_tokens=64),
    ):
        with record(model.module) as tape, pytest.raises(UserError, match="pass fewer lines"):
            call()
        assert len(tape) == 0
    reader = load(classifier, device="cpu")
    with record(reader.module), pytest.raises(UserError, match="pass fewer lines"):
        classify(reader, ["ab ba"] * 20, batch_tokens=32)
    with record(model.module) as tape:
        score(model, [("abc", "xyz")], batch_tokens=2)  # one text always fits
        with pytest.raises(UserError, match="already holds a pass"):
            translate(model, ["abc"])
        look(model, "abc")
    (path,) = tape.names()
    assert tape[path].shape == (1, 4, 3)


def test_one_text_where_a_list_belongs_is_refused(translator: Make, language: Path, classifier: Path) -> None:
    model = load(translator(), device="cpu")
    for call in (
        lambda: translate(model, "abc"),
        lambda: score(model, "abc"),
        lambda: align(model, "abc"),  # type: ignore[arg-type]
        lambda: score(load(language, device="cpu"), "abc"),
        lambda: classify(load(classifier, device="cpu"), "abc"),
    ):
        with pytest.raises(UserError, match=r"one text; pass a list of them, such as \['abc'\]"):
            call()


def test_look_takes_one_text(translator: Make) -> None:
    with pytest.raises(UserError, match="this is a list; look takes one text"):
        look(load(translator()), ["abc"])  # type: ignore[arg-type]


def test_an_empty_tape_cannot_be_viewed(translator: Make) -> None:
    with record(load(translator(), device="cpu").module) as tape:
        pass
    with pytest.raises(UserError, match="empty"):
        view(tape)


def test_scores_of_pairs_and_of_lines(translator: Make, language: Path) -> None:
    model = load(translator(), device="cpu")
    best = translate(model, ["a"], beam=3)[0]
    assert (best.ended, best.text.strip()) == ("end", best.text)
    first, other = score(model, [("a", best.text), ("a", "zzzzzz")])
    assert first.total == pytest.approx(best.logp, abs=1e-4)
    assert first.perplexity < other.perplexity
    assert first.perplexity == pytest.approx(np.exp(-first.total / len(first.logps)))
    assert other.pieces == [*"zzzzzz", "<eos>"]
    (line,) = score(load(language, device="cpu"), ["ab ba"])
    assert len(line.logps) == len("ab ba") + 1
    with pytest.raises(UserError, match="pair"):
        score(model, ["abc"])
    with pytest.raises(UserError, match="a line of text"):
        score(load(language, device="cpu"), [("abc", "xyz")])


def test_an_empty_list_has_an_empty_answer(translator: Make, language: Path, classifier: Path) -> None:
    pairs, lines = load(translator(), device="cpu"), load(language, device="cpu")
    assert score(pairs, []) == align(pairs, []) == translate(pairs, []) == score(lines, []) == []
    assert generate(lines, []) == classify(load(classifier, device="cpu"), []) == []


@torch.no_grad()
def test_labels_are_ranked_by_their_probabilities(classifier: Path) -> None:
    model, texts = load(classifier, device="cpu"), ["ab ba", "cc", "a b c"]
    ids = [torch.tensor([model.tokenizer.encode(text)]) for text in texts]
    for sign in (1, -1):  # each label is the likeliest once
        with model.module.register_forward_hook(lambda module, given, found, sign=sign: sign * found):
            answers = classify(model, texts)
        for one, tokens in zip(answers, ids):
            expected = dict(zip(("bad", "good"), (sign * model.logits(tokens))[0].softmax(0).tolist()))
            assert one.labels == pytest.approx(expected, abs=1e-6)
            assert list(one.labels) == sorted(expected, key=lambda name: -expected[name])
            assert (one.label, one.probability) == next(iter(one.labels.items()))


def test_rows_that_a_batch_does_not_have_are_left_out() -> None:
    axes = Axes(["a", "b"], ["x"], "cross")
    assert kept(axes, None, 3) is axes
    for rows, names in (([0], ["a"]), ([1, 0], ["b", "a"]), ([-1, 1, 2, 3, 9], ["b", ""]), ([], [])):
        assert kept(axes, rows, 3).rows == names  # the third row is padding of a longer text
        assert kept(axes, rows, 3).columns == ["x"]


def test_batch_mates_do_not_change_a_score(translator: Make, language: Path) -> None:
    model, pairs = load(translator(), device="cpu"), [("a", "xyz zxy"), ("abc cab bca", "x"), ("cc", "zz")]
    alone = [score(model, [pair])[0].total for pair in pairs]
    assert [one.total for one in score(model, pairs)] == pytest.approx(alone, abs=1e-4)
    speaker, lines = load(language, device="cpu"), ["ab ba", "c", "abc cab bca"]
    apart = [score(speaker, [line])[0].total for line in lines]
    assert [one.total for one in score(speaker, lines)] == pytest.approx(apart, abs=1e-4)


def test_alignment_by_word_merges_pieces(translator: Make) -> None:
    model = load(translator(tokens="bpe"), device="cpu")
    (one,) = align(model, [("abc cab a", "xyz zxy")])
    assert (one.source, one.target) == (["abc", "cab", "a"], ["xyz", "zxy"])
    assert one.weights.shape == (2, 3)
    np.testing.assert_allclose(one.weights.sum(axis=1), 1.0, atol=1e-5)
    assert {j for _, j in one.links} == {0, 1}
    assert {i for i, _ in one.links} <= {0, 1, 2}
    pieces = align(model, [("abc cab a", "xyz zxy")], unit="piece")[0]
    assert len(pieces.source) >= 3
    with pytest.raises(UserError, match=r'Did you mean "word"'):
        align(model, [("a", "x")], unit="words")


def test_a_link_is_the_source_and_the_target_of_the_greatest_weight(translator: Make) -> None:
    pieces, words = (load(translator(tokens=tokens), device="cpu") for tokens in ("char", "word"))
    weights = np.array([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3], [1.0, 0.0]])  # the last row is that of eos
    for model, source, target in ((pieces, "ab", "xyz"), (words, "ab cc", "xy yx zz")):
        assert model.source_tokenizer is not None
        ids = model.source_tokenizer.encode(source), model.target_tokenizer.encode(target)
        one = aligned(model, ids, weights)
        assert one.source == (source.split() if " " in source else list(source))
        assert one.target == (target.split() if " " in target else list(target))
        assert one.links == [(0, 2), (1, 0), (1, 1)]
        np.testing.assert_array_equal(one.weights, weights[:3])
        assert aligned(model, ids, weights, method="mutual").links == [(0, 2), (1, 0)]


def test_characters_are_aligned_as_they_are(translator: Make) -> None:
    model = load(translator(), device="cpu")
    assert align(model, [("ab ba", "xy")])[0].weights.shape == (2, 5)
    assert align(model, [("ab ba", "xy")], unit="word")[0].weights.shape == (1, 2)
    one = translate(model, ["ab ba"])[0]
    links = aligned(model, (one.source_tokens, one.tokens), one.alignment).links
    assert len(links) == len(one.tokens)


@pytest.mark.parametrize("tokens", ["char", "word", "bpe", "byte-bpe"])
def test_the_texts_of_all_steps_are_the_output(translator: Make, tokens: str) -> None:
    model = load(translator(tokens=tokens), device="cpu")
    seen = look(model, "ab ba", target="xyz zxy x")
    assert seen.frames is not None
    assert "".join(frame.text or "" for frame in seen.frames) == "xyz zxy x"


@pytest.mark.parametrize("decoder", DECODERS)
def test_looking_steps_through_the_target(translator: Make, decoder: str) -> None:
    model = load(translator(decoder=decoder), device="cpu")
    (best,) = translate(model, ["abc"])
    seen = look(model, "abc")
    assert list(seen.rows) == [*best.target_pieces, "<eos>"]
    assert seen.frames is not None
    for frame, token in zip(seen.frames, seen.rows, strict=True):
        assert frame.token == token
        likeliest = next(piece for piece, _, _ in frame.top if piece not in ("<pad>", "<bos>", "<unk>"))
        assert token in (likeliest, "<eos>")  # greedy; the limit may cut it short
        assert sum(chance for _, _, chance in frame.top) <= 1 + 1e-6
        assert frame.state.shape == (16,)
    previous = [seen.frames[0].before, *(frame.state for frame in seen.frames)]
    assert all(np.array_equal(frame.before, before) for frame, before in zip(seen.frames, previous))
    assert bool(seen.layers) == (decoder not in ("once", "every"))
    if seen.layers:  # the query is s(t-1) in Bahdanau's decoder, s(t) in Luong's
        (layer,) = seen.layers
        assert layer.query == ("before" if decoder == "bahdanau" else "state")
        queries = np.stack([getattr(frame, layer.query) for frame in seen.frames])
        module = model.module.decoder.attention
        with torch.no_grad():
            encoded = model.module.encode(torch.tensor([model.tokenizer.encode("abc")]))
            found = module.look(torch.tensor(queries)[None], module.memory(encoded))
        np.testing.assert_allclose(layer.weights, found.weights, atol=1e-5)
        np.testing.assert_allclose(layer.contexts, found.context, atol=1e-5)
        assert layer.visible.all()
    if seen.layers and best.alignment is not None:
        np.testing.assert_allclose(seen.layers[0].weights[0, :-1], best.alignment, atol=1e-5)
    assert list(look(model, "abc", target="zz").rows) == ["z", "z", "<eos>"]


def test_looking_at_other_tasks(language: Path, classifier: Path) -> None:
    seen = look(load(language, device="cpu"), "ab ba")
    assert (list(seen.columns), len(seen.rows)) == (["<bos>", "a", "b", "␣", "b", "a"], 6)
    assert np.triu(seen.layers[0].weights[0]).sum() == 0  # the past only
    hops = look(load(classifier, device="cpu"), "ab ba cc")
    assert (list(hops.rows), len(hops.columns)) == (["hop 1", "hop 2"], 3)


def test_a_run_has_a_class_name_for_each_output(classifier: Path) -> None:
    model = load(classifier, device="cpu")
    config = replace(model.module.config, labels=3)
    with pytest.raises(UserError, match=r"label\.json: 2 class names, but the model has 3 outputs; restore the file"):
        read_fields(resolve(classifier), model.task, config)


def test_classes_and_their_probabilities(classifier: Path) -> None:
    model = load(classifier, device="cpu")
    answers = classify(model, ["ab ba", "cc", "a b c"])
    assert [sum(one.labels.values()) for one in answers] == pytest.approx([1, 1, 1])
    assert all(set(one.labels) == {"good", "bad"} and one.label == next(iter(one.labels)) for one in answers)
    assert classify(model, ["cc"])[0].probability == pytest.approx(answers[1].probability, abs=1e-5)


def test_a_long_source_is_refused_by_number_or_cut(translator: Make) -> None:
    path = translator()
    with pytest.raises(UserError, match=r"line 2: 40 tokens.*at most 32.*truncate"):
        translate(load(path, device="cpu"), ["a", "b" * 40])
    cut = load(path, device="cpu", long="truncate")
    assert translate(cut, ["b" * 40])[0].tokens == translate(cut, ["b" * 32])[0].tokens


def test_a_verb_on_the_wrong_kind_of_model_names_the_right_one(
    translator: Make, language: Path, classifier: Path
) -> None:
    with pytest.raises(UserError, match="regard generate"):
        translate(load(language, device="cpu"), ["a"])
    with pytest.raises(UserError, match="regard classify"):
        score(load(classifier, device="cpu"), ["a"])
    with pytest.raises(UserError, match="regard translate"):
        classify(load(translator(), device="cpu"), ["a"])


def test_loading_says_what_is_wrong(translator: Make, tmp_path: Path) -> None:
    for settings in ({"precision": "fp8"}, {"long": "wrap"}, {"device": "tpu"}):
        with pytest.raises(UserError, match=next(iter(settings))):
            load(translator(), **settings)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no such directory"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no checkpoint"):
        load(tmp_path)
    loaded = load(translator(), device="cpu")
    assert (loaded.step, loaded.recipe.name, loaded.module.training) == (7, "tiny", False)
    assert load(translator() / "steps" / "000007", device="cpu").step == 7


def test_bf16_translates(translator: Make) -> None:
    model = load(translator(), device="cpu", precision="bf16")
    assert all(np.isfinite(one.score) for one in translate(model, ["abc", "cab"], beam=2))


@pytest.mark.parametrize(("beam", "nbest"), [(0, 1), (2, 3), (1, 2)])
def test_impossible_searches_are_refused(translator: Make, beam: int, nbest: int) -> None:
    with pytest.raises(UserError, match="beam"):
        translate(load(translator(), device="cpu"), ["abc"], beam=beam, nbest=nbest)


@pytest.mark.parametrize("beam", [1, 2])
@pytest.mark.parametrize("penalty", [-0.1, 10.5, float("nan"), float("inf")])
def test_a_penalty_out_of_bounds_is_refused_with_any_beam(translator: Make, beam: int, penalty: float) -> None:
    with pytest.raises(UserError, match="penalty"):
        translate(load(translator(), device="cpu"), ["abc"], beam=beam, penalty=penalty)


def test_verbs_leave_no_gradient_behind(translator: Make) -> None:
    model = load(translator(), device="cpu")
    translate(model, ["abc"], beam=2)
    score(model, [("abc", "xyz")])
    look(model, "abc")
    assert all(weight.grad is None for weight in model.module.parameters())
    assert torch.is_grad_enabled()
