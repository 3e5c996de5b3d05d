"""Edits of the package's source by its syntax: where a definition is, what occurs in it, the text with a part replaced.

Formatting, line breaks and comments do not matter to what occurs: texts are compared as syntax. So a table of edits,
such as tests/faults.py, still fits when a function moves to another file or is formatted anew.
"""

from __future__ import annotations

import ast
import hashlib
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/regard"

BLOCKS = ("body", "orelse", "finalbody")


class NoSuchPlace(ValueError):  # noqa: N818
    """A name of a definition, or a text in it, that does not occur exactly once."""


@dataclass(frozen=True)
class Source:
    """A file of the package: its path in the package, its text and the syntax of that."""

    file: str
    text: str
    tree: ast.Module = field(repr=False, compare=False)

    @classmethod
    def read(cls, package: Path, file: str) -> Source:
        """The file as it is now."""
        text = (package / file).read_text(encoding="utf-8")
        return cls(file, text, ast.parse(text))

    @property
    def module(self) -> tuple[str, ...]:
        """The parts of the module's name, without the package's own."""
        parts = Path(self.file).with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts


@dataclass(frozen=True)
class Part:
    """An expression, or statements that follow each other in a block: what an edit replaces."""

    source: Source
    nodes: tuple[ast.expr] | tuple[ast.stmt, ...]

    def replaced(self, new: str) -> str:
        """The file's text with `new` in the place of this part; statements are removed by an empty text.

        Only the lines of the part change, so that the lines of a traceback are those of the file.
        """
        expected = ast.dump(self._replaced_tree(new))
        first, last = self.nodes[0], self.nodes[-1]
        lines = self.source.text.encode().splitlines(keepends=True)
        begin = sum(map(len, lines[: first.lineno - 1])) + first.col_offset
        end = sum(map(len, lines[: (last.end_lineno or 0) - 1])) + (last.end_col_offset or 0)
        data = self.source.text.encode()
        for text in self._texts(new):
            changed = (data[:begin] + text.encode() + data[end:]).decode(errors="replace")
            if _dump(changed) == expected:
                return changed
        return ast.unparse(self._replaced_tree(new)) + "\n"  # such as a part of an f-string

    def _texts(self, new: str) -> list[str]:
        """Ways to write `new` at the place of the part."""
        if isinstance(self.nodes[0], ast.expr):
            return [new, f"({new})"]
        return [textwrap.indent(new, " " * self.nodes[0].col_offset).lstrip(" "), "pass"]

    def _replaced_tree(self, new: str) -> ast.Module:
        """The file's syntax with `new` in the place of this part."""
        tree = ast.parse(self.source.text)  # the nodes of `source` stay as they are
        copies = dict(zip(map(id, ast.walk(self.source.tree)), ast.walk(tree)))
        wanted = [copies[id(node)] for node in self.nodes]
        for parent in ast.walk(tree):
            for name, value in ast.iter_fields(parent):
                if value is wanted[0]:
                    setattr(parent, name, ast.parse(new, mode="eval").body)
                    return tree
                if isinstance(value, list) and any(one is wanted[0] for one in value):
                    at = next(place for place, one in enumerate(value) if one is wanted[0])
                    if isinstance(wanted[0], ast.expr):
                        value[at] = ast.parse(new, mode="eval").body
                    else:
                        value[at : at + len(wanted)] = ast.parse(new).body
                        value[:] = value or [ast.Pass()]
                    return tree
        raise AssertionError("a part belongs to its source")


def _dump(text: str) -> str:
    """The syntax of a text as one string; none if it is no Python."""
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return ""


class Sources:
    """All files of the package, with the places of their definitions."""

    def __init__(self, package: Path = PACKAGE) -> None:
        files = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
        self.files = tuple(Source.read(package, file) for file in files)
        # by the last name, the places of all definitions: the file, all names from the package on, the node
        self._places: dict[str, list[tuple[Source, tuple[str, ...], int, ast.stmt]]] = {}
        for source in self.files:
            for names, node in definitions(source.tree):
                self._places.setdefault(names[-1], []).append((source, (*source.module, *names), len(names), node))

    def definition(self, name: str) -> tuple[Source, list[ast.stmt]]:
        """The definition of a name such as `Class.method`, before which the end of its module's name may stand.

        A property and its setter are one definition, in two statements.
        """
        wanted = tuple(name.split("."))
        found = [
            (source, names, node)
            for source, names, own, node in self._places.get(wanted[-1], [])
            if own <= len(wanted) and names[-len(wanted) :] == wanted
        ]
        where = sorted({".".join(names) for _, names, _ in found})
        if len(where) != 1:
            raise NoSuchPlace(f"{name} is defined {len(where)} times{': ' if where else ''}{', '.join(where)}")
        return found[0][0], [node for _, _, node in found]

    def edited(self, name: str, old: str, new: str) -> tuple[Source, str]:
        """The file of a definition, and its text with `new` in the only place of the definition where `old` occurs.

        Both are expressions, or else statements. A block that is only `...` stands for any block, and in `new` for the
        one that was found.
        """
        source, nodes = self.definition(name)
        old, new = (textwrap.dedent(one).strip() for one in (old, new))
        wanted, other = (ast.parse(one).body for one in (old, new))
        find = (
            _expressions
            if all(len(one) == 1 and isinstance(one[0], ast.Expr) for one in (wanted, other))
            else _statements
        )
        found = [part for node in nodes for part in find(node, wanted)]
        if len(found) != 1:
            raise NoSuchPlace(f"the old text occurs {len(found)} times in {name} ({source.file})")
        left = [block for one, node in zip(wanted, found[0]) for block in _left_open(one, node) or ()]
        return source, Part(source, found[0]).replaced(_filled(new, left) if left else new)


def definitions(tree: ast.AST, within: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ast.stmt]]:
    """The functions and classes of a module, and what it and its classes assign, with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield (*within, node.name), node
            yield from definitions(node, (*within, node.name))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(tree, ast.Module | ast.ClassDef):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (((*within, one.id), node) for one in targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.stmt | ast.ExceptHandler):  # a block of an `if`, a `with` or a `try`
            yield from definitions(node, within)


def _expressions(tree: ast.AST, wanted: Sequence[ast.stmt]) -> list[tuple[ast.expr]]:
    """Where an expression occurs in a tree."""
    assert isinstance(wanted[0], ast.Expr)
    value = wanted[0].value
    return [(node,) for node in ast.walk(tree) if isinstance(node, ast.expr) and _left_open(value, node) is not None]


def _statements(tree: ast.AST, wanted: Sequence[ast.stmt]) -> list[tuple[ast.stmt, ...]]:
    """Where statements follow each other in a tree."""
    return [
        tuple(block[at : at + len(wanted)])
        for node in ast.walk(tree)
        for block in (getattr(node, name, None) for name in BLOCKS)
        if isinstance(block, list)
        for at in range(len(block) - len(wanted) + 1)
        if all(_left_open(one, found) is not None for one, found in zip(wanted, block[at:]))
    ]


def _left_open(wanted: object, node: object) -> list[list[ast.stmt]] | None:
    """The blocks for which the wanted syntax has only `...`, if the rest is equal; else None."""
    if isinstance(wanted, ast.AST):
        if type(wanted) is not type(node):
            return None
        pairs = [(value, getattr(node, name, None), name) for name, value in ast.iter_fields(wanted)]
    elif isinstance(wanted, list) and isinstance(node, list) and len(wanted) == len(node):
        pairs = [(one, other, "") for one, other in zip(wanted, node)]
    else:
        return [] if type(wanted) is type(node) and wanted == node else None
    found: list[list[ast.stmt]] = []
    for one, other, name in pairs:
        blocks = [other] if name in BLOCKS and _is_open(one) and other else _left_open(one, other)
        if blocks is None:
            return None
        found += blocks
    return found


def _is_open(block: object) -> bool:
    """Whether a block is only `...`."""
    return isinstance(block, list) and len(block) == 1 and ast.unparse(block[0]) == "..."


def _filled(new: str, blocks: Sequence[list[ast.stmt]]) -> str:
    """The new text with the blocks that were found in the place of `...`, in their order."""
    tree, left = ast.parse(new), iter(blocks)
    for node in ast.walk(tree):
        for name in BLOCKS:
            if node is not tree and _is_open(getattr(node, name, None)):
                setattr(node, name, next(left))
    return ast.unparse(tree)


def digest() -> str:
    """A digest of the package and its tests."""
    paths = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


@contextmanager
def copied_package() -> Iterator[Path]:
    """The folder `src` of a copy, with the documentation beside it, to which pages have links."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "src/regard", ignore=shutil.ignore_patterns("__pycache__"))
        (Path(folder) / "docs").symlink_to(ROOT / "docs")
        yield Path(folder) / "src"
