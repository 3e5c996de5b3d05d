"""What imports what: the parts of the library stand on one another, and nothing reaches up."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent

# From the ground up, as docs/design.md states it. A part may import those before it, and itself.
ORDER = (
    "version",
    "errors",
    "synonyms",
    "config",
    "file_io",
    "shipped",
    "checkpoint",
    "migrations",
    "device",
    "tensor_tree",
    "mask",
    "alignment",
    "class_scores",
    "answer_scores",
    "entities",
    "metrics",
    "report.sections",
    "report.glossary",
    "render",
    "data",
    "kernels",
    "scores",
    "taps",
    "attention",
    "recording",
    "readers",
    "layers",
    "decode",
    "heads",
    "models",
    "objectives",
    "tasks",
    "recipes",
    "pretrained",
    "stored",
    "verbs.numbers",
    "verbs.pooling",
    "verbs.loaded",
    "verbs",
    "training",
    "checks",
    "report",
    "explain",
    "cli",
    "__main__",
)


def _modules() -> dict[str, Path]:
    """Dotted name below `regard` → file; a package's name is that of its `__init__`."""
    paths = {path: path.relative_to(ROOT).with_suffix("").parts for path in ROOT.rglob("*.py")}
    return {".".join(part for part in parts if part != "__init__"): path for path, parts in paths.items()}


MODULES = _modules()


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import, those inside functions too, but for what only a type checker runs."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        children = node.orelse
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from _statements(child)


def _imported(source: str) -> set[str]:
    """The modules of the library that a source text imports; a name that is no module is found in its package."""
    found = set()
    for statement in _statements(ast.parse(source)):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        else:
            assert statement.level == 0, "imports are written in full"
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
        for name in names:
            if name == "regard" or name.startswith("regard."):
                inner = name.removeprefix("regard").removeprefix(".")
                found.add(inner if inner in MODULES else inner.rpartition(".")[0])
    return found


def _rank(module: str) -> int:
    """The place of a module's part in the order; the longest name that fits is its part."""
    parts = [part for part in ORDER if f"{module}.".startswith(f"{part}.")]
    assert parts, f"{module}: say in ORDER and in docs/design.md where it stands"
    return ORDER.index(max(parts, key=len))


GRAPH = {module: _imported(path.read_text(encoding="utf-8")) for module, path in MODULES.items()}


@pytest.mark.parametrize("part", ORDER)
def test_nothing_imports_upwards(part):
    modules = [module for module in MODULES if module and _rank(module) == ORDER.index(part)]
    assert modules, f"{part} is gone: take it out of ORDER"
    upwards = [
        f"{module} → {other or 'regard'}"
        for module in modules
        for other in GRAPH[module]
        if not other or _rank(other) > _rank(module)
    ]
    assert not upwards


def test_no_modules_import_one_another():
    assert set(TopologicalSorter(GRAPH).static_order()) == set(MODULES)  # a cycle raises


def test_few_know_the_kernels():
    knowing = {module for module, others in GRAPH.items() if any(other.startswith("kernels") for other in others)}
    assert {module for module in knowing if not module.startswith("kernels")} == {
        "scores",
        "objectives.loss",
        "decode.beam_search",
        "decode.fast_layers",
        "decode.sample",
    }


def test_imports_in_functions_count_and_those_for_types_do_not():
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from regard.cli import main
else:
    import regard.mask
def f():
    from regard import verbs
    from regard.training.run import Run
    from regard.report import sections
"""
    assert _imported(source) == {"mask", "verbs", "training.run", "report.sections"}
