"""The topics of `regard explain`: tables in the terminal, JSON, one HTML file."""

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoint import save_step, set_pointer
from regard.cli.explain import _settings
from regard.config import override, to_json, tree
from regard.data.sources import Lines, Pairs
from regard.data.tokenizers import train_tokenizer
from regard.errors import UserError
from regard.explain import TOPICS, masking
from regard.explain.both_sides import READERS
from regard.explain.coreference import pairs
from regard.explain.topic import Progress, Topic
from regard.file_io import save_tensors, write_json
from regard.models import BertConfig, GptConfig, ModelConfig, TransformerConfig
from regard.objectives import MaskedTokens, Objective, TeacherForcing
from regard.recipes import KINDS, Plan, Recipe, find_task
from regard.report.glossary import WORDS
from regard.report.sections import Gallery, Pre, Table, Text
from regard.stored import recipe_json

ROOT = Path(__file__).parents[2]
Regard = Callable[..., Any]

LINES = ["a dog , a cat", "the cat sat .", "a cat and the dog"]
QUICK = {
    "attention": ["steps=1"],
    "scores": ["keys=3"],
    "scaling": ["keys=4"],
    "masking": ["steps=1"],
    "heads": ["steps=1"],
    "positions": ["steps=1", "length=6"],
    "residuals": ["steps=1", "length=6"],
    "layers": ["length=64", "width=8"],
    "gradients": ["length=6", "steps=1"],
    "gates": ["length=6", "steps=1"],
    "bottleneck": ["length=4", "width=8", "steps=1"],
    "forcing": ["seeds=1", "steps=0", "count=20"],
    "receptive": ["2", "1", "steps=1"],
    "filters": ["steps=1"],
    "ngrams": ["words=2", "steps=1"],
    "senses": ["steps=1"],
    "mix": ["steps=1", "fit=1"],
    "masking-rates": ["steps=0", "seeds=1", "count=4"],
    "transfer": ["labels=2", "seeds=1", "steps=0", "fit=0"],
}


@pytest.fixture(autouse=True)
def _time_layers_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are timed for half a millisecond: no test here depends on their time."""
    monkeypatch.setattr("regard.explain.layers.TIMING_SECONDS", 0.0005)


@pytest.mark.parametrize("topic", QUICK)
def test_a_topic_in_the_terminal_and_as_a_page_with_its_words_and_chance_levels(regard: Regard, topic: str) -> None:
    result = regard("explain", topic, *QUICK[topic], "-o", "out/page.html")
    assert result.code == 0, result.err
    page = Path("out/page.html").read_text(encoding="utf-8")
    assert result.out.rstrip().endswith("out/page.html")
    assert "<svg" in page
    if topic == "layers":
        for layer, billions in {"self-attention": 4, "recurrent": 16, "dilated convolution": 6}.items():
            assert re.search(rf"^{layer} +\S+ +{billions}·10⁹ +{billions}·10⁹", result.out, re.MULTILINE)
    assert not re.search(r'(?:src|href)="(?!#)', page)
    shown = page.partition("What is shown")[2].partition("</section>")[0]
    assert shlex.join(["regard", "explain", topic, *QUICK[topic]]) in html.unescape(shown)
    assert re.search("model is|No model|networks|encoders|Transformers", shown)
    (named,) = re.findall(r"More in (docs/[^<]*)</p>", shown)
    assert named == f"docs/{TOPICS[topic].docs}"
    assert (ROOT / named.partition("#")[0]).is_file()
    assert not re.search(r">\d +(?:÷|q·k|softmax|weight|sum)", page)  # "3 ÷ 8" is not step 3
    text, _, defined = html.unescape(page).rpartition("<h2>Words</h2>")
    for word in TOPICS[topic].words:
        assert re.search(rf"\b{re.escape(word.removesuffix('s'))}|{re.escape(word)}", text, re.IGNORECASE), word
        assert f'<td class="">{word}</td><td class="">{WORDS[word]}</td>' in defined
    assert ("hance" in text) == ("hance" in result.out) == ("chance" in TOPICS[topic].words)
    if re.search("accura|predicted correctly|grammatical", text, re.IGNORECASE):
        assert re.search(r"[Cc]hance[^.]* (?:is|:)? ?[^.]*\d", text)


@pytest.mark.parametrize("topic", [topic for topic in QUICK if topic != "layers"])
def test_in_eighty_columns_lines_break_between_words(
    regard: Regard, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    outputs, results, run = [], [], Topic.run

    def run_once(*arguments: Any) -> Any:
        if not results:
            results.append(run(*arguments))
        return results[0]

    monkeypatch.setattr(Topic, "run", run_once)
    for columns in ("80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        outputs.append(regard("explain", topic, *QUICK[topic]).out)
    assert max(map(len, outputs[0].splitlines())) <= 80
    assert outputs[0].split() == outputs[1].split()


def test_a_long_path_of_a_page_can_be_copied_from_a_narrow_terminal(regard: Regard, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = Path("a folder with a long name", "of many words " * 5 + ".html")
    assert f"The page: {page}" in regard("explain", "scores", *QUICK["scores"], "-o", page).out.splitlines()


def test_without_a_topic_all_are_listed(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in ([], ["--help"]):
        result = regard("explain", *arguments)
        assert result.code == 0
        for topic in QUICK:  # each in one line
            assert re.search(rf"^{topic} +[A-Z].*[.?] *$", result.out, re.MULTILINE), topic
        assert not result.err


@pytest.mark.parametrize("topic", TOPICS)
def test_the_help_of_a_topic_has_its_prose_and_its_options(regard: Regard, topic: str) -> None:
    result = regard("explain", topic, "--help")
    assert result.code == 0
    assert f"regard explain {topic}" in result.out
    words = " ".join(result.out.split())
    assert all(text in words for text in (TOPICS[topic].summary, *TOPICS[topic].prose))
    paragraphs = {" ".join(block.split()) for block in result.out.split("\n\n")}
    assert paragraphs >= {*TOPICS[topic].prose}  # with an empty line between them
    for setting in tree(TOPICS[topic].options):
        assert setting.comment, setting.name
        assert re.search(rf"^{setting.name} +", result.out, re.MULTILINE), setting.name
    assert topic in QUICK


def test_the_list_and_the_help_do_not_import_torch() -> None:
    code = "import sys; from regard.cli import main\n"
    for arguments in ([], ["scaling", "--help"], ["attention", "--help"], ["scalling"]):
        code += f"main(['explain', *{arguments}]); assert 'torch' not in sys.modules, {arguments}\n"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("topic", TOPICS)
def test_the_examples_of_a_topic_have_valid_options(topic: str) -> None:
    assert TOPICS[topic].examples
    for example in TOPICS[topic].examples:
        settings = [word for word in shlex.split(example) if re.match("[a-z_]+=", word)]
        assert override(TOPICS[topic].options, settings, {}) != TOPICS[topic].options or not settings


def test_a_topic_from_python() -> None:
    found: list[Progress] = []
    result = masking.run(masking.MaskingOptions(steps=2, count=2), found.append)
    assert [(one.name, one.step, one.steps) for one in found] == [
        (name, step, 2) for name in ("causal mask", "no mask", *READERS) for step in (1, 2)
    ]
    assert result.sections[0] == Text("\n\n".join(TOPICS["masking"].prose))
    assert [type(section) for section in result.sections] == [Text, Table, Pre, Pre, Gallery, Text, Table, Text]


def test_the_textbook_example(regard: Regard) -> None:
    found = json.loads(regard("explain", "attention", "steps=2", "layer=-1", "--json").out)
    assert found["textbook"]["scores"] == [112, 96]
    assert found["textbook"]["scaled"] == [14, 12]
    assert [round(weight, 2) for weight in found["textbook"]["weights"]] == [0.88, 0.12]
    assert found["difference"] < 1e-6
    assert found["block"] == "stack.blocks.1"
    assert found["word"] == "tree"
    assert sum(found["model"]["weights"]) == pytest.approx(1.0)
    assert found["model"]["weights"] == pytest.approx(found["heads"][found["head"]])


@pytest.mark.parametrize("topic", ["attention", "gradients", "heads", "positions", "residuals", "scaling"])
def test_results_depend_on_the_seed_only(regard: Regard, topic: str) -> None:
    first, same, other = (
        regard("explain", topic, *QUICK[topic], "--json", f"seed={seed}").out.replace(f'"seed": {seed}', "")
        for seed in (1, 1, 2)
    )
    assert first == same != other


MODELS: dict[str, tuple[ModelConfig, Objective]] = {
    "gpt": (GptConfig(width=16, heads=2, layers=2, inner=24, context=32), TeacherForcing()),
    "gpt-xl": (
        GptConfig(width=16, heads=2, layers=2, inner=24, positions="xl", norm_place="post", memory=4), TeacherForcing()
    ),
    "bert": (BertConfig(width=16, heads=2, layers=2, inner=24, context=32), MaskedTokens()),
    "albert": (BertConfig(width=16, heads=2, layers=2, inner=24, context=32, groups=1), MaskedTokens()),
    "transformer": (TransformerConfig(width=16, heads=2, layers=2, inner=24, context=32), TeacherForcing()),
}  # fmt: skip


def saved(name: str, lines: Sequence[str] = LINES) -> Path:
    """A run with one step, which holds the initial weights."""
    config, objective = MODELS[name]
    tokenizer = train_tokenizer("word", lines, 1000)
    vocabularies = ("source_vocab", "target_vocab") if name == "transformer" else ("vocab",)
    config = replace(config, **dict.fromkeys(vocabularies, tokenizer.size))
    data = Pairs() if name == "transformer" else Lines()
    recipe = Recipe("tiny", "a tiny one", data, config, objective, Plan(), ("perplexity",))
    run, module = Path("runs") / name, config.build()
    files: dict[str, Any] = {
        "model.json": to_json(config, KINDS),
        "weights.safetensors": lambda path: save_tensors(path, module.state_dict()),
        **{f"fields/{column}.json": tokenizer.save for column in find_task(recipe, KINDS).fields},
    }
    run.mkdir(parents=True)
    write_json(run / "recipe.json", recipe_json(recipe, KINDS))
    save_step(run, 7, files, keep=1)
    set_pointer(run, "best", 7)
    return run


@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_a_run(regard: Regard, name: str) -> None:
    run = saved(name)
    result = regard("explain", "attention", run, "a cat sat", "word=1", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["difference"] < 1e-6
    assert "cat" in " ".join(found["text"])
    found = json.loads(regard("explain", "heads", run, "the dog , a cat .", "-o", "heads.html", "--json").out)
    assert found["page"] == "heads.html"
    assert [one["head"] for one in found["heads"]] == [0, 1, 0, 1, -1]  # two layers of two heads
    assert found["coreference"]["best_on_test"] is None  # the vocabulary lacks the words


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        ({}, "s₍ₜ₋₁₎"),
        ({"decoder": "luong", "score": "general"}, "s₍ₜ₎"),
        ({"window": "local-m", "radius": 1}, "s₍ₜ₋₁₎"),
    ],
)
def test_the_attention_of_a_recurrent_run(
    regard: Regard, translator: Any, settings: dict[str, object], query: str
) -> None:
    run = translator(**settings)
    found = json.loads(regard("explain", "attention", run, "abba", "word=0", "--json").out)
    assert (found["query"], found["text"]) == (query, list("abba"))
    assert found["difference"] < 1e-9
    assert found["model"]["weights"] == pytest.approx(found["weights"][0])
    assert (found["weights"][0][3] == 0) == ("window" in settings)


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"decoder": "once"}, ["abba"], "its decoder has no attention"),
        ({"window": "local-p"}, ["abba"], "local-p"),
        ({}, ["abba", "head=1"], "head=1: a recurrent decoder has one attention"),
        ({}, ["abba", "decoder=luong"], "decoder=luong: this is for the small model"),
        ({}, [], "TEXT is empty"),
    ],
)
def test_what_a_recurrent_run_refuses(
    regard: Regard, translator: Any, settings: dict[str, object], options: list[str], message: str
) -> None:
    result = regard("explain", "attention", translator(**settings), *options)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_coreference_in_the_model_of_a_run(regard: Regard, name: str) -> None:
    run = saved(name, [version.text for pair in pairs() for version in pair])
    found = json.loads(regard("explain", "heads", run, "-o", "heads.html", "--json").out)
    page = Path("heads.html").read_text(encoding="utf-8")
    assert re.search(r"on one half of 48 pairs .* In the other half", page)
    assert f"from “{'lame.' if name == 'gpt' else 'it'}” on the left" in page
    assert page.count("<figure>") == 1 + 2 + 2  # the heatmap; one head and two heads as lines; both as matrices
    assert (found["coreference"]["pairs"], found["coreference"]["skipped"]) == (48, 0)
    best = found["coreference"]["best_on_test"]["correct"]
    assert best["count"] == 48
    assert best["interval"][0] < best["rate"] < best["interval"][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scalin"], 'Did you mean "scaling"'),
        (["scaling", "-o", "curve.svg"], ".html"),
        (["scaling", "keys=1"], "keys=1: give 2 to 4,096"),
        (["scaling", "widths=0"], "widths=(0,): give 1 to 65,536"),
        (["scaling", "keys=many"], "keys=many: expected a whole number"),
        (["scaling", "keyz=8"], 'Did you mean "keys"'),
        (["scaling", "runs/dates"], "scaling takes options only"),
        (["heads", "runs/dates", "a text", "another"], '"another"'),
        (["attention", "steps=-1"], "steps=-1: give 0 to 1,000,000"),
        (["attention", "steps=1", "layer=2"], "layer=2: there are layers 0 to 1"),
        (["attention", "steps=1", "head=4"], "head=4: there are heads 0 to 3"),
        (["attention", "steps=1", "word=-7"], "word=-7: there are words 0 to 5"),
        (["attention", "nowhere", "text"], "nowhere"),
        (["layers", "length=3"], "length=3"),
        (["attention", "decoder=once"], "decoder=once: give bahdanau, luong or luong-feeding"),
        (["attention", "decoder=luong", "score=relative"], "relative"),
        (["receptive", "1"], "kernel=1: give 2 to 8"),
        (["bottleneck", "width=3"], "width=3: give an even number"),
        (["forcing", "nowhere"], "nowhere"),
        (["masking-rates", "nowhere.txt"], "nowhere.txt"),
        (["masking-rates", "seeds=0"], "seeds=0: give 1 to 20"),
        (["transfer", "labels="], "labels=: give at least one number"),
        (["transfer", "labels=1"], "labels=(1,): give 2 to 10,000"),
        (["filters", "steps=0", "layer=1"], "layer=1: there are layers 0 to 0"),
    ],
)
def test_a_mistake_gives_one_line(regard: Regard, arguments: list[object], message: str) -> None:
    result = regard("explain", *arguments)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_the_progress_is_printed_where_there_is_no_terminal(regard: Regard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not regard("explain", "gradients", "length=4", "steps=1", "--json").err
    monkeypatch.setattr("regard.cli.explain.APART", 0.0)
    lines = regard("explain", "gradients", "length=4", "steps=1", "--json").err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["RNN", "LSTM", "LSTM + attention", "Transformer", "TCN"]
    assert re.fullmatch(r"LSTM: step 1/1, loss \d+\.\d{3}", lines[1])


def test_json_has_the_numbers_and_the_page(regard: Regard) -> None:
    alone = json.loads(regard("explain", "scaling", "keys=4", "--json").out)
    said = regard("explain", "scaling", "keys=4", "--json", "-o", "Page.HTML")  # capitals are allowed
    assert (said.code, said.err, json.loads(said.out)) == (0, "", {**alone, "page": "Page.HTML"})
    assert (alone["page"], Path("Page.HTML").is_file()) == (None, True)


def test_words_without_a_name_are_the_model_and_its_text() -> None:
    heads, scaling = TOPICS["heads"].options, TOPICS["scaling"].options
    for words, settings in (
        ([], []),
        (["run"], ["model=run"]),
        (["layer=1", "run", "a = b"], ["model=run", "text=a = b", "layer=1"]),
    ):
        assert _settings("heads", heads, words) == settings
    assert _settings("scaling", scaling, ["keys=4", "widths=1,2"]) == ["keys=4", "widths=1,2"]
    for options, words, told in (
        (heads, ["a", "b", "c d"], '"c d": an option has the form name=value; see: regard explain topic --help'),
        (scaling, ["a"], '"a": topic takes options only, as name=value; see: regard explain topic --help'),
    ):
        with pytest.raises(UserError, match=re.escape(told)):
            _settings("topic", options, words)


def test_a_model_without_blocks_and_an_empty_text(regard: Regard, classifier: Path) -> None:
    result = regard("explain", "heads", classifier, "ab ba")
    assert result.code == 2
    assert "no Transformer blocks" in result.err
    run = saved("gpt")
    assert "“it” cannot be evaluated" in regard("explain", "heads", run, "a cat").out
    assert "TEXT is empty" in regard("explain", "attention", run).err
    assert "cannot read the English sentences" in regard("explain", "heads", run).err
