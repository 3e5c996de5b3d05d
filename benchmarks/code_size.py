"""How large the code is, how finely it is cut, and how many of its files a common task passes through.

    python benchmarks/code_size.py                 # this checkout
    python benchmarks/code_size.py ROOT --json     # another one
    python benchmarks/code_size.py --no-walks      # without running anything

**Lines.** Each line of `src/regard` is one of four: docstring (of a module, class or function, with the blank lines in
it), comment (nothing else on the line), blank, or code.

**Small files** have fewer than 60 lines; `__init__.py` is excepted. Beside each is the number of other modules with an
import statement that names it, inside functions and under TYPE_CHECKING too.

**Repeated names** are names of functions and methods that are defined more than five times; a leading underscore is
ignored, overloads are not counted. Dunder methods and PROTOCOL_NAMES are excluded.

**Private helpers** are functions and methods whose name starts with one underscore. `called once` are those whose name
is called at exactly one place of the package; `used once in their file` those whose name is used, called or not, at
exactly one place of the file that defines them (a name that several files define is kept apart here).

**Walks.** A tiny `dates` run is trained in a temporary folder. Each walk is a process of its own, in which
`sys.setprofile` notes the files of `src/regard` of which a function, method, lambda or comprehension is called on the
main thread. The body of a module or of a class is no such call, and neither is anything that runs while a module is
being imported: a table that calls functions when it is made does not count. What dataclasses generate has no file.

- `translate`: `regard.translate(model, [line])` with a model that is loaded already;
- `train`: `regard train dates` on the command line, until the optimiser's `step` is called for the first time;
- `look`: `regard.look(model, text).html()` with a model that is loaded already, written by the caller;
- `load`: `regard.load(run)`, which precedes `translate` and `look`;
- `look and save`: `look` with the view's own `save` in place of `html`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SMALL = 60  # lines
OFTEN = 5  # definitions of one name
KINDS = ("code", "docstring", "comment", "blank")
# Methods that several classes have because something calls them on any of these.
PROTOCOL_NAMES = frozenset(
    [
        *("forward", "build", "load", "to", "start", "step", "select", "advance", "readout", "keys", "logits"),
        *("attend", "weights", "modules", "count", "capturable"),
    ]
)

WALKS = ("translate", "train", "look", "load", "look and save")
TEXT = "3 March 2021"
TINY = (
    *("data.train=200", "data.valid=20", "data.test=20", "model.width=16", "model.embed=8"),
    *("plan.steps=2", "plan.evaluate=2", "plan.samples=4", "plan.device=cpu"),
)
IMPORTING = ("<frozen importlib._bootstrap>", "_find_and_load")  # the file and function that run every import

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


# -- lines -------------------------------------------------------------------------------------------------------------


def line_kinds(text: str, tree: ast.Module) -> Counter[str]:
    """How many lines of a file are code, docstring, comment and blank."""
    docstrings, comments = set[int](), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            comments.add(token.start[0])
    kinds: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if number in docstrings:
            kinds["docstring"] += 1
        elif number in comments:
            kinds["comment"] += 1
        else:
            kinds["code" if line.strip() else "blank"] += 1
    return kinds


def sizes(texts: dict[str, str], trees: dict[str, ast.Module]) -> dict[str, dict[str, int]]:
    """The lines of each folder, of each file outside folders, and in total."""
    rows: dict[str, Counter[str]] = {}
    for path, text in texts.items():
        folder, inside, _ = path.partition("/")
        kinds = line_kinds(text, trees[path]) + Counter(files=1, lines=len(text.splitlines()))
        for name in (folder + inside, "total"):
            rows.setdefault(name, Counter()).update(kinds)
    columns = ("files", "lines", *KINDS)
    ordered = sorted(rows, key=lambda name: (name == "total", name.endswith("/"), name))
    return {name: {column: rows[name][column] for column in columns} for name in ordered}


# -- fragments ---------------------------------------------------------------------------------------------------------


def module_name(path: str) -> str:
    """`data/files.py` → `regard.data.files`; a package has the name of its folder."""
    parts = ["regard", *path.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: str, tree: ast.Module) -> set[str]:
    """Every dotted name that a file's import statements name, modules and what is taken from them alike."""
    package = module_name(path).split(".")
    package = package if path.endswith("__init__.py") else package[:-1]
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names.update([origin, *(f"{origin}.{alias.name}" for alias in node.names)])
    return names


def small_files(texts: dict[str, str], trees: dict[str, ast.Module]) -> list[dict[str, Any]]:
    """The files under 60 lines, and how many other modules import each."""
    names = {path: imported(path, tree) for path, tree in trees.items()}
    found = []
    for path, text in texts.items():
        if (lines := len(text.splitlines())) < SMALL and not path.endswith("__init__.py"):
            importers = sum(module_name(path) in names[other] for other in names if other != path)
            found.append({"file": path, "lines": lines, "importers": importers})
    return found


def functions(tree: ast.Module) -> Iterator[Function]:
    """Every function and method of a file, overloads left out."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            if not decorators & {"overload", "typing.overload"}:
                yield node


def is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def repeated_names(trees: dict[str, ast.Module]) -> dict[str, int]:
    """The names of functions that are defined more than five times, the most frequent first."""
    names = (node.name for tree in trees.values() for node in functions(tree))
    counts = Counter(name.lstrip("_") for name in names if not is_dunder(name))
    return {name: n for name, n in counts.most_common() if n > OFTEN and name not in PROTOCOL_NAMES}


def used_name(node: ast.AST) -> str:
    """What an expression `name` or `anything.name` is called."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def private_helpers(trees: dict[str, ast.Module]) -> dict[str, int]:
    """How many private functions there are, and how many of them are called or used at one place."""
    nodes = {path: list(ast.walk(tree)) for path, tree in trees.items()}
    calls = Counter(used_name(node.func) for each in nodes.values() for node in each if isinstance(node, ast.Call))
    uses = {path: Counter(map(used_name, each)) for path, each in nodes.items()}
    private = [
        (path, node.name)
        for path, tree in trees.items()
        for node in functions(tree)
        if node.name.startswith("_") and not node.name.startswith("__")
    ]
    return {
        "total": len(private),
        "called once": sum(calls[name] == 1 for _, name in private),
        "used once in their file": sum(uses[path][name] == 1 for path, name in private),
    }


# -- walks -------------------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """The first optimiser step has been reached; no handler of the library's is meant to catch this."""


class Walk:
    """Notes the files under a folder of which a function is called while the block runs, imports left out."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files = set[str]()
        self._imports = 0  # that are under way, one inside the other

    def __enter__(self) -> Walk:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if (code.co_filename, code.co_name) == IMPORTING:
            self._imports += (event == "call") - (event == "return")
            return
        body = not code.co_flags & inspect.CO_OPTIMIZED  # of a module or of a class
        if event == "call" and not body and not self._imports and code.co_filename.startswith(self.folder):
            self.files.add(code.co_filename.removeprefix(self.folder))


def carry_out(walk: str, folder: str, run: str) -> list[str]:
    """Take one walk in this process: the files that it passes through."""
    import regard

    page = Path(run, "look.html")
    if walk == "train":
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        from regard.cli import main as command_line

        def stop(*_: object) -> None:
            sys.setprofile(None)
            raise Stopped

        register_optimizer_step_pre_hook(stop)
        with Walk(folder) as walked:
            try:
                command_line(["train", "dates", *TINY, "--out", str(Path(run, "second"))])
            except Stopped:
                return sorted(walked.files)
        raise SystemExit("train: no optimiser step was taken")
    if walk == "load":
        with Walk(folder) as walked:
            regard.load(run)
        return sorted(walked.files)
    model = regard.load(run)
    with Walk(folder) as walked:
        match walk:
            case "translate":
                regard.translate(model, [TEXT])
            case "look":
                page.write_text(regard.look(model, TEXT).html())
            case "look and save":
                regard.look(model, TEXT).save(page)
    return sorted(walked.files)


def walks(root: Path) -> dict[str, list[str]]:
    """The files of a checkout that each walk passes through."""
    variables = {"PYTHONPATH": str(root / "src"), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder, "run"))
        python("-m", "regard", "train", "dates", *TINY, "--out", run)
        told = (python(__file__, str(root), "--walk", walk, "--run", run) for walk in WALKS)
        return {walk: json.loads(answer.splitlines()[-1]) for walk, answer in zip(WALKS, told)}


# -- telling -----------------------------------------------------------------------------------------------------------


def report(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{'':16}" + "".join(f"{column:>10}" for column in ("files", "lines", *KINDS))]
    lines += [f"{name:16}" + "".join(f"{n:10,}" for n in row.values()) for name, row in found["lines"].items()]
    small = found["small files"]
    one = sum(each["importers"] <= 1 for each in small)
    lines += ["", f"{len(small)} files under {SMALL} lines, {one} of them imported by one other module or none:"]
    lines += [f"  {each['file']:32}{each['lines']:4} lines, imported by {each['importers']}" for each in small]
    names = found["repeated names"]
    told = ", ".join(f"{name} {count}" for name, count in names.items()) or "none"
    lines += ["", f"{len(names)} names defined more than {OFTEN} times: {told}"]
    private = found["private helpers"]
    told = f"{private['called once']} called once, {private['used once in their file']} used once in their file"
    lines += ["", f"{private['total']} private helpers: {told}"]
    for walk, files in found["walks"].items():
        lines += ["", f"{walk}: {len(files)} files", f"  {' '.join(files)}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1], metavar="ROOT")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-walks", action="store_true", help="read the code only")
    parser.add_argument("--walk", choices=WALKS, help=argparse.SUPPRESS)  # one walk, in the process for it
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    root = given.root.resolve()
    folder = root / "src" / "regard"
    if given.walk:
        files = carry_out(given.walk, f"{folder}{os.sep}", given.run)
        print(json.dumps(files))
        return
    texts = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    if not texts:
        parser.error(f"{folder}: no Python files; give the root of a checkout")
    trees = {path: ast.parse(text) for path, text in texts.items()}
    found: dict[str, Any] = {
        "lines": sizes(texts, trees),
        "small files": small_files(texts, trees),
        "repeated names": repeated_names(trees),
        "private helpers": private_helpers(trees),
        "walks": {} if given.no_walks else walks(root),
    }
    print(json.dumps(found, indent=2) if given.json else report(found))


if __name__ == "__main__":
    main()
