"""Tables: every format gives the same examples, and every malformed file is refused with its line and a cure."""

import csv
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import override
from regard.data.example import LabelledText, Pair, Text
from regard.data.labelled import Labelled
from regard.data.sources import Lines, Pairs, read_pairs
from regard.data.tables import has_names, read_table
from regard.errors import UserError
from regard.recipes import KINDS, Recipe, find_recipe
from regard.training.events import Evaluated, Finished
from regard.training.run import Run
from regard.verbs import classify, load, translate

TEXT = {"text": ""}
BOTH = {"text": "", "label": ""}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Writes a file, compressed if its name ends in .gz or .xz, and returns its path."""

    def write(name: str, text: str | bytes) -> str:
        data = text.encode() if isinstance(text, str) else text
        pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
        (tmp_path / name).write_bytes(pack(data))
        return str(tmp_path / name)

    return write


Write = Callable[[str, str | bytes], str]


def texts(path: str, name: str = "") -> list[str]:
    return [row["text"] for _, row in read_table(path, {"text": name})]


# -- what is read -----------------------------------------------------------------------------------------------------

CSV = 'label,text\ngood,"a ""fine"", sunny\nday"\n\nbad, rain \n'
ROWS = [(2, {"text": 'a "fine", sunny\nday', "label": "good"}), (5, {"text": " rain ", "label": "bad"})]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", CSV),
        ("a.CSV", CSV),
        ("a.csv.gz", CSV),
        ("a.csv.xz", CSV),
        ("bom.csv", "\ufeff" + CSV),
        ("windows.csv", CSV.replace("\n", "\r\n")),
        ("no-end.csv", CSV.removesuffix("\n")),
        ("semicolon.csv", CSV.replace("d,", "d;").replace("l,", "l;")),
        ("quoted-header.csv", CSV.replace("label,text", '"label",  text ')),
        ("more.csv", 'id,label,text,\n1,good,"a ""fine"", sunny\nday",x\n\n2,bad, rain ,\n'),
    ],
)
def test_csv_with_quotes_and_newlines(write: Write, name: str, data: str) -> None:
    assert list(read_table(write(name, data), BOTH)) == ROWS


def test_the_first_line_of_a_tsv_is_a_header_if_a_column_is_named_or_all_have_usual_names(write: Write) -> None:
    path = write("a.tsv", 'mood\ttext\ngood\t"a fine\n\nbad\t rain"s \n')
    named = {"text": "", "label": "mood"}
    assert list(read_table(path, named)) == [  # quotes are text: a lone one joins no lines
        (2, {"text": '"a fine', "label": "good"}),
        (4, {"text": ' rain"s ', "label": "bad"}),
    ]
    plain = write("plain.tsv", 'mood\ttext\ngood\t"a day"\tmore\n')
    assert [row for _, row in read_table(plain, {"label": "", "text": ""})] == [
        {"label": "mood", "text": "text"},
        {"label": "good", "text": '"a day"'},  # quotes are text there
    ]
    assert not has_names(path, BOTH)
    assert has_names(path, named)
    assert not has_names(write("words.txt", "text\na day\n"), TEXT)  # one word of a text is no header


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ("sentence label", "text label"),  # SST-2
        ("Label Review", "label text"),
        ("index sentence1 sentence2 label", "- first second label"),  # RTE
        ("id question1 question2 is_duplicate", "- first second label"),  # QQP
        ("genre sentence1 sentence2 score", "- first second number"),  # STS-B
        ("gold_label premise hypothesis", "label first second"),  # SNLI
        ("input output", "source target"),
    ],
)
def test_usual_names_of_columns_need_no_setting(write: Write, names: str, keys: str) -> None:
    """Each cell of the record has the key of its column."""
    header, record = names.split(), keys.split()
    expected = {key: key for key in sorted(record) if key != "-"}
    columns = dict.fromkeys(expected, "")
    lines = [header, record]
    for name, data in (
        ("a.tsv", "\n".join(map("\t".join, lines))),
        ("a.csv", "\n".join(map(",".join, lines))),
        ("a.jsonl", json.dumps(dict(zip(*lines)))),
    ):
        assert [row for _, row in read_table(write(name, data), columns)] == [expected]


def test_of_two_usual_names_none_is_chosen(write: Write) -> None:
    path = write("a.csv", "sentence,review,label\na,b,c\n")
    with pytest.raises(UserError, match=r'no column "text"; name one with data.text=COLUMN. Columns: "sentence", "rev'):
        list(read_table(path, BOTH))
    assert list(read_table(path, {"text": "review", "label": ""})) == [(2, {"text": "b", "label": "c"})]
    both = write("b.csv", "sentence,text,label\na,b,c\n")
    assert list(read_table(both, BOTH)) == [(2, {"text": "b", "label": "c"})]


def test_all_missing_columns_are_named_at_once(write: Write) -> None:
    with pytest.raises(UserError, match=r'no column "text" or "label"; name them with data.text=COLUMN data'):
        list(read_table(write("a.csv", "x,y\na,b\n"), BOTH))
    with pytest.raises(UserError, match="the line looks like an example: add a line with the names of the columns"):
        list(read_table(write("b.csv", "A plane is taking off.,An air plane takes off.,5.0\n"), BOTH))


def test_a_semicolon_inside_quotes_is_no_delimiter(write: Write) -> None:
    assert texts(write("a.csv", '"a;b",text\n1;2,x\n')) == ["x"]
    assert texts(write("b.csv", '"a,b";text\n"1,2";x\n')) == ["x"]
    assert texts(write("c.csv", "text\na;b\n")) == ["a;b"]
    assert texts(write("d.csv", "a;b,text\n1;2,x\n")) == ["x"]  # a comma in the header


def test_leading_blank_lines_and_blank_rows_are_skipped(write: Write) -> None:
    path = write("a.csv", "\n  \ntext;label\n;\n\n  \na;b\n")
    assert list(read_table(path, BOTH)) == [(7, {"text": "a", "label": "b"})]


def test_unnamed_columns_do_not_matter(write: Write) -> None:
    """The table of an index has no name for it, and a spreadsheet leaves empty columns."""
    assert texts(write("a.csv", ",text,,\n0,a,,\n1,b,,\n")) == ["a", "b"]


def test_cells_longer_than_the_csv_module_allows(write: Write) -> None:
    before = csv.field_size_limit()
    long = "word, " * 100_000
    path = write("a.csv", f'text\n"{long}"\nshort\n')
    first, second = read_table(path, TEXT), read_table(path, TEXT)
    assert next(first) == (2, {"text": long})
    assert csv.field_size_limit() == before
    assert [len(row["text"]) for _, row in second] == [600_000, 5]  # while another file is read
    assert list(first) == [(3, {"text": "short"})]


def test_a_table_is_read_line_by_line(tmp_path: Path) -> None:
    """The first record of a file comes before the damage at its end is found."""
    data = "text\n" + "".join(f"line {i} {i * i * 7919 % 104729}\n" for i in range(20_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data.encode())[:-20])
    rows = read_table(tmp_path / "a.csv.gz", TEXT)
    assert next(rows)[0] == 2
    with pytest.raises(UserError, match="damaged"):
        list(rows)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_json_lines(write: Write, name: str) -> None:
    lines = ['{"text": "a\\n\\"fine\\" day\\u2028", "label": 1.50, "more": [1]}', "  ", '{"label": true, "text": ""}']
    path = write(name, "\ufeff" + "\r\n".join(lines))
    assert list(read_table(path, BOTH)) == [
        (1, {"text": 'a\n"fine" day\u2028', "label": "1.50"}),
        (3, {"text": "", "label": "true"}),
    ]


def test_numbers_are_written_as_in_the_file(write: Write) -> None:
    numbers = ["1", "-0", "1e400", "0.10", "123456789" * 1000]
    assert texts(write("a.jsonl", "".join(f'{{"text": {number}}}\n' for number in numbers))) == numbers


def test_emoji_by_escapes(write: Write) -> None:
    assert texts(write("a.jsonl", '{"text": "\\ud83d\\ude00"}\n')) == ["😀"]


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))] * 2)))
def test_what_csv_and_json_write_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    kept = [row for row in rows if any(cell.strip() for cell in row)]
    for name, delimiter in {"a.csv": ",", "b.csv": ";"}.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("text", "label"), *rows])
        found = [tuple(row.values()) for _, row in read_table(folder / name, {"text": "text", "label": "label"})]
        assert found == kept
    lines = [json.dumps({"label": label, "text": text}) for text, label in rows]
    (folder / "d.jsonl").write_text("\n".join([*lines, '{"text": "x", "label": "y"}']), encoding="utf-8")
    assert [tuple(row.values()) for _, row in read_table(folder / "d.jsonl", BOTH)] == [*rows, ("x", "y")]


# -- what is refused --------------------------------------------------------------------------------------------------

QUOTES = r'put the whole cell in double quotes and write each quote inside it twice \(""\)'


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.csv", "\n \n", "the file is empty"),
        ("a.jsonl", "\ufeff\n", "the file is empty"),
        ("a.csv", b"text\na\0b\n", "byte 6 is zero, so this is a binary file or UTF-16; save it as UTF-8"),
        ("a.csv", "text\n".encode("utf-16"), "UTF-16"),
        ("a.csv", "text\nfünf\n".encode("latin1"), r"line 2: not UTF-8 \(byte 0xfc\); convert it"),
        ("a.jsonl", '{"text": "fünf"}'.encode("latin1"), r"line 1: not UTF-8 \(byte 0xfc\)"),
        ("a.csv", ",,\n", r'line 1 \(the header\): no column "text"; .* Columns: none\.$'),
        ("a.csv", "id,Texts\n1,a\n", r'no column "text"; name one with data\.text=COLUMN\. Columns: "id", "Texts"\.'),
        ("a.csv", "id,Texts\n1,a\n", r'Did you mean "Texts"\?$'),
        ("a.csv", "id,n\n1,a\n", r'Columns: "id", "n"\.$'),
        ("a.csv", f"{'x' * 99},{','.join(map(str, range(99)))}\n", r'Columns: "x{39}…", "0", .*"10", …\.$'),
        ("a.csv", '\n"a\nb",text,text\n', r'line 2 \(the header\): 2 columns have the name "text"; give each its own'),
        (
            "a.csv",
            'text,b\n"a\nb",c\n\nd\n',
            r"line 5: expected 2 cells, found 1; give the row a cell for every column\.",
        ),
        (
            "a.csv",
            "text,b\na, b, c\n",
            r"line 2: expected 2 cells, found 3; put a cell that contains a delimiter",
        ),
        ("a.csv", 'text\n"a\nb"\n"c\nd\n', rf"line 4: a quoted cell has no end; {QUOTES}"),
        ("a.csv", 'text\n"a" b\n', rf"line 2: text after the closing quote of a cell; {QUOTES}"),
        ("a.csv", "text\ra\rb\r", r"line 1: a carriage return outside quotes; .* save the file with \\n"),
        ("a.csv", b"\x1f\x8b", "not UTF-8"),
        ("a.csv.gz", "", "the file is empty"),
        (
            "a.jsonl",
            '{"text": "a"}\n\n{"text": a}\n',
            r"line 3: invalid JSON \(Expecting value, character 10\)",
        ),
        ("a.jsonl", '[{"text": "a"}]\n', r"line 1: a list instead of a JSON object; write one object on each line"),
        ("a.jsonl", "7\n", "line 1: a single value instead of a JSON object"),
        ("a.jsonl", '{\n  "text": "a"\n}\n', "line 1: invalid JSON"),
        ("a.jsonl", '{"text": NaN}\n', r"line 1: invalid JSON \(NaN is not a number of JSON\)"),
        ("a.jsonl", "[" * 100_000 + "\n", r"line 1: invalid JSON"),
        (
            "a.jsonl",
            '{"text": "a"}\n{"txt": "b"}\n',
            r'line 2: no column "text"; .*"txt"\. Did you mean "txt"',
        ),
        ("a.jsonl", "{}\n", r'line 1: no column "text"; .* Columns: none\.$'),
        ("a.jsonl", '{"text": null}\n', r'line 1: "text" is null; give a text or a number'),
        ("a.jsonl", '{"text": ["a"]}\n', r'line 1: "text" is a list; give a text or a number'),
        ("a.jsonl", '{"text": {"de": "a"}}\n', r'line 1: "text" is an object; give a text or a number'),
        ("a.jsonl", '{"text": "\\ud83d"}\n', r'line 1: "text" has \\u0000 or half of a surrogate pair'),
        ("a.jsonl", '{"text": "a\\u0000"}\n', r'line 1: "text" has \\u0000'),
    ],
)
def test_a_malformed_table_is_refused(write: Write, name: str, data: str | bytes, message: str) -> None:
    path = write(name, data)
    with pytest.raises(UserError, match=message) as caught:
        list(read_table(path, TEXT))
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.csv: no such file"):
        list(read_table(tmp_path / "nowhere.csv", TEXT))


def test_short_lines_without_a_header_are_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"a\.tsv, line 3: expected text<TAB>label, found 'b c'"):
        list(read_table(write("a.tsv", "a\tb\n\t\nb c\n"), BOTH))


def test_a_tab_inside_a_cell_of_a_tsv_is_refused(write: Write) -> None:
    with pytest.raises(UserError, match=r"a\.tsv, line 2: expected 2 cells, found 3; .* remove the tab\."):
        list(read_table(write("a.tsv", 'text\tlabel\n"a\tb"\tc\n'), {"text": "text", "label": "label"}))


# -- corpora ----------------------------------------------------------------------------------------------------------


def test_pairs_of_every_format(write: Write) -> None:
    pairs = [Pair("eins", "one"), Pair("zwei, drei", "two three")]
    cells = 'de,en\neins,one\n"zwei, drei"," two three"\n,four\n'
    lines = ['{"de": "eins", "en": "one"}', '{"en": "two three", "de": "zwei, drei"}', '{"de": " ", "en": "four"}']
    tabs = "en\tde\none\teins\ntwo three\tzwei, drei\n"
    for name, text in {"a.csv": cells, "a.jsonl": "\n".join(lines), "a.tsv": tabs, "a.txt": tabs}.items():
        path = write(name, text)
        assert Pairs(path, valid=path, source="de", target="en").load().train == pairs
    own = write("own.csv", "source,target\neins,one\n")
    assert Pairs(own, valid=own).load().valid == pairs[:1]
    half = write("half.tsv", "target\tde\none\teins\n")
    assert Pairs(half, valid=half, source="de").load().train == pairs[:1]


def test_lines_of_every_format(write: Write) -> None:
    cells = write("a.csv", 'id,text\n1," indented\n  code"\n2,\n3,b\n')
    lines = write("a.jsonl", '{"text": " indented\\n  code"}\n{"text": " "}\n{"text": "b"}')
    for path in (cells, lines):
        assert Lines(path, valid=path).load().train == [Text(" indented\n  code"), Text("b")]
    tabs = write("a.tsv", "text\tid\nb\t1\n")
    assert Lines(tabs, valid=tabs).load().train == [Text("text\tid"), Text("b\t1")]
    assert Lines(tabs, valid=tabs, text="text").load().train == [Text("b")]


def test_labelled_texts_of_every_format(write: Write) -> None:
    wanted = [LabelledText('a "fine" day', "very good"), LabelledText("rain", "0")]
    cells = write("a.csv", 'review;stars\n"a ""fine"" day";very good\nrain;0\n')
    lines = write("a.jsonl", '{"review": "a \\"fine\\" day", "stars": "very good"}\n{"stars": 0, "review": "rain"}\n')
    for path in (cells, lines):
        assert Labelled(path, valid=path, text="review", label="stars").load().train == wanted
    mixed = Labelled(cells, valid=lines, test=cells, text="review", label="stars").load()
    assert mixed.train == mixed.valid == mixed.test


def test_columns_of_parallel_files_are_refused(write: Write) -> None:
    both = f"{write('a.de', 'eins')},{write('a.en', 'one')}"
    assert read_pairs(both) == [Pair("eins", "one")]
    with pytest.raises(UserError, match=r"data\.source=de: .*two parallel files, which have no columns"):
        read_pairs(both, "de", "en")
    with pytest.raises(UserError, match=r"data\.target=en: .*; leave data\.target out, or give one \.csv"):
        read_pairs(both, "", "en")
    with pytest.raises(UserError, match=r"b\.csv: a table is no parallel file; give one table with both columns"):
        read_pairs(f"{write('a.txt', 'a')},{write('b.csv', 'text')}")


def test_a_table_without_a_complete_example_is_refused(write: Write) -> None:
    for name, text in {"a.csv": "text,label\n", "a.jsonl": '{"text": "", "label": ""}'}.items():
        with pytest.raises(UserError, match=rf"data\.train=.*{name}: no complete example; give a file"):
            Labelled(write(name, text)).load()


# -- from the file to a trained model ---------------------------------------------------------------------------------

PLAN = ["plan.evaluate=20", "plan.batch_tokens=160", "plan.warmup=1", "plan.threads=1", "plan.rate=2e-2"]


def recipe(name: str, *given: str) -> Recipe:
    small = ["model.width=12", "model.embed=8", *PLAN, *given]
    chosen: Recipe = override(find_recipe(name), small, KINDS)
    return chosen


def test_labels_are_learnt_from_csv(write: Write, tmp_path: Path) -> None:
    rows = [
        'very good;"said: ""fine"";\nagain"' if n % 2 else f'bad;"wet,\n\n""cold"" {"day " * (n % 3)}"'
        for n in range(24)
    ]
    train = write("train.csv.gz", "\ufeff" + "\r\n".join(["stars;review", *rows]))
    data = [f"data.train={train}", f"data.valid={train}", "data.text=review", "data.label=stars"]
    classifier = recipe("classify", *data, "plan.steps=60", "model.hops=2", "model.attention=4")
    *_, finished = Run(classifier, tmp_path / "classify")
    assert isinstance(finished, Finished)
    assert finished.best == 1.0
    model = load(tmp_path / "classify")
    assert [one.label for one in classify(model, ['said: "fine";\nagain', 'wet,\n\n"cold" day'])] == [
        "very good",
        "bad",
    ]


def test_translation_is_learnt_from_json_lines(write: Write, tmp_path: Path) -> None:
    words = [a + b for a in "abcd" for b in "abcd"]
    lines = (json.dumps({"id": n, "de": word, "en": word[::-1].upper()}) for n, word in enumerate(words))
    train = write("train.jsonl", "\n".join(lines))
    data = [f"data.train={train}", f"data.valid={train}", "data.source=de", "data.target=en"]
    tokens = ["data.source_tokens=char", "data.target_tokens=char", "model.capacity=8", "plan.steps=20"]
    events = list(Run(recipe("translate", *data, *tokens), tmp_path / "run"))
    assert any(isinstance(event, Evaluated) for event in events)
    (one,) = translate(load(tmp_path / "run"), ["ab"])
    assert set(one.text) <= set("ABCD")


def test_wrong_input_is_refused_before_training(write: Write, tmp_path: Path) -> None:
    train = write("train.csv", "review,stars\na,1\n")
    with pytest.raises(UserError, match=r'no column "label"; name one with data\.label=COLUMN'):
        list(Run(recipe("classify", f"data.train={train}", "data.text=review"), tmp_path / "run"))
    with pytest.raises(UserError, match=r'no column "reviews"; .* Did you mean "review"\?'):
        list(Run(recipe("text", f"data.train={train}", "data.text=reviews"), tmp_path / "run"))
    bad = write("bad.jsonl", '{"source": "a", "target": "b"}\n{"source": "a", "target": \n')
    with pytest.raises(UserError, match=r"line 2: invalid JSON"):
        list(Run(recipe("translate", f"data.train={bad}"), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
