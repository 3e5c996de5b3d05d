"""The documents, held to their word: every Python block and every `regard` command runs, every link leads somewhere.

Commands that would train for long are made short; everything else runs as it is printed. Each page has a folder of its
own, in which `runs/dates` is a model that was trained for a moment.
"""

import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from regard.cli import main
from regard.config import override
from regard.data.dates import Dates
from regard.explain import TOPICS
from regard.recipes import KINDS, RECIPES, change, find_recipe
from regard.report.glossary import WORDS
from regard.training.run import Run

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MEASURED = {"RESULTS.md", "LOG.md"}  # their commands took minutes to hours, and were run where they say
BABEL = find_spec("babel") is not None

DATES = ["data.train=300", "data.valid=20", "data.test=20"]
MADE = {"dates", "french", "stories", "made-answers"}  # recipes whose texts are made, as many as these settings say
SMALL = ["model.width=32", "model.embed=8", "plan.batch_tokens=512"]
SHORT = {  # what to add to a command so that it takes a moment
    "train": [*SMALL, "--dry-run"],
    "ladder": [*SMALL, "--steps", "1", "--seeds", "1"],
    "explain gradients": ["length=8", "steps=1"],
    "explain layers": ["length=64", "width=8"],
    **{
        f"explain {topic}": ["steps=1"]
        for topic in ("attention", "gates", "masking", "positions", "residuals", "heads", "ngrams", "senses", "mix")
    },
}
FILES = {
    "pairs.tsv": "3 février 2021\t2021-02-03\n2 June 1998\t1998-06-02\n" * 20,
    "dev.tsv": "4 May 2001\t2001-05-04\n",
    "more.tsv": "5 May 2001\t2001-05-05\n6 May 2001\t2001-05-06\n",
    "related.csv": "first,second,score\n"
    + "".join(f"a fine day {n},day {n} is fine,5\nrain {n},snow {n},2\n" for n in range(9)),
    "lines.txt": "a line of text\nand one more\n" * 10,
    "labelled.tsv": "".join(f"good\ta fine day {n}\nbad\ta wet one {n}\n" for n in range(10)),
    "reviews.csv": "stars;review\n"
    + "".join(f'good;"a ""fine"",\nsunny day {n}"\nbad;a wet one {n}\n' for n in range(10)),
    "topics.csv": "topics,score,text\n" + "".join(f"sport|art,{n},game {n}\n,-1,rain {n}\n" for n in range(10)),
    "questions.json": '{"data": [{"title": "", "paragraphs": ['
    + ", ".join(
        f'{{"context": "Ada {n}.", "qas": [{{"id": "{n}", "question": "Who?", '
        f'"answers": [{{"text": "Ada", "answer_start": 0}}]}}]}}'
        for n in range(10)
    )
    + "]}]}",
    "questions.csv": "asked,text,said\n" + "".join(f"Who?,Ada {n} wrote.,Ada\n" for n in range(10)),
    "pairs.jsonl": '{"source": "3 février 2021", "target": "2021-02-03"}\n{"source": "2 June", "target": "06-02"}\n'
    * 20,
    "parts.tsv": "id\tde\ten\n" + "".join(f"{n}\t{n} Äpfel\t{n} apples\n" for n in range(2, 30)),
    "posts.jsonl": "".join(f'{{"id": {n}, "body": "post {n}"}}\n' for n in range(20)),
    "columns.txt": "Anna N B-PER\nleft V O\nNew N B-LOC\nYork N I-LOC\n\nJohn N B-PER\nslept V O\n\n" * 20,
    "entailed.tsv": "".join(f"{'no' if n % 3 else 'yes'}\tit rains {n}\tit is wet {n % 4}\n" for n in range(20)),
    "similar.tsv": "".join(f"{n % 5}\tit rains {n}\tit is wet {n % 4}\n" for n in range(20)),
    "similar.csv": "sentence1,sentence2,score\n" + "".join(f"it rains {n},it is wet,{n % 5}\n" for n in range(20)),
    "endings.tsv": "".join(f"{n % 2}\tit rains {n}\ttake an umbrella\topen the window\n" for n in range(20)),
    "endings.jsonl": "".join(
        f'{{"label": {n % 2}, "context": "it rains {n}", "endings": ["stay", "go {n}"]}}\n' for n in range(20)
    ),
    "in.txt": "3 février 2021\n\n2 June 1998\n",
}


@pytest.fixture(autouse=True, scope="module")
def _dates_are_written_once() -> Iterator[None]:
    """Many commands write the same corpus, and Babel takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dates, "load", cache(Dates.load))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages speak of, and a run."""
    folder = tmp_path_factory.mktemp("docs")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    pairs = [f"data.train={folder / 'pairs.tsv'}", "data.source_tokens=char", "data.target_tokens=char"]
    plan = ["model.capacity=64", "plan.steps=4", "plan.evaluate=4", "plan.samples=4"]
    name, data = ("dates", DATES) if BABEL else ("translate", pairs)
    list(Run(override(find_recipe(name), [*data, *SMALL, *plan], KINDS), folder / "runs" / "dates"))
    for other in ("demo", "translate"):  # what `make demo` makes, and another to start from
        shutil.copytree(folder / "runs" / "dates", folder / "runs" / other)
    return folder


@pytest.fixture
def desk(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    monkeypatch.chdir(shutil.copytree(trained, tmp_path / "desk"))
    return Path.cwd()


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, dedent(match[1])) for match in found]


def commands(page: Path) -> list[str]:
    """The lines of its console blocks that call regard."""
    lines = [line for _, block in blocks(page, "console") for line in block.splitlines()]
    return [line[2:] for line in lines if re.match(r"\$ (.* \| )?regard ", line)]


def test_the_readme_makes_each_file_and_run_before_it_is_used() -> None:
    """Whoever copies its lines after `make demo`, one by one, needs nothing else."""
    made = {"runs/demo"}
    for _, block in blocks(ROOT / "README.md", "console"):
        for line in block.splitlines():
            words = line.split()
            given = (word.partition("=") for word in words)
            used = {value for name, _, value in given if name in ("data.train", "data.valid", "from")}
            used |= {after for sign, after in pairwise(words) if sign == "<"} | set(re.findall(r"runs/\w+", line))
            new = {after for sign, after in pairwise(words) if sign in (">", "-o", "--out")}
            assert used - new <= made, line
            made |= new


def make(*words: object) -> subprocess.CompletedProcess[str]:
    """What `make` would do, without doing it."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of the make around it
    return subprocess.run(["make", "-n", *map(str, words)], cwd=ROOT, env=alone, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_demo_installs_no_tools_for_development(tmp_path: Path) -> None:
    demo, test = (make(target, f"VENV={tmp_path / 'new'}").stdout for target in ("demo", "test"))
    assert '-e ".[demo]"' in demo
    assert "dev" not in demo.replace("/dev/null", "")
    assert '-e ".[dev,demo]"' in test
    for said in (demo, test):  # before the rest, which then takes the torch that is there
        assert said.index("--index-url https://download.pytorch.org/whl/cpu") < said.index("-e ")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("room", ["layers", "scores", "decode"])
def test_make_quick_runs_the_tests_of_a_room(room: str, tmp_path: Path) -> None:
    ran = make("quick", f"ROOM={room}", f"VENV={tmp_path / 'new'}").stdout.splitlines()[-1].split()
    assert [word for word in ran if word.startswith("tests/")] == [
        str(path.relative_to(ROOT)) for path in (ROOT / "tests" / room, ROOT / f"tests/test_{room}.py") if path.exists()
    ]
    for unknown in ([], ["ROOM=layer"]):
        assert room in make("quick", *unknown).stdout.split()


def named(pages: list[Path]) -> list[object]:
    """A page for each test; the tour, which trains models that other tests train too, is slow."""
    marks = {"tour.md": [pytest.mark.slow]}
    return [pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks.get(page.name, [])) for page in pages]


@pytest.mark.parametrize("page", named([page for page in PAGES if blocks(page, "python")]))
def test_python_blocks_run(page: Path, desk: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        exec(compile("\n" * (line - 1) + code, page, "exec"), namespace)


COMMANDS = dict.fromkeys(command for page in PAGES if page.name not in MEASURED for command in commands(page))


def trains_much(command: str) -> bool:
    """Whether a command runs an experiment of its own, which other tests do too."""
    return re.search(r"regard (explain|ladder) \w", command) is not None


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=pytest.mark.slow) if trains_much(one) else one for one in COMMANDS],
)
def test_a_command_runs(command: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not BABEL and "dates" in command.split():
        pytest.skip("the dates corpus needs Babel")
    assert called(command, monkeypatch) == 0


def called(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """`[… |] regard … [< file] [> file]` in this process: starting another takes longer than most commands."""
    before, _, after = command.rpartition("regard ")
    words = shlex.split(after, comments=True)
    places = {sign: words[words.index(sign) + 1] for sign in ("<", ">") if sign in words}
    arguments = words[: min([words.index(sign) for sign in places], default=len(words))]
    data = Path(places["<"]).read_bytes() if "<" in places else b""
    if before:
        data = subprocess.run(["bash", "-c", before.removesuffix("| ")], capture_output=True, check=True).stdout
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    makes = arguments[0] in ("train", "show", "ladder")  # else dates is the trained model of this name
    dates = DATES if makes and MADE & {*arguments} and "--resume" not in arguments else []
    short = SHORT.get(arguments[0], SHORT.get(" ".join(arguments[:2]), []))
    if "model=kim" in arguments:  # its width is the number of its filters
        short = [one for one in short if one != "model.width=32"]
    if "text2text" in arguments:  # a Transformer, whose embeddings are as wide as its states
        short = [one for one in short if one != "model.embed=8"]
    return main([*arguments, *dates, *short])


@pytest.mark.parametrize("page", named(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(place), f"{page.name} links to {target}"
    for name in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_promise_of_security_has_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promises = text.partition("## What is not safe")[0].split("\n- ")[1:]
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise)
        assert named, promise
        for file, name in named:
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name


def anchors(page: Path) -> set[str]:
    """The names by which GitHub links to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", named(sorted((ROOT / "docs").glob("*.md"))))
def test_pages_include_the_prose_of_topics(page: Path) -> None:
    include = runpy.run_path(str(ROOT / "docs" / "topics.py"))["include"]
    text = page.read_text(encoding="utf-8")
    assert text == include(text), "run: make docs"


def test_every_topic_is_included_in_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"<!-- topic: ([\w-]+) -->", pages)) == set(TOPICS)


def test_each_of_the_five_shapes_names_its_recipes() -> None:
    page = (ROOT / "docs" / "sequences.md").read_text(encoding="utf-8")
    table = page.partition("## Five shapes")[2].partition("\n\n`model=rnn`")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| ((?:one|many) → .*) \|$", table, re.MULTILINE)]
    shapes = {shape: re.findall(r"`([\w-]+)`", recipes) for shape, _, recipes in rows}
    assert len(shapes) == 5
    assert all(shapes.values())
    assert not {name for names in shapes.values() for name in names} - set(RECIPES)


def test_the_course_names_what_exists_and_trains_each_run_before_it_is_used() -> None:
    page = (ROOT / "docs" / "course.md").read_text(encoding="utf-8").replace("\\|", "|")
    sections, trained = page.partition("\n## ")[2], set[str]()
    for command in re.findall(r"`(?:[^`|]*\| )?regard ([^`]*)`", sections):
        verb, *words = shlex.split(command)
        used = set(re.findall(r"runs/\w+", command.partition(" --out ")[0]))
        assert used <= trained, command
        if verb == "explain":
            assert words[0] in TOPICS, command
        if verb in ("train", "show"):
            settings = [word for word in words[1:] if "=" in word and not word.startswith("from=")]
            known = [word for word in settings if word != "model=NAME"]
            change(find_recipe(words[0]), known, KINDS)  # fails for an unknown recipe or setting
        if verb == "train":
            trained.add(words[words.index("--out") + 1] if "--out" in words else f"runs/{words[0]}")


@pytest.mark.parametrize("word", WORDS)
def test_pages_define_a_word_as_the_glossary_begins_to(word: str) -> None:
    row = re.search(
        rf"^\| \*\*{re.escape(word)}\*\* \| (.*) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
    assert row, f"docs/glossary.md does not define {word}"
    text = re.sub(r" \(\[(?:page|code)\]\([^)]*\)\)", "", row[1]).replace("`", "")
    assert text.startswith(WORDS[word])


def test_the_trees_are_whole() -> None:
    """README names every package and module at the top; design names every module, beside its package."""
    package = ROOT / "src" / "regard"
    parts = {path.name for path in package.iterdir() if not path.name.startswith(("_", "."))} - {"py.typed"}
    readme, design = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/design.md"))
    assert not {part for part in parts if part not in readme}
    tree = re.split(r"^  (?=\w)", design.partition("src/regard/\n")[2].partition("```")[0], flags=re.MULTILINE)
    named = {re.split(r"[/ ]", entry)[0]: set(re.findall(r"\w+", entry)) for entry in tree}
    for path in package.rglob("*.py"):
        part, *inside = path.relative_to(package).parts
        assert part in named, f"design.md does not name {part}"
        missing = {Path(name).stem for name in inside} - named[part] - {"__init__"}
        assert not missing, f"design.md does not name {missing} beside {part}/"


def test_the_design_names_files_and_functions_that_exist() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    files = {
        name: next(iter((ROOT / "src" / "regard").glob(name)), ROOT / name)
        for name in re.findall(r"`([\w/]+\.py)`", design)
    }
    assert not [name for name, path in files.items() if not path.exists()]
    for name, defined in re.findall(r"`([\w/]+\.py)`\s+`(\w+)", design):
        assert re.search(rf"\b(def|class) {defined}\b", files[name].read_text(encoding="utf-8")), f"{name}: {defined}"
