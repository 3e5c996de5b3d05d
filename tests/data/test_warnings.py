"""Files that are probably not what the user meant: a warning with the cure."""

from collections.abc import Callable
from pathlib import Path

import pytest

from regard.data.labelled import Labelled
from regard.data.sources import Pairs
from regard.errors import UserError

TEXTS = [f"the {animal} number {n}" for n in range(10) for animal in ("dog", "cat")]
LABELLED = "".join(f"{text.split()[1]}\t{text}\n" for text in TEXTS)
SWAPPED = "".join(f"{text}\t{text.split()[1]}\n" for text in TEXTS)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, data: str) -> str:
        (tmp_path / name).write_text(data, encoding="utf-8")
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        pytest.param(LABELLED, "", id="right"),
        pytest.param("".join(f"a {text.split()[1]}\t{n}\n" for n, text in enumerate(TEXTS)), "", id="short texts"),
        pytest.param(SWAPPED, "20 labels, 2 texts), so the columns may be swapped; a file without", id="swapped"),
        pytest.param(
            "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS)),
            "20 classes in 20 examples, so most classes have one text; check which column has the labels",
            id="numbers",
        ),
        pytest.param(
            f"text\tsource\n{LABELLED}",
            "line looks like a header and is read as an example; give the names: data.label=source data.text=text",
            id="header",
        ),
        pytest.param(f"Label\tReview\n{LABELLED}", "", id="usual names"),
        pytest.param(
            f"animal\tstory\n{LABELLED}", "give the names: data.label=animal data.text=story", id="other words"
        ),
        pytest.param(f"text\tthe dog has no number\n{LABELLED}", "", id="no header"),
        pytest.param(f"dog\trun\n{LABELLED}", "", id="a text of one word"),
        pytest.param(
            LABELLED.replace("\n", "\tx\n"),
            "lines have 3 columns, and only the first 2 are read, as label<TAB>text; to choose others, add a "
            "header and name its columns: data.label=COLUMN data.text=COLUMN",
            id="third",
        ),
        pytest.param(f"{LABELLED}dog\t\n\tthe cat\n", "2 of 22 examples have no label or no text and", id="empty"),
    ],
)
def test_a_label_file_that_is_probably_wrong(write: Callable[[str, str], str], data: str, warning: str) -> None:
    path = write("labels.tsv", data)
    found = Labelled(train=path, valid=path).load().warnings
    assert len(found) == bool(warning)
    assert warning in "".join(found)


def test_swapped_columns_that_leave_nothing_to_hold_out(write: Callable[[str, str], str]) -> None:
    with pytest.raises(UserError, match=r"none can be held out.*the columns may be swapped; .*label<TAB>text"):
        Labelled(train=write("labels.tsv", SWAPPED)).load()


def test_pairs_have_warnings_too(write: Callable[[str, str], str]) -> None:
    corpus = Pairs(train=write("pairs.tsv", "Hi.\tSalut.\tCC-BY\n" * 3 + "Go.\tVa !\tCC-BY\n")).load()
    assert "lines have 3 columns, and only the first 2 are read, as source<TAB>target" in corpus.warnings[0]
    assert Pairs(train=f"{write('a', 'x' * 3)},{write('b', 'y')}", valid=write("c", "a\tb")).load().warnings == ()


def test_a_table_with_tabs_is_no_csv(write: Callable[[str, str], str]) -> None:
    path = write("labels.csv", "label\ttext\ndog\tthe dog\n")
    with pytest.raises(UserError, match=r"tabs separate its columns; rename the file to .tsv and .* data.text=text"):
        Labelled(train=path).load()
