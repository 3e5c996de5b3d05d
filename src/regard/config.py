"""Trees of frozen dataclasses: changed by dotted settings, written to JSON and read back, shown to people.

A tree's leaves are numbers, text, choices and tuples of them; a field annotated with dataclasses is a node. The class
of a node is named in one of several literal tables, `kinds`, which is all that is needed to write `model=lstmn` or to
read JSON back. A table may also name nodes that are filled in already, such as published sizes: `model=gpt2` starts
from that one. A field annotated ``Annotated[..., Table("model")]`` takes whatever the table "model" has, so that a
user's own tables can add to ours.
"""

import ast
import inspect
import io
import math
import sys
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import UserError, nearest

C = TypeVar("C")
Kinds = Mapping[str, Mapping[str, Any]]  # a table's name → a name → a class, or an instance to start from


@dataclass(frozen=True)
class Table:
    """The table of kinds that an annotated field takes its nodes from."""

    name: str


SPELLINGS: dict[type, dict[str, bool | None]] = {
    bool: {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False},
    NoneType: {"none": None},
}
NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text", NoneType: "none"}


class Setting(NamedTuple):
    """One leaf of a tree, as `regard show NAME` prints it."""

    name: str  # dotted
    value: Any
    type: str  # what may be written there, in words
    comment: str  # what stands after # on the field's line
    choices: tuple[str, ...] = ()  # where only some words may stand there


def override(config: C, settings: Sequence[str], kinds: Kinds) -> C:
    """The same tree with `name.name=value` settings applied in order; `model=lstmn` starts that node afresh.

    Whatever their order, a node is chosen before what is said of its inside: `data.train=FILE data=book` sets both.
    """
    draft = _open(config)
    for setting in sorted(settings, key=lambda setting: setting.partition("=")[0].count(".")):
        _apply(draft, setting, kinds)
    built: C = _build(draft, "")
    return built


def to_json(config: Any, kinds: Kinds) -> dict[str, Any]:
    """The tree as plain JSON objects, each tagged with its kind."""
    names = [name for table in kinds.values() for name, kind in table.items() if kind is type(config)]
    assert names, f"{type(config).__name__} has no name in the table of kinds"
    values = {field.name: _plain(getattr(config, field.name), kinds) for field in _fields(type(config))}
    assert "kind" not in values, f"{type(config).__name__}.kind would hide the tag"
    return {"kind": names[0], **values}


def from_json(obj: Any, kinds: Kinds, table: str | None = None) -> Any:
    """The tree that `to_json` wrote: nothing unknown, everything of its type; its root is a kind of the table.

    A field that is missing has its default, so that a setting which came later does not make older files unreadable.
    """
    return _node_from_json(obj, _classes(kinds, table), kinds, "")


def written(value: Any) -> str:
    """A value as it is written after the equals sign of a setting."""
    if isinstance(value, tuple):
        return ",".join(map(written, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def tree(config: Any) -> list[Setting]:
    """Every leaf of the tree in the order of its fields."""
    return _leaves(config, "")


def _leaves(config: Any, place: str) -> list[Setting]:
    kind: type = type(config)
    found = []
    for field in _fields(kind):
        name, value = _join(place, field.name), getattr(config, field.name)
        if is_dataclass(value):
            found += _leaves(value, name)
        else:
            comment = _comments(kind).get(field.name, "")
            hint = _hints(kind)[field.name]
            choices = tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()
            found.append(Setting(name, value, _expected(hint), comment, choices))
    return found


# -- settings ---------------------------------------------------------------------------------------------------------


@dataclass
class _Draft:
    """A node while it is edited: built when every setting is in, since two may be valid only together."""

    kind: type
    values: dict[str, Any]  # a node below is a _Draft again; a field without a value is absent


def _open(config: Any) -> _Draft:
    return _Draft(type(config), {field.name: _opened(getattr(config, field.name)) for field in _fields(type(config))})


def _opened(value: Any) -> Any:
    return _open(value) if is_dataclass(value) else value


def _fresh(kind: type) -> _Draft:
    """A node of this kind with nothing but its defaults."""
    draft = _Draft(kind, {})
    for field in _fields(kind):
        if field.default is not MISSING:
            draft.values[field.name] = _opened(field.default)
        elif field.default_factory is not MISSING:
            draft.values[field.name] = _opened(field.default_factory())
    return draft


def _build(draft: _Draft, place: str) -> Any:
    values = {}
    for field in _fields(draft.kind):
        name = _join(place, field.name)
        if field.name not in draft.values:
            raise UserError(f"{name}: needs a value; add {name}=VALUE.")
        value = draft.values[field.name]
        values[field.name] = _build(value, name) if isinstance(value, _Draft) else value
    return draft.kind(**values)


def _apply(draft: _Draft, setting: str, kinds: Kinds) -> None:
    name, equals, text = setting.partition("=")
    if not equals:
        raise UserError(f"{setting}: a setting is written name=value, such as plan.steps=400.")
    *path, last = name.split(".")
    place = ""
    for step in path:
        _known(draft, step, place, setting)
        place = _join(place, step)
        below = draft.values.get(step)
        if not isinstance(below, _Draft):
            choices = list(_named(kinds, _hints(draft.kind)[step]))
            cure = f"choose a kind first: {place}={' or '.join(choices)}" if choices else f"write {place}=VALUE"
            raise UserError(f"{setting}: {place} has no settings inside; {cure}.")
        draft = below
    _known(draft, last, place, setting)
    draft.values[last] = _from_text(setting, text, _hints(draft.kind)[last], kinds)


def _known(draft: _Draft, name: str, place: str, setting: str) -> None:
    known = [field.name for field in _fields(draft.kind)]
    if name in known:
        return
    parts = {part: node for part, node in draft.values.items() if isinstance(node, _Draft)}
    below = [part for part, node in parts.items() if name in (field.name for field in _fields(node.kind))]
    if below:  # steps=400 for plan.steps=400
        meant = " or ".join(f'"{_join(_join(place, part), name)}"' for part in below)
        raise UserError(f"{setting}: no such setting. Did you mean {meant}?")
    near = nearest(_join(place, name), [_join(place, other) for other in known])
    raise UserError(f"{setting}: no such setting.{near}")


def _from_text(setting: str, text: str, hint: Any, kinds: Kinds) -> Any:
    named = _named(kinds, hint)
    if text in named:
        return _fresh(named[text]) if isinstance(named[text], type) else _open(named[text])
    leaves = [option for option in _options(hint) if not is_dataclass(option)]
    for option in sorted(leaves, key=lambda option: option is str):  # text last: it takes anything, `none` too
        try:
            return _parse(text, option)
        except (ValueError, KeyError):
            continue
    if named or get_origin(hint) is Literal:
        raise UserError(f"{setting}: no such choice.{nearest(text, named or map(str, get_args(hint)))}")
    raise UserError(f"{setting}: expected {_expected(hint)}")


def _parse(text: str, hint: Any) -> Any:
    """The value that this text spells, or ValueError or KeyError. The annotation is not a union."""
    if hint is str:
        return text
    if hint is int:
        return _whole(text)
    if hint is float:
        return _finite(float(text))
    if get_origin(hint) is Literal:
        return {str(choice): choice for choice in get_args(hint)}[text]
    if get_origin(hint) is tuple:
        parts = [part.strip() for part in text.split(",")] if text else []
        return tuple(_parse(part, inner) for part, inner in zip(parts, _items(hint, len(parts)), strict=True))
    return SPELLINGS[hint][text.lower()]


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)  # 1e3
        if number.is_integer() and abs(number) <= 2**53:  # beyond, a float does not know which whole number was meant
            return int(number)
        raise


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(number)
    return number


# -- JSON -------------------------------------------------------------------------------------------------------------


def _plain(value: Any, kinds: Kinds) -> Any:
    if is_dataclass(value):
        return to_json(value, kinds)
    if isinstance(value, tuple):
        return [_plain(item, kinds) for item in value]
    assert value is None or isinstance(value, (bool, int, float, str)), f"{value!r} has no JSON form"
    return value


def _node_from_json(obj: Any, known: Mapping[str, type], kinds: Kinds, place: str) -> Any:
    tag = obj.get("kind") if isinstance(obj, dict) else None
    if not isinstance(tag, str) or tag not in known:
        near = nearest(str(tag), known)
        raise UserError(f"{_join(place, 'kind')}: expected the name of a kind, found {tag!r}.{near}")
    kind = known[tag]
    names = [field.name for field in _fields(kind)]
    for name in obj:
        if name not in (*names, "kind"):
            near = nearest(_join(place, name), [_join(place, other) for other in names])
            raise UserError(f"{_join(place, name)}: no such setting.{near}")
    values = {}
    for field in _fields(kind):
        hint, where = _hints(kind)[field.name], _join(place, field.name)
        if field.name in obj:
            values[field.name] = _value_from_json(obj[field.name], hint, kinds, where)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{where}: missing; it should be {_expected(hint)}.")
    return kind(**values)


def _value_from_json(obj: Any, hint: Any, kinds: Kinds, place: str) -> Any:
    if isinstance(obj, dict) and (_table(hint) or _nodes(hint)):
        allowed = {name: kind for name, kind in _named(kinds, hint).items() if isinstance(kind, type)}
        return _node_from_json(obj, allowed, kinds, place)
    for option in _options(hint):
        if get_origin(option) is Literal and any(obj == one and type(obj) is type(one) for one in get_args(option)):
            return obj
        if option is float and type(obj) in (int, float) and abs(obj) <= sys.float_info.max:  # neither NaN nor infinite
            return float(obj)
        if type(obj) is option and option is not float:
            return obj
        if get_origin(option) is tuple and isinstance(obj, list) and len(obj) == len(_items(option, len(obj))):
            items = zip(obj, _items(option, len(obj)))
            return tuple(_value_from_json(item, inner, kinds, place) for item, inner in items)
    raise UserError(f"{place}: expected {_expected(hint)}, found {obj!r}.")


# -- annotations and comments -----------------------------------------------------------------------------------------


@cache
def _comments(kind: type[Any]) -> dict[str, str]:
    """Field → the comment beside it, in its own class or in the one that it is inherited from."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        found |= _own_comments(each) if is_dataclass(each) else {}
    return found


def _own_comments(kind: type[Any]) -> dict[str, str]:
    """Field → comment, from a class's own source; empty where there is no source to read."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    beside = {
        token.start[0]: token.string.lstrip("# ").rstrip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        line.target.id: beside[line.end_lineno]
        for line in definition.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.end_lineno in beside
    }


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _classes(kinds: Kinds, table: str | None) -> dict[str, type]:
    """The classes of one table, or of all."""
    tables = kinds.values() if table is None else [kinds[table]]
    return {name: kind for each in tables for name, kind in each.items() if isinstance(kind, type)}


def _table(hint: Any) -> str | None:
    """The name of the table that an annotation names, if it names one."""
    found = [extra.name for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Table)]
    return found[0] if found else None


def _named(kinds: Kinds, hint: Any) -> dict[str, Any]:
    """Every name that may be written where the annotation allows a node."""
    if table := _table(hint):
        return dict(kinds[table])
    nodes = _nodes(hint)
    named = {name: kind for table in kinds.values() for name, kind in table.items()}
    return {name: kind for name, kind in named.items() if kind in nodes or type(kind) in nodes}


def _fields(kind: Any) -> list[Field[Any]]:
    return [field for field in fields(kind) if field.init]


def _options(hint: Any) -> tuple[Any, ...]:
    """The members of a union; any other annotation is its own only one. A table's nodes are not among them."""
    if _table(hint):
        return ()
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _nodes(hint: Any) -> tuple[type, ...]:
    return tuple(option for option in _options(hint) if is_dataclass(option) and isinstance(option, type))


def _items(hint: Any, length: int) -> tuple[Any, ...]:
    """The annotation of each item of a tuple; `tuple[X, ...]` takes any length."""
    inner = get_args(hint)
    return (inner[0],) * length if inner[-1] is Ellipsis else inner


def _expected(hint: Any) -> str:
    """What a person may write there."""
    if table := _table(hint):
        return f"a kind of {table}"
    options = _options(hint)
    if len(options) > 1:
        return " or ".join(_expected(option) for option in options)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        count = "a list of" if get_args(hint)[-1] is Ellipsis else len(get_args(hint))
        return f"{count} values separated by commas, each {_expected(get_args(hint)[0])}"
    return NAMES.get(hint) or str(hint.__name__)


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
