"""Edits by syntax: which definition a name means, where a text occurs in it, what the file is afterwards."""

import ast
from pathlib import Path

import pytest

from edits import NoSuchPlace, Sources

CODE = '''"""A module."""

LIMIT = 3  # a reason


class Reader:
    """Reads."""

    size: int = 4

    @property
    def rest(self) -> int:
        """What is left."""
        return self.size - (
            LIMIT + 1  # one more
        )

    @rest.setter
    def rest(self, value: int) -> None:
        self.size = value


def read(lines: list[str]) -> str:
    """All lines."""
    for line in lines:
        print(line)
    print(f"{len(lines) + 1} lines")
    return "".join(lines)
'''


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "files.py").write_text(CODE)
    (tmp_path / "other.py").write_text(
        "def read() -> None:\n    pass\n\n\nclass Other:\n    def rest(self):\n        pass\n"
    )
    return Sources(tmp_path)


def changed(sources: Sources, name: str, old: str, new: str) -> str:
    source, text = sources.edited(name, old, new)
    assert source.text == CODE
    return text


def test_formatting_and_comments_do_not_matter_to_what_is_replaced(sources: Sources) -> None:
    text = changed(sources, "Reader.rest", "self.size-(LIMIT+1)", "self.size - LIMIT")
    assert text == CODE.replace("(\n            LIMIT + 1  # one more\n        )", "LIMIT")


def test_a_property_and_its_setter_are_one_definition(sources: Sources) -> None:
    assert changed(sources, "Reader.rest", "self.size = value", "") == CODE.replace("self.size = value", "pass")


def test_an_expression_keeps_its_place_among_operators(sources: Sources) -> None:
    text = changed(sources, "Reader.rest", "LIMIT + 1", "LIMIT if self else 0")
    wanted = CODE.replace("LIMIT + 1  # one more", "LIMIT if self else 0")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(wanted))
    text = changed(sources, "files.read", "''.join(lines)", "lines or None")
    assert text == CODE.replace('"".join(lines)', "lines or None")
    text = changed(sources, "Reader.rest", "LIMIT", "1 if self else 0")
    assert text == CODE.replace("LIMIT + 1", "(1 if self else 0) + 1")


def test_what_a_class_or_a_module_assigns_has_a_name(sources: Sources) -> None:
    assert changed(sources, "LIMIT", "3", "4") == CODE.replace("= 3", "= 4")
    assert changed(sources, "Reader.size", "4", "5") == CODE.replace("= 4", "= 5")


def test_three_points_stand_for_a_block(sources: Sources) -> None:
    text = changed(sources, "files.read", "for line in lines:\n    ...", "while lines:\n    ...")
    assert text == CODE.replace("for line in lines", "while lines")


def test_a_part_of_an_f_string_is_replaced(sources: Sources) -> None:
    text = changed(sources, "files.read", "len(lines) + 1", "len(lines)")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(CODE.replace("len(lines) + 1", "len(lines)")))


@pytest.mark.parametrize(
    ("name", "old", "error"),
    [
        ("read", "lines", "read is defined 2 times: data.files.read, other.read"),
        ("rest", "self", "rest is defined 0 times"),
        ("files.read", "lines", r"occurs 3 times in files.read \(data/files.py\)"),
        ("files.read", "for line in lines:\n    pass", "occurs 0 times"),
    ],
)
def test_what_is_not_at_one_place_is_an_error(sources: Sources, name: str, old: str, error: str) -> None:
    with pytest.raises(NoSuchPlace, match=error):
        sources.edited(name, old, "None")
