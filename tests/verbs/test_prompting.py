"""Classification with a prompt: scores are log-probabilities of the whole text, whatever is cached and batched."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import load
from regard.data.fields import TargetText
from regard.data.sources import Lines
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.models import BigramConfig, GptConfig, LstmnConfig, ModelConfig, RecurrentLmConfig
from regard.objectives import Counting, TeacherForcing
from regard.recipes import Plan, Recipe
from regard.verbs import Loaded
from regard.verbs.forced import token_logps
from regard.verbs.prompting import Prompt, draw_shots, rank_labels
from saved import save_run

TEXTS = ["a fine day", "it rained", "so dull a film was never seen", "ok", "a fine day and a fine film"]
SHOTS = (("what a fine film", "1"), ("dull and long", "0"), ("never again", "0"))
TEMPLATE = "text: {text} mood: {label}"
LINES = [*TEXTS, *(text for text, _ in SHOTS), "text: mood: good bad goodness \n N/A [MASK]", "gloomy"]
WORDS = {"1": "good", "0": "gloomy day"}  # both begin with the characters " go" or " g"
SMALL = {"width": 16, "heads": 2, "layers": 2, "inner": 32, "dropout": 0.0, "attention_dropout": 0.0}


def saved(path: Path, config: ModelConfig, tokens: str = "char", counts: bool = False) -> Loaded:
    tokenizer = train_tokenizer(tokens, LINES, 200)
    sized = config.with_sizes({"text": tokenizer.size})  # type: ignore[attr-defined]
    objective = Counting() if counts else TeacherForcing()
    recipe = Recipe("tiny", "a tiny model", Lines(tokens=tokens), config, objective, Plan(), ("perplexity",))  # type: ignore[arg-type]
    return load(save_run(path / "run", recipe, sized, {"text": TargetText(tokenizer)}), "cpu")


def whole_logps(model: Loaded, prompt: Prompt, shots: int, texts: list[str] = TEXTS) -> list[list[float]]:
    """The definition: the log-probability of the prompt with the answer, less that of the prompt alone."""
    found = []
    for text in texts:
        context = prompt.context(text, shots)
        wholes = [model.tokenizer.encode(context + prompt.answer(label)) for label in prompt.words]
        before = len(model.tokenizer.encode(context))
        logps = token_logps(model, [([], ids) for ids in wholes])
        found.append([float(sum(map(float, one[before : len(ids)]))) for one, ids in zip(logps, wholes)])
    return found


MODELS: dict[str, ModelConfig] = {
    "gpt": GptConfig(**SMALL, context=200),  # type: ignore[arg-type]
    "gpt-relative": GptConfig(**SMALL, context=200, positions="relative"),  # type: ignore[arg-type]
    "xl": GptConfig(**SMALL, context=200, positions="xl", memory=200),  # type: ignore[arg-type]
    "lstmn": LstmnConfig(width=12, embed=8, context=200),
    "lstm": RecurrentLmConfig(width=12, embed=8),
}


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_log_probabilities_of_the_words_after_the_prompt(name: str, tmp_path: Path) -> None:
    model = saved(tmp_path, MODELS[name])
    prompt = Prompt(TEMPLATE, WORDS, SHOTS)
    for shots in (0, 3):
        ranked = rank_labels(model, TEXTS, Prompt(TEMPLATE, WORDS, SHOTS[:shots]), batch_tokens=300)
        expected = whole_logps(model, prompt, shots)
        np.testing.assert_allclose(ranked.scores, expected, rtol=1e-4, atol=1e-4)
        assert ranked.shots == [shots] * len(TEXTS)
        assert ranked.best == [tuple(WORDS)[place] for place in np.argmax(expected, 1)]
    lengths = [len(prompt.answer(label)) for label in WORDS]  # a token is a character
    shorter = rank_labels(model, TEXTS, Prompt(TEMPLATE, WORDS, SHOTS), per_token=True)
    np.testing.assert_allclose(shorter.scores, np.array(expected) / lengths, rtol=1e-4, atol=1e-4)


def test_words_sub_words_and_counts_are_ranked_too(tmp_path: Path) -> None:
    for place, (tokens, config) in enumerate((("bpe", MODELS["gpt"]), ("word", BigramConfig(k=1.0)))):
        counts = isinstance(config, BigramConfig)
        model = saved(tmp_path / str(place), config, tokens, counts)
        prompt = Prompt(TEMPLATE, {"1": "good", "0": "bad"}, SHOTS)
        ranked = rank_labels(model, TEXTS, prompt)
        np.testing.assert_allclose(ranked.scores, whole_logps(model, prompt, 3), rtol=1e-4, atol=1e-4)


def test_the_shared_beginning_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path, MODELS["gpt"])
    read: list[int] = []
    advance = type(model.module).advance

    def counting(self: object, tokens: torch.Tensor, *rest: object, **more: object) -> object:
        read.append(tokens.numel())
        return advance(self, tokens, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(type(model.module), "advance", counting)
    prompt = Prompt(TEMPLATE, WORDS, SHOTS)
    rank_labels(model, TEXTS, prompt)
    shots = len(prompt.context("", 3)) - len(prompt.context("", 0)) + len("text: ")
    assert shots < read[0] <= shots + 2  # bos, the shots, and what the texts begin with
    assert sum(read) < read[0] + 3 * sum(len(prompt.context(text, 0)) for text in TEXTS)


def test_calibration_divides_by_the_share_of_texts_without_content(tmp_path: Path) -> None:
    model = saved(tmp_path, MODELS["gpt"])
    prompt = Prompt(TEMPLATE, WORDS)
    plain, free = (rank_labels(model, texts, prompt).scores for texts in (TEXTS, ["N/A", "[MASK]", ""]))

    def shares(scores: np.ndarray) -> np.ndarray:
        return np.exp(scores) / np.exp(scores).sum(1, keepdims=True)

    expected = shares(plain) / shares(free).mean(0)
    found = rank_labels(model, TEXTS, prompt, calibrate=True)
    np.testing.assert_allclose(np.exp(found.scores), expected, rtol=1e-4)
    assert len(found.best) == len(TEXTS)


def test_a_prompt_that_is_too_long_has_fewer_shots(tmp_path: Path) -> None:
    model = saved(tmp_path, GptConfig(**SMALL, context=110))  # type: ignore[arg-type]
    prompt = Prompt(TEMPLATE, WORDS, SHOTS)
    ranked = rank_labels(model, [*TEXTS, "a fine day " * 10], prompt)
    expected = []
    for text in TEXTS:  # bos and all but the last character of the longest answer are read, too
        sizes = [len(prompt.context(text, shots)) + 1 + len(" gloomy day") - 1 for shots in range(4)]
        expected.append(max(shots for shots in range(4) if sizes[shots] <= 110))
    assert ranked.shots == [*expected, 0]
    assert len(set(expected)) > 1
    assert ranked.cut == 1
    for text, shots, scores in zip(TEXTS, expected, ranked.scores):
        assert scores.tolist() == pytest.approx(whole_logps(model, prompt, shots, [text])[0], abs=1e-4)


def test_a_translator_ranks_labels_as_targets(translator: object) -> None:
    model = load(translator(), "cpu")  # type: ignore[operator]
    ranked = rank_labels(model, ["ab", "c c"], Prompt("{text} b {label}", {"p": "xy", "q": "zz z"}, [("a", "p")]))
    for text, row in zip(("a b xy ab b", "a b xy c c b"), ranked.scores):
        source = model.tokenizer.encode(text)  # the line end between two texts is a space to this model
        for target, score in zip(("xy", "zz z"), row):
            (logps,) = token_logps(model, [(source, model.target_tokenizer.encode(target))])
            assert score == pytest.approx(math.fsum(map(float, logps)), abs=1e-4)


def test_shots_are_balanced_and_follow_the_seed() -> None:
    examples = [(f"text {n}", "rare" if n < 2 else "common" if n < 40 else "third") for n in range(60)]
    drawn = draw_shots(examples, 9, seed=3)
    labels = [label for _, label in drawn]
    assert sorted(map(labels.count, ("rare", "common", "third"))) == [2, 3, 4]  # the rare class has two
    assert len(set(drawn)) == 9
    assert draw_shots(examples, 9, seed=3) == drawn != draw_shots(examples, 9, seed=4)
    assert sorted(label for _, label in draw_shots(examples, 3, 1)) == ["common", "rare", "third"]
    assert draw_shots(examples, 0, 1) == []
    with pytest.raises(UserError, match="--shots 61: there are 60 training examples"):
        draw_shots(examples, 61, 1)


@pytest.mark.parametrize(
    ("template", "words", "message"),
    [
        ("mood: {label}", WORDS, "has no {text}; give it once"),
        ("text: {text}", WORDS, "has no {label}; give it once"),
        ("{text} {text} {label}", WORDS, "has {text} 2 times"),
        ("{label}: {text}", WORDS, "{label} is before {text}"),
        (TEMPLATE, {"1": "good", "0": " "}, "the label '0' has no words"),
        (TEMPLATE, {"1": "good"}, "1 label to choose from"),
    ],
)
def test_templates_and_labels_that_cannot_work_are_refused(template: str, words: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        Prompt(template, words)
    assert message in str(error.value)


def test_labels_that_the_model_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    model = saved(tmp_path, MODELS["lstm"], "word")
    with pytest.raises(UserError, match="the model does not know the words 'marvellous'"):
        rank_labels(model, TEXTS, Prompt(TEMPLATE, {"1": "marvellous", "0": "bad"}))
    with pytest.raises(UserError, match="'1' and '0' have the same tokens"):
        rank_labels(model, TEXTS, Prompt(TEMPLATE, {"1": "good", "0": "good"}))
    with pytest.raises(UserError, match="no texts"):
        rank_labels(model, [], Prompt(TEMPLATE, {"1": "good", "0": "bad"}))
    narrow = saved(tmp_path / "narrow", GptConfig(**SMALL, context=8))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="leaves no room for a text in the context"):
        rank_labels(narrow, TEXTS, Prompt(TEMPLATE, WORDS))


def test_one_label_may_be_the_beginning_of_another(tmp_path: Path) -> None:
    model = saved(tmp_path, MODELS["gpt"])
    prompt = Prompt(TEMPLATE, {"1": "good", "2": "goodness"})
    ranked = rank_labels(model, TEXTS, prompt)
    np.testing.assert_allclose(ranked.scores, whole_logps(model, prompt, 0), rtol=1e-4, atol=1e-4)
    assert (ranked.scores[:, 0] > ranked.scores[:, 1]).all()  # more tokens have a lower probability
