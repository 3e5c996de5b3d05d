"""Mutants: small changes of the package, made by rules, and a sample of them that a seed chooses.

A mutant swaps an operator, negates a condition, removes a statement or an argument, or returns None. Left out are
literals and default values, annotations, decorators, texts (docstrings, f-strings, `__repr__`), `raise` and `assert`: a
change there is found by reading, or is a message.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edits import Part, Source, Sources

LEAST = 3  # mutants of each room
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
NEGATED_BY_SWAP = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Constant)
TEXTS = ("__repr__", "__str__", "extra_repr")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    part: Part = field(repr=False, compare=False)
    statement: ast.stmt = field(repr=False, compare=False)  # the one around the part
    outer: ast.stmt = field(repr=False, compare=False)  # the function around it, or else the statement
    function: str  # Class.method; empty at the top level of a module
    operator: str
    old: str
    new: str
    key: str  # the same as long as the function has this code, wherever it is

    @property
    def file(self) -> str:
        """The file in the package."""
        return self.part.source.file

    @property
    def room(self) -> str:
        """The module or sub-package at the top of the package."""
        return self.file.partition("/")[0].removesuffix(".py")

    @property
    def text(self) -> str:
        """The changed file."""
        return self.part.replaced(self.new)

    @property
    def function_lines(self) -> range:
        """The lines of the function, or of the statement at the top level."""
        return range(self.outer.lineno, (self.outer.end_lineno or 0) + 1)

    @property
    def lines(self) -> range:
        """The lines of the part."""
        return range(self.part.nodes[0].lineno, (self.part.nodes[-1].end_lineno or 0) + 1)

    @property
    def statement_lines(self) -> range:
        """The lines of the statement around the part, without its block."""
        body = getattr(self.statement, "body", None)
        last = body[0].lineno - 1 if body else self.statement.end_lineno or 0
        return range(self.statement.lineno, max(last, self.statement.lineno) + 1)


def mutants(sources: Sources) -> list[Mutant]:
    """All mutants of the package, each with its key."""
    counts: Counter[str] = Counter()
    found = []
    for source in sources.files:
        for one in Finder(source).of_module():
            counts[one.key] += 1
            digest = hashlib.sha256(f"{one.key} {counts[one.key]}".encode()).hexdigest()
            found.append(replace(one, key=digest[:10]))
    return found


def sample(every: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """A sample that depends on the seed and on the code of the functions, not on their places.

    Each room has its share, and at least three. The mutants of a room are those with the lowest digests, so a change of
    one function leaves the others in the sample.
    """
    rooms: dict[str, list[Mutant]] = defaultdict(list)
    for one in every:
        rooms[one.room].append(one)
    shares = allocate({room: len(ones) for room, ones in sorted(rooms.items())}, size)

    def digest(one: Mutant) -> str:
        return hashlib.sha256(f"{seed} {one.key}".encode()).hexdigest()

    return [one for room in sorted(rooms) for one in sorted(rooms[room], key=digest)[: shares[room]]]


def allocate(sites: Mapping[str, int], size: int) -> dict[str, int]:
    """How many of a sample each room gets: in proportion to its sites, at least three where it has them."""
    least = {room: min(LEAST, count) for room, count in sites.items()}
    if size < sum(least.values()):
        least = dict.fromkeys(sites, 0)
    shares = dict(least)
    for _ in range(
        min(size, sum(sites.values())) - sum(shares.values())
    ):  # to the room that is furthest below its share
        room = max((one for one in sites if shares[one] < sites[one]), key=lambda one: sites[one] / (shares[one] + 0.5))
        shares[room] += 1
    return shares


class Finder:
    """Finds the mutants of a file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.function = ""
        self.outer: Function | None = None
        self.returns = False  # whether None is a wrong result of the function
        self.statement: ast.stmt | None = None

    def of_module(self) -> Iterator[Mutant]:
        """All mutants of the file."""
        yield from self._block(self.source.tree.body, ())

    def _mutant(self, operator: str, old: ast.expr | ast.stmt, new: ast.AST | None) -> Mutant:
        assert self.statement is not None
        texts = ast.unparse(old), "" if new is None else ast.unparse(new)
        key = " ".join([self.function, operator, _syntax(old), "" if new is None else _syntax(new)])
        outer = self.outer or self.statement
        return Mutant(Part(self.source, (old,)), self.statement, outer, self.function, operator, *texts, key)

    def _block(self, block: Sequence[ast.stmt], names: tuple[str, ...], *, of_class: bool = False) -> Iterator[Mutant]:
        for node in block:
            if isinstance(node, Function):
                yield from self._of_function(node, (*names, node.name))
            elif isinstance(node, ast.ClassDef):
                yield from self._block(node.body, (*names, node.name), of_class=True)
            elif not (of_class and isinstance(node, ast.Assign | ast.AnnAssign)):  # the defaults of fields
                yield from self._of_statement(node, names)

    def _of_function(self, node: Function, names: tuple[str, ...]) -> Iterator[Mutant]:
        if node.name in TEXTS:
            return
        before = self.function, self.returns, self.outer
        none = node.returns is None or (isinstance(node.returns, ast.Constant) and node.returns.value is None)
        self.function, self.returns, self.outer = ".".join(names), not none, node
        yield from self._block(node.body, names)
        self.function, self.returns, self.outer = before

    def _of_statement(self, node: ast.stmt, names: tuple[str, ...]) -> Iterator[Mutant]:
        if isinstance(node, SKIPPED) or (isinstance(node, ast.If) and _for_types_or_scripts(node.test)):
            return
        self.statement = node
        match node:
            case ast.Expr(value=ast.Constant()):  # a docstring or `...`
                return
            case ast.Expr():
                yield self._mutant("statement removed", node, None)
            case ast.Assign(targets=[*targets]) if all(
                isinstance(one, ast.Attribute | ast.Subscript) for one in targets
            ):
                yield self._mutant("statement removed", node, None)
            case ast.AnnAssign(target=ast.Attribute() | ast.Subscript()) if node.value:
                yield self._mutant("statement removed", node, None)
            case ast.AugAssign():
                yield from self._augmented(node)
            case ast.Return(value=ast.expr() as value) if self.returns and ast.unparse(value) != "None":
                yield self._mutant("None returned", node, ast.Return(ast.Constant(None)))
            case ast.Break():
                yield self._mutant("break and continue swapped", node, ast.Continue())
            case ast.Continue():
                yield self._mutant("break and continue swapped", node, ast.Break())
            case ast.If() | ast.While():
                yield from self._negated(node.test)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                self.statement = node
                if isinstance(child, ast.expr) and name != "annotation":
                    yield from self._of_expression(child)
                elif isinstance(child, ast.stmt):
                    yield from self._block([child], names)
                elif isinstance(child, ast.ExceptHandler | ast.match_case):
                    yield from self._guard(child)
                    yield from self._block(child.body, names)
                elif isinstance(child, ast.withitem):
                    yield from self._of_expression(child.context_expr)

    def _guard(self, node: ast.ExceptHandler | ast.match_case) -> Iterator[Mutant]:
        if isinstance(node, ast.match_case) and node.guard:
            yield from self._of_expression(node.guard)

    def _augmented(self, node: ast.AugAssign) -> Iterator[Mutant]:
        if not isinstance(node.target, ast.Name):
            yield self._mutant("statement removed", node, None)
        if (other := COUNTED.get(type(node.op))) and not _is_text(node.value):
            yield self._mutant("arithmetic swapped", node, ast.AugAssign(node.target, other(), node.value))

    def _negated(self, test: ast.expr) -> Iterator[Mutant]:
        """The negation of a condition, where no other operator gives it."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], NEGATED_BY_SWAP):
            return
        if not isinstance(test, ast.Constant | ast.NamedExpr):
            yield self._mutant("condition negated", test, ast.UnaryOp(ast.Not(), test))

    def _of_expression(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, SKIPPED):
            return
        if isinstance(node, ast.Lambda):
            yield from self._of_expression(node.body)
            return
        match node:
            case ast.Compare():
                for at, op in enumerate(node.ops):
                    new = copy.deepcopy(node)
                    new.ops[at] = COMPARED[type(op)]()
                    yield self._mutant("comparison swapped", node, new)
            case ast.BoolOp():
                other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                yield self._mutant("and, or swapped", node, ast.BoolOp(other, node.values))
            case ast.UnaryOp(op=ast.Not()):
                yield self._mutant("not removed", node, node.operand)
            case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
                yield self._mutant("minus removed", node, node.operand)
            case ast.BinOp() if type(node.op) in COUNTED and not _is_text(node.left) and not _is_text(node.right):
                yield self._mutant(
                    "arithmetic swapped", node, ast.BinOp(node.left, COUNTED[type(node.op)](), node.right)
                )
            case ast.IfExp():
                yield from self._negated(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._negated(test)
            case ast.Call():
                for at, keyword in enumerate(node.keywords):
                    if keyword.arg:
                        rest = [*node.keywords[:at], *node.keywords[at + 1 :]]
                        yield self._mutant("argument removed", node, ast.Call(node.func, node.args, rest))
        for child in ast.iter_child_nodes(node):
            yield from self._of_expression(child)


def _syntax(node: ast.AST) -> str:
    """The syntax as a text that is the same in all versions of Python, as that of `ast.unparse` is not."""
    every = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(node, **every)  # type: ignore[arg-type]


def _for_types_or_scripts(test: ast.expr) -> bool:
    """Whether a condition is that of `if TYPE_CHECKING` or `if __name__ == "__main__"`."""
    return any(isinstance(node, ast.Name) and node.id in ("TYPE_CHECKING", "__name__") for node in ast.walk(test))


def _is_text(node: ast.expr) -> bool:
    """Whether an operand is a text, for which an operator of numbers is an error at once."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
