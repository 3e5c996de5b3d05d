"""Generate: equal to the reference, equal in any company, ended where it should be, in pieces or at once."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard import Penalty, UserError, edit, generate, generate_stream, load, record
from regard.data.fields import TargetText
from regard.data.sources import Lines
from regard.data.streams import Book, RunningText
from regard.data.tokenizers import train_tokenizer
from regard.models import GptConfig, LstmnConfig, ModelConfig
from regard.objectives import TeacherForcing
from regard.recipes import Plan, Recipe
from regard.verbs import Loaded
from tiny_public import CONTEXT, LINES, bert, gpt2, transformers

PROMPTS = ["the grey", "a", "rain fell on", "Η βάρκα 🙂", "", "the grey"]
DRAWN = {"temperature": 1.3, "top_k": 30, "top_p": 0.95, "seed": 4}


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    folder = tmp_path_factory.mktemp("public")
    return folder, gpt2(folder)


@pytest.fixture(scope="module")
def model(public: tuple[Path, object]) -> Loaded:
    return load(public[0], device="cpu")


def test_a_model_that_was_loaded_in_inference_mode_is_used_outside_of_it(public: tuple[Path, object]) -> None:
    with torch.inference_mode():
        loaded = load(public[0], device="cpu")
    (found,), (expected,) = (generate(one, ["the grey"], limit=3) for one in (loaded, load(public[0], device="cpu")))
    assert found.text == expected.text


SHAPE = {"width": 16, "heads": 2, "layers": 2, "inner": 24, "dropout": 0.0}
OURS: dict[str, Callable[[int], ModelConfig]] = {
    "gpt": lambda vocab: GptConfig(**SHAPE, vocab=vocab, context=24),
    "relative": lambda vocab: GptConfig(**SHAPE, vocab=vocab, context=24, positions="t5"),
    "xl": lambda vocab: GptConfig(**SHAPE, vocab=vocab, positions="xl", memory=40),
    "lstmn": lambda vocab: LstmnConfig(vocab=vocab, width=12, embed=8, context=24),
}


@pytest.fixture(scope="module")
def ours() -> Callable[..., Loaded]:
    """Makes a language model of ours, of a family, with weights that are far from even."""
    made: dict[str, Loaded] = {}

    def make(family: str, running: bool = False, long: str = "error") -> Loaded:
        name = f"{family}-{running}"
        if name not in made:
            tokenizer = train_tokenizer("char", LINES, 90)
            config = OURS[family](tokenizer.size)
            data = Book() if running else Lines()
            recipe = Recipe("tiny", "a tiny model", data, config, TeacherForcing(), Plan(), ("perplexity",))
            fields = {"text": RunningText(tokenizer) if running else TargetText(tokenizer)}
            made[name] = Loaded(Path(name), config.build().eval(), torch.device("cpu"), fields, recipe)
            with torch.no_grad():
                torch.manual_seed(8)
                for weight in made[name].module.parameters():
                    weight.copy_(0.5 * torch.randn_like(weight))
                if family == "gpt":  # its end is never the likeliest, so that it meets the end of the context
                    made[name].module.embedding.tokens.weight[tokenizer.special_tokens.eos] = 0.0
        return replace(made[name], long=long)

    return make


def by_definition(model: Loaded, read: list[int], limit: int) -> list[int]:
    """The whole text read anew for every token."""
    said: list[int] = []
    special_tokens = model.target_tokenizer.special_tokens
    for _ in range(limit):
        logits = model.logits(torch.tensor([read + said]))[0, -1].clone()
        logits[list(special_tokens.forbidden)] = float("-inf")
        token = int(logits.argmax())
        if token == special_tokens.eos:
            break
        said.append(token)
    return said


def test_greedy_is_the_references(public: tuple[Path, object], model: Loaded) -> None:
    folder, reference = public
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left", pad_token="<|endoftext|>")
    prompts = [prompt for prompt in PROMPTS if prompt]
    found = generate(model, prompts, limit=14)
    for prompt, one in zip(prompts, found):
        ids = tokenizer(prompt, return_tensors="pt")
        expected = reference.generate(**ids, do_sample=False, max_new_tokens=14, pad_token_id=0)[0]
        assert _until_end(expected[ids["input_ids"].shape[1] :].tolist()) == one.tokens
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    padded = reference.generate(**batch, do_sample=False, max_new_tokens=14, pad_token_id=0)
    assert [_until_end(row) for row in padded[:, batch["input_ids"].shape[1] :].tolist()] == [
        one.tokens for one in found
    ]
    assert len({tuple(one.tokens) for one in found}) > 2, "the model says the same to everything: nothing was tested"


@pytest.mark.parametrize(("stop", "early"), [("present", False), ("exact", "never")])
@pytest.mark.parametrize("limit", [3, 8])
def test_a_beam_is_the_references(public: tuple[Path, object], limit: int, stop: str, early: object) -> None:
    """Texts that end and texts that the limit cuts short, compared with one another."""
    folder, reference = public
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), load(folder, device="cpu")
    reference = copy.deepcopy(reference)
    with torch.no_grad():
        for weight in (model.module.embedding.tokens.weight, reference.transformer.wte.weight):
            weight[0] = 2 * weight[20]  # the end is now and then likely
    prompts = [prompt for prompt in [*PROMPTS, *(line[:20] for line in LINES)] if prompt]
    found = generate(model, prompts, limit=limit, beam=3, penalty=Penalty(1.0, stop=stop))
    for prompt, one in zip(prompts, found):
        ids = tokenizer(prompt, return_tensors="pt")
        how = {"num_beams": 3, "length_penalty": 1.0, "early_stopping": early, "do_sample": False}
        expected = reference.generate(**ids, **how, max_new_tokens=limit, pad_token_id=0)[0]
        assert _until_end(expected[ids["input_ids"].shape[1] :].tolist()) == one.tokens
    assert {one.ended for one in found} == {"end", "limit"}


def test_a_seed_may_be_a_number_of_numpy_or_be_drawn(model: Loaded) -> None:
    how = {**DRAWN, "limit": 6}
    (one,) = generate(model, ["the"], **{**how, "seed": np.int64(1234567890)})
    (same,) = generate(model, ["the"], **{**how, "seed": 1234567890})
    assert one.tokens == same.tokens
    (drawn,), (other,) = (generate(model, ["the"], **{**how, "seed": None}) for _ in range(2))
    assert drawn.seed is not None
    assert drawn.seed != other.seed
    assert generate(model, ["the"], **{**how, "seed": drawn.seed})[0].tokens == drawn.tokens
    pieces = list(generate_stream(model, "the", **{**how, "seed": drawn.seed}))
    assert "".join(piece.text for piece in pieces) == drawn.text
    assert {piece.seed for piece in pieces} == {drawn.seed}
    assert generate(model, ["the"], limit=2)[0].seed is None  # greedy: nothing is drawn


@pytest.mark.parametrize("how", [{}, DRAWN, {"beam": 3}], ids=["greedy", "drawn", "beam"])
@pytest.mark.parametrize("running", [False, True])
def test_what_spells_no_text_is_never_said(ours: Callable[..., Loaded], running: bool, how: dict[str, float]) -> None:
    """A model that likes nothing better than its special tokens and the unknown."""
    model = ours("lstmn", running)
    silent = (0, 1, 2, 3) if running else (0, 1, 3)  # running text has no end
    assert model.forbidden == silent
    if running and "beam" in how:
        return
    module = copy.deepcopy(model.module)
    with torch.no_grad():
        module.readout_.bias[list(silent)] += 30.0
    for one in generate(replace(model, module=module), ["the grey", "a"], limit=9, **how):
        assert one.tokens
        assert not {*silent, 2} & set(one.tokens)
        assert (one.logps < -20).all()  # as the model has it, which would have said something else


def _until_end(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(0)] if 0 in tokens else tokens  # <|endoftext|> is 0


@pytest.mark.parametrize("family", OURS)
def test_greedy_is_the_definition_in_every_family(ours: Callable[..., Loaded], family: str) -> None:
    model = ours(family)
    begin = model.target_tokenizer.special_tokens.bos
    for prompt, one in zip(PROMPTS, generate(model, PROMPTS, limit=9)):
        read = [begin, *model.target_tokenizer.encode(prompt)]
        if model.longest is None or len(read) + 9 <= model.longest:
            assert one.tokens == by_definition(model, read, 9)


HOW: dict[str, dict[str, Any]] = {"greedy": {}, "drawn": DRAWN, "beam": {"beam": 3}}


@pytest.mark.parametrize(
    ("family", "how"),
    [
        pytest.param(
            family,
            given,
            id=f"{family}-{name}",
            marks=[pytest.mark.slow] if name != "greedy" and family not in ("gpt", "lstm") else [],
        )
        for family in (*OURS, "public")
        for name, given in HOW.items()
    ],
)
def test_an_answer_is_the_same_in_any_company(
    ours: Callable[..., Loaded], model: Loaded, family: str, how: dict[str, float]
) -> None:
    model = model if family == "public" else ours(family, long="truncate")
    together = generate(model, PROMPTS, limit=8, **how)
    company = generate(model, [*PROMPTS, LINES[0], "b" * 11], limit=8, **how)
    assert [one.tokens for one in company[: len(PROMPTS)]] == [one.tokens for one in together]
    for index, one in enumerate(together):
        (alone,) = list(generate(model, [PROMPTS[index]], limit=8, **how)) if how != DRAWN else [one]
        assert (alone.tokens, alone.text, alone.ended) == (one.tokens, one.text, one.ended)
        np.testing.assert_allclose(alone.logps, one.logps, atol=1e-4)


def test_draws_follow_from_the_seed_and_the_number_of_the_prompt(model: Loaded) -> None:
    first, second = generate(model, ["the grey", "the grey"], limit=12, **DRAWN)
    assert first.tokens != second.tokens
    assert generate(model, ["the grey"], limit=12, **DRAWN)[0].tokens == first.tokens
    assert generate(model, ["the grey"], limit=12, **{**DRAWN, "seed": 5})[0].tokens != first.tokens
    (sure,) = generate(model, ["the grey"], limit=12, temperature=1.0, top_k=1)
    assert sure.tokens == generate(model, ["the grey"], limit=12)[0].tokens


@pytest.mark.parametrize("how", [{}, DRAWN, {"beam": 3}], ids=["greedy", "drawn", "beam"])
def test_logps_are_those_of_a_forced_pass(model: Loaded, how: dict[str, float]) -> None:
    tokenizer = model.target_tokenizer
    for one in generate(model, [prompt for prompt in PROMPTS if prompt], limit=10, **how):
        read, told = tokenizer.encode(one.prompt), [*one.tokens, tokenizer.special_tokens.eos][: len(one.logps)]
        logps = model.logits(torch.tensor([read + told])).log_softmax(-1)[0, len(read) - 1 : -1]
        expected = logps.gather(1, torch.tensor(told)[:, None])[:, 0]
        np.testing.assert_allclose(one.logps, expected, atol=1e-4)
        assert len(one.logps) - len(one.tokens) == (one.ended == "end")


def test_a_beam_finds_what_greedy_misses(model: Loaded) -> None:
    for prompt in ("the grey", "a lantern", "a", "rain fell on"):
        greedy, wide = (generate(model, [prompt], limit=6, beam=beam)[0] for beam in (1, 8))
        assert wide.logps.mean() > greedy.logps.mean() + 0.01


@pytest.mark.parametrize("how", [{}, {**DRAWN, "temperature": 2.0}], ids=["greedy", "drawn"])
def test_pieces_make_up_the_answer_and_never_half_a_character(model: Loaded, how: dict[str, float]) -> None:
    for prompt in PROMPTS:
        (one,) = generate(model, [prompt], limit=25, **how)
        pieces = list(generate_stream(model, prompt, limit=25, **how))
        assert "".join(piece.text for piece in pieces) == one.text
        assert [piece.token for piece in pieces if piece.token is not None] == one.tokens
        assert (pieces[-1].ended, {piece.ended for piece in pieces[:-1]}) == (one.ended, {""} if pieces[1:] else set())
        np.testing.assert_allclose([piece.logp for piece in pieces], one.logps, atol=1e-4)


def test_a_character_of_several_tokens_is_one_piece(model: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is made to say a smiley, byte by byte."""
    tokenizer = model.target_tokenizer
    wanted = tokenizer.encode("a 🙃z")
    said = iter(wanted)
    monkeypatch.setattr("regard.verbs.generating.greedy", lambda logits: torch.tensor([next(said)]))
    texts = [piece.text for piece in generate_stream(model, "the", limit=len(wanted))]
    assert "".join(texts) == "a 🙃z"
    assert "🙃" in texts
    assert not any("\N{REPLACEMENT CHARACTER}" in text for text in texts)


def test_words_come_with_the_spaces_before_them() -> None:
    """Where a tokenizer puts spaces before words, the seam between prompt and answer has one too."""
    tokenizer = train_tokenizer("bpe", LINES, 120)
    config = GptConfig(**SHAPE, vocab=tokenizer.size, context=24)
    recipe = Recipe("tiny", "tiny", Lines(), config, TeacherForcing(), Plan(), ())
    torch.manual_seed(2)
    model = Loaded(Path("tiny"), config.build().eval(), torch.device("cpu"), {"text": TargetText(tokenizer)}, recipe)
    (one,) = generate(model, ["the grey"], limit=12, temperature=3.0)
    whole = tokenizer.decode(tokenizer.encode("the grey") + one.tokens)
    assert one.prompt + one.text == whole
    assert "".join(piece.text for piece in generate_stream(model, "the grey", limit=12, temperature=3.0)) == one.text


@pytest.mark.parametrize("long", ["error", "truncate"])
@pytest.mark.parametrize("beam", [1, 2])
def test_an_answer_stops_at_the_end_of_the_context(ours: Callable[..., Loaded], long: str, beam: int) -> None:
    model = ours("gpt", long=long)
    short, near = generate(model, ["a", "the grey heron stood i"], limit=100, beam=beam)
    assert {short.ended, near.ended} == {"context"}
    assert len(short.tokens) == 24 - 2 + 1  # the last token said is not read
    assert len(near.tokens) == 24 - 23 + 1


def test_a_window_slides_and_company_does_not_matter(ours: Callable[..., Loaded]) -> None:
    model = ours("gpt", long="window")
    for how in ({}, DRAWN):
        found = generate(model, ["a", "the grey heron"], limit=70, **how)
        assert generate(model, ["a"], limit=70, **how)[0].tokens == found[0].tokens
        assert "".join(piece.text for piece in generate_stream(model, "a", limit=70, **how)) == found[0].text

    # By the definition: what follows the end of a context was read from the last half of it.
    (one,) = generate(model, ["a"], limit=70)
    assert (len(one.tokens), one.ended) == (70, "limit")
    whole = [model.target_tokenizer.special_tokens.bos, *model.target_tokenizer.encode("a"), *one.tokens]
    assert by_definition(model, whole[:2], 23) == whole[2:25]
    assert by_definition(model, whole[25 - 12 : 25], 13) == whole[25:38]
    assert by_definition(model, whole[38 - 12 : 38], 13) == whole[38:51]


def test_a_beam_goes_on_past_the_context_from_the_best_it_found(ours: Callable[..., Loaded]) -> None:
    (short,) = generate(ours("gpt"), ["a"], limit=70, beam=2)
    (one,) = generate(ours("gpt", long="window"), ["a"], limit=70, beam=2)
    assert (short.ended, one.ended) == ("context", "limit")
    assert (one.tokens[:23], len(one.tokens), len(one.logps)) == (short.tokens, 70, 70)


def test_a_prompt_past_the_context(ours: Callable[..., Loaded]) -> None:
    text = "the grey heron stood in the shallow water"
    with pytest.raises(UserError, match=r"prompt 2: 41 tokens, but the model reads at most 23.*--long window"):
        generate(ours("gpt"), ["a", text])
    assert generate(ours("gpt", long="truncate"), [text], limit=1)[0].prompt == text[:23]
    assert generate(ours("gpt", long="window"), [text], limit=1)[0].prompt == text[-23:]


def test_an_empty_prompt(tmp_path: Path, ours: Callable[..., Loaded], model: Loaded) -> None:
    end = model.target_tokenizer.special_tokens.eos
    assert generate(model, [""], limit=5)[0].tokens == by_definition(model, [end], 5)
    gpt2(tmp_path, read_pointer=False)
    with pytest.raises(UserError, match="prompt 2: empty, but this model has no bos token to start from"):
        generate(load(tmp_path, device="cpu"), ["a", ""])
    with pytest.raises(UserError, match="no bos token to start from"):
        generate(ours("gpt", running=True), [""])


def test_a_model_without_an_end_mark_goes_on_to_the_limit(tmp_path: Path, ours: Callable[..., Loaded]) -> None:
    gpt2(tmp_path, read_pointer=False)
    for model in (load(tmp_path, device="cpu"), ours("xl", running=True)):
        (one,) = generate(model, ["the"], limit=11, temperature=1.0)
        assert (len(one.tokens), len(one.logps), one.ended) == (11, 11, "limit")
        (greedy,), (best,) = (generate(model, ["the"], limit=3, beam=beam) for beam in (1, 40))
        assert (len(best.tokens), best.ended) == (3, "limit")
        assert best.logps.sum() >= greedy.logps.sum() - 1e-4


def test_running_text_is_read_as_it_stands(ours: Callable[..., Loaded]) -> None:
    model = ours("gpt", running=True)
    read = model.target_tokenizer.encode("the\n")
    special_tokens = model.target_tokenizer.special_tokens
    assert special_tokens.bos is special_tokens.eos is None
    assert generate(model, ["the\n"], limit=5)[0].tokens == by_definition(model, read, 5)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_k": 3}, "top_k=3 with temperature=0"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 2.0}, "top_p is 2.0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p is 0.0"),
        ({"temperature": 1.0, "beam": 2}, "beam=2 with temperature=1.0"),
        ({"limit": 0}, "limit=0"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": "4"}, "seed='4'"),
        ({"seed": np.array(1.5)}, "seed=array"),
        ({"beam": 0}, "beam=0"),
    ],
)
def test_settings_that_cannot_be(model: Loaded, how: dict[str, float], told: str) -> None:
    with pytest.raises(UserError, match=told.replace("(", r"\(")):
        generate(model, ["the"], **how)


def test_one_text_is_no_list_and_a_translator_no_language_model(model: Loaded, translator: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="pass a list"):
        generate(model, "the grey")
    with pytest.raises(UserError, match="regard translate"):
        generate(load(translator(), device="cpu"), ["abc"])
    assert generate(model, []) == []


def test_speaking_leaves_the_caller_alone(model: Loaded) -> None:
    for _ in generate_stream(model, "the", limit=3):
        assert torch.is_grad_enabled()


def test_a_stream_has_the_edits_of_its_start_until_they_end(ours: Callable[..., Loaded]) -> None:
    model = ours("gpt")
    logps = [piece.logp for piece in generate_stream(model, "the", limit=4)]
    pieces = generate_stream(model, "the", limit=4)
    with edit(model.module, {"*": torch.zeros_like}):
        first = next(pieces).logp
    assert first != logps[0]
    assert len([*pieces]) == 3  # the others come without the edit
    pieces = generate_stream(model, "the", limit=4)
    assert next(pieces).logp == logps[0]
    with edit(model.module, {"*": torch.zeros_like}), pytest.raises(UserError, match="open it before the first piece"):
        next(pieces)


def test_a_tape_gets_one_forced_pass(ours: Callable[..., Loaded]) -> None:
    model = ours("gpt")
    plain = generate(model, ["the", "a"], limit=4)
    with record(model.module) as tape:
        taped = generate(model, ["the", "a"], limit=4)
    assert [one.tokens for one in taped] == [one.tokens for one in plain]
    longest = max(len(model.opening) + len(model.tokenizer.encode(prompt)) for prompt in ("the", "a")) + 4
    shape = (2, 2, longest, longest)  # texts, heads, the places of the prompt and of what follows it
    assert {name: tuple(tape[name].shape) for name in tape} == {
        f"stack.blocks.{layer}.attention.read": shape for layer in range(2)
    }


def test_what_slides_past_the_context_fits_on_no_tape(ours: Callable[..., Loaded]) -> None:
    model = ours("gpt", long="window")
    with record(model.module), pytest.raises(UserError, match=r"limit=40: a tape holds one context of 24 tokens"):
        generate(model, ["a"], limit=40)
    room = 24 - len(model.opening) - 1  # beside the begin token and the prompt
    with record(model.module), pytest.raises(UserError, match=rf"limit={room + 1}: .*; record at most {room} more"):
        generate(model, ["a"], limit=room + 1)
    with record(model.module) as tape:
        generate(model, ["a"], limit=room)
    assert len(tape)


@torch.no_grad()
def test_a_model_that_was_changed_is_searched_as_it_is_now(ours: Callable[..., Loaded]) -> None:
    model, prompts = ours("gpt"), ["a", "the", "the grey", "heron", "a grey heron"]  # enough rows to be packed
    plain = [one.tokens for one in generate(model, prompts, limit=6)]
    read = model.module.stack.blocks[0].attention.read
    with read.register_forward_hook(lambda module, given, found: 9 * found):
        hooked = [one.tokens for one in generate(model, prompts, limit=6)]
        assert hooked == [one.tokens for prompt in prompts for one in generate(model, [prompt], limit=6)]
    assert [one.tokens for one in generate(model, prompts, limit=6)] == plain
    weight = model.module.stack.blocks[0].feed.down.weight
    kept = weight.clone()
    weight.mul_(-30)
    changed = [one.tokens for one in generate(model, prompts, limit=6)]
    assert changed == [one.tokens for prompt in prompts for one in generate(model, [prompt], limit=6)]
    weight.copy_(kept)
    assert [one.tokens for one in generate(model, prompts, limit=6)] == plain
    assert plain not in (hooked, changed)


def test_the_context_of_a_public_model_is_its_own(model: Loaded) -> None:
    assert model.longest == CONTEXT


@pytest.mark.parametrize("kind", ["bytes", "words"])
def test_ids_past_the_tokenizer_are_visible(tmp_path: Path, kind: str) -> None:
    gpt2(tmp_path) if kind == "bytes" else bert(tmp_path)
    model = load(tmp_path)
    tokenizer, vocab = model.target_tokenizer, model.module.config.token_vocab
    (token, *_) = tokenizer.encode("the")
    assert tokenizer.decode([token, tokenizer.size + 5, token]).count(f"<{tokenizer.size + 5}>") == 1
    unused = f"{vocab - tokenizer.size:,} of its {vocab:,} ids without a token"
    assert (unused in repr(model)) == (vocab > tokenizer.size)
