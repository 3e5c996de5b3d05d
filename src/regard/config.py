"""Configuration as trees of frozen dataclasses: overrides by dotted settings, conversion to and from JSON, help.

A tree's leaves are numbers, text, choices and tuples of them; a field annotated with dataclasses is a node. The class
of a node is named in one of several literal tables, `kinds`, which is all that is needed to write `model=lstmn` or to
read JSON back. A table may also name nodes that are filled in already, such as published sizes: `model=gpt2` starts
from that one. A field annotated ``Annotated[..., Table("model")]`` takes whatever the table "model" has, so that a
user's own tables can add to ours; ``Annotated[X | None, Table("head")]`` also takes none.
"""

import ast
import inspect
import io
import math
import os
import sys
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import count, takewhile
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from regard.errors import UserError, nearest
from regard.synonyms import OPTIONS, SETTINGS, known_as, ours

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
LARGEST = 2**63 - 1  # the largest whole number that torch and numpy compute with
NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text", NoneType: "none"}


class Setting(NamedTuple):
    """One leaf of a tree, as `regard show NAME` prints it."""

    name: str  # dotted
    value: Any
    type: str  # the allowed values, in words
    comment: str  # the comment after # on the field's line, or alone on the lines above
    choices: tuple[str, ...] = ()  # the allowed words, for a field with a fixed set of them


def override(config: C, settings: Sequence[str], kinds: Kinds) -> C:
    """The tree with `name.name=value` settings applied; `model=lstmn` resets that node to the defaults of its kind.

    Settings of outer nodes are applied first, whatever their order: `data.train=FILE data=book` sets both.
    """
    root = _to_draft(config)
    for setting in sorted(settings, key=lambda setting: setting.partition("=")[0].count(".")):
        name, equals, text = setting.partition("=")
        if not equals:
            cure = f"the training file is data.train={setting}" if os.path.isfile(setting) else "such as plan.steps=400"
            raise UserError(f"{setting}: a setting has the form name=value; {cure}.")
        *parents, last = name.split(".")
        draft, path = root, ""
        for step in parents:
            _check_known(root, draft, step, path, setting, kinds)
            path = _join(path, step)
            below = draft.values.get(step)
            if not isinstance(below, _Draft):
                choices = list(_allowed_kinds(kinds, _hints(draft.kind)[step]))
                cure = f"choose a kind first: {path}={' or '.join(choices)}" if choices else f"write {path}=VALUE"
                raise UserError(f"{setting}: {path} has no settings inside; {cure}.")
            draft = below
        _check_known(root, draft, last, path, setting, kinds)
        draft.values[last] = _from_text(setting, text, _hints(draft.kind)[last], kinds)
    return _build(root, "")


def to_json(config: Any, kinds: Kinds) -> dict[str, Any]:
    """The tree as plain JSON objects, each tagged with its kind."""
    names = [name for table in kinds.values() for name, kind in table.items() if kind is type(config)]
    if not names:
        cure = "if a kind of your own has its name, give yours another one, else add it to kinds="
        raise UserError(f"{type(config).__name__}: has no name in the tables of kinds; {cure}.")
    values = {field.name: _value_to_json(getattr(config, field.name), kinds) for field in _fields(type(config))}
    assert "kind" not in values, f"{type(config).__name__}.kind would overwrite the tag"
    return {"kind": names[0], **values}


def from_json(obj: Any, kinds: Kinds, table: str | None = None) -> Any:
    """The tree that `to_json` wrote: nothing unknown, everything of its type; its root is a kind of the table.

    A missing field gets its default, so that files from before the field existed can still be read.
    """
    tables = kinds.values() if table is None else [kinds[table]]
    named = {name: kind for each in tables for name, kind in each.items()}
    return _node_from_json(obj, named, kinds, "")


def format_value(value: Any) -> str:
    """A value as text, in the form that a setting `name=value` uses."""
    if isinstance(value, tuple):
        return ",".join(map(format_value, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def tree(config: Any, path: str = "") -> list[Setting]:
    """All leaves of the tree in the order of its fields; `path` comes before their names."""
    kind: type = type(config)
    found = []
    for field in _fields(kind):
        name, value = _join(path, field.name), getattr(config, field.name)
        if is_dataclass(value):
            found += tree(value, name)
        else:
            comment = _comments(kind).get(field.name, "")
            hint = _hints(kind)[field.name]
            choices = tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()
            found.append(Setting(name, value, _describe(hint), comment, choices))
    return found


def set_sizes(
    config: C, settings: Mapping[str, str], sizes: Mapping[str, int], padded: bool = False, path: str = "model"
) -> C:
    """The node with its settings that follow from the data: `settings` has the field of each, `sizes` those of fields.

    A value other than 0 must equal the size; with `padded` it may be larger, as the vocabulary of some checkpoints.
    """
    values: dict[str, Any] = {}
    for name, field in settings.items():
        stated = getattr(config, name)
        size = sizes.get(field, stated)
        if stated not in (0, size) and not (padded and stated > size):
            raise UserError(f"{path}.{name}={stated}: the data has {size}; leave it at 0.")
        values[name] = max(stated, size)
    return replace(config, **values)  # type: ignore[type-var]


# -- settings ---------------------------------------------------------------------------------------------------------


@dataclass
class _Draft:
    """A node that is being edited. It is built after all settings, since some are valid only together."""

    kind: type
    values: dict[str, Any]  # field → value; inner nodes are drafts too, and fields without a value are absent


def _to_draft(node: Any) -> _Draft:
    """The draft of a node; for a class, that of a node with its defaults."""
    draft = _Draft(node if isinstance(node, type) else type(node), {})
    for field in _fields(draft.kind):
        value = field.default if isinstance(node, type) else getattr(node, field.name)
        if value is MISSING and field.default_factory is not MISSING:
            value = field.default_factory()
        if value is not MISSING:
            draft.values[field.name] = _to_draft(value) if is_dataclass(value) else value
    return draft


def _build(draft: _Draft, path: str) -> Any:
    values = {}
    for field in _fields(draft.kind):
        name = _join(path, field.name)
        if field.name not in draft.values:
            raise UserError(f"{name}: needs a value; add {name}=VALUE.")
        value = draft.values[field.name]
        values[field.name] = _build(value, name) if isinstance(value, _Draft) else value
    return draft.kind(**values)


def _check_known(root: _Draft, draft: _Draft, name: str, path: str, setting: str, kinds: Kinds) -> None:
    known = [field.name for field in _fields(draft.kind)]
    if name in known:
        return
    parts = {part: node for part, node in draft.values.items() if isinstance(node, _Draft)}
    below = [part for part, node in parts.items() if name in (field.name for field in _fields(node.kind))]
    if below:  # steps=400 for plan.steps=400
        meant = " or ".join(f'"{_join(_join(path, part), name)}"' for part in below)
        raise UserError(f"{setting}: no such setting. Did you mean {meant}?")
    other_words = sorted(ours(name, SETTINGS), key=lambda meant: not meant.startswith(f"{path}."))
    for meant in other_words:
        if comment := _comment_at(root, meant):
            raise UserError(f'{setting}: no such setting. Did you mean "{meant}" ({comment})?')
    for meant in (*([_join(path, name)] if path else [f"{part}.{name}" for part in known]), *other_words):
        if having := _kinds_with(root, meant, kinds):
            part = meant.partition(".")[0]
            having_it = [f"{part}={kind}" for kind in known_as(having)]
            cure = " or ".join(having_it if len(having_it) <= 4 else [*having_it[:3], f"{len(having_it) - 3} others"])
            raise UserError(f"{setting}: no such setting of this {part}; {meant} is a setting of {cure}.")
    near = nearest(name, known, f"{path}." if path else "")
    if kinds and (options := ours(name, OPTIONS)):
        named = (f"the option {option}" if option.startswith("--") else option for option in options)
        near = f" Did you mean {' or '.join(named)}?"
    raise UserError(f"{setting}: no such setting.{near}")


def _comment_at(root: _Draft, name: str) -> str:
    """The comment of a setting of the tree; empty if the tree has no such setting."""
    part, _, last = name.rpartition(".")
    draft = root.values.get(part) if part else root
    return _comments(draft.kind).get(last, "") if isinstance(draft, _Draft) else ""


def _kinds_with(root: _Draft, name: str, kinds: Kinds) -> list[str]:
    """The kinds of a part that have a setting, such as the models that have `model.heads`."""
    part, _, last = name.rpartition(".")
    if part not in _hints(root.kind):
        return []
    table = _allowed_kinds(kinds, _hints(root.kind)[part])
    return [name for name, kind in table.items() if isinstance(kind, type) and last in [f.name for f in _fields(kind)]]


def _from_text(setting: str, text: str, hint: Any, kinds: Kinds) -> Any:
    named = _allowed_kinds(kinds, hint)
    if text in named:
        return _to_draft(named[text])
    leaves = [option for option in _union_members(hint) if not is_dataclass(option)]
    for option in sorted(leaves, key=lambda option: option is str):  # str last: it accepts any text, `none` too
        try:
            return _parse(text, option)
        except (ValueError, KeyError):
            continue
    if os.path.splitext(text)[1] and any("train" in _hints(kind) for kind in named.values() if isinstance(kind, type)):
        raise UserError(f"{setting}: a file of your own is given as data.train={text}.")
    if named or get_origin(hint) is Literal:
        raise UserError(f"{setting}: no such choice.{nearest(text, named or map(str, get_args(hint)))}")
    if int in leaves and text.removeprefix("-").isdecimal():
        raise UserError(f"{setting:.60}: no whole number above 2**63-1 can be computed with; give a smaller one.")
    raise UserError(f"{setting}: expected {_describe(hint)}")


def _parse(text: str, hint: Any) -> Any:
    """The value of this text; raises ValueError or KeyError. The annotation must not be a union."""
    if hint is str:
        return text
    if hint is int:
        try:
            whole = int(text)
        except ValueError:
            number = float(text)  # 1e3
            if not number.is_integer() or abs(number) > 2**53:  # larger floats do not represent every whole number
                raise ValueError(text) from None
            whole = int(number)
        if abs(whole) > LARGEST:
            raise ValueError(text)
        return whole
    if hint is float:
        if not math.isfinite(number := float(text)):
            raise ValueError(text)
        return number
    if get_origin(hint) is Literal:
        return {str(choice): choice for choice in get_args(hint)}[text]
    if get_origin(hint) is tuple:
        parts = [part.strip() for part in text.split(",")] if text else []
        return tuple(_parse(part, inner) for part, inner in zip(parts, _item_hints(hint, len(parts)), strict=True))
    return SPELLINGS[hint][text.lower()]


# -- JSON -------------------------------------------------------------------------------------------------------------


def _value_to_json(value: Any, kinds: Kinds) -> Any:
    if is_dataclass(value):
        return to_json(value, kinds)
    if isinstance(value, tuple):
        return [_value_to_json(item, kinds) for item in value]
    assert value is None or isinstance(value, (bool, int, float, str)), f"{value!r} has no JSON form"
    return value


def _node_from_json(obj: Any, named: Mapping[str, Any], kinds: Kinds, path: str) -> Any:
    known = {name: kind for name, kind in named.items() if isinstance(kind, type)}
    tag = obj.get("kind") if isinstance(obj, dict) else None
    if not isinstance(tag, str) or tag not in known:
        near = nearest(str(tag), known)
        raise UserError(f"{_join(path, 'kind')}: expected the name of a kind, found {tag!r}.{near}")
    kind = known[tag]
    names = [field.name for field in _fields(kind)]
    for name in obj:
        if name not in (*names, "kind"):
            near = nearest(_join(path, name), [_join(path, other) for other in names])
            raise UserError(f"{_join(path, name)}: no such setting.{near}")
    values = {}
    for field in _fields(kind):
        hint, where = _hints(kind)[field.name], _join(path, field.name)
        if field.name in obj:
            values[field.name] = _value_from_json(obj[field.name], hint, kinds, where)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{where}: missing; it should be {_describe(hint)}.")
    return kind(**values)


def _value_from_json(obj: Any, hint: Any, kinds: Kinds, path: str) -> Any:
    if isinstance(obj, dict) and (_table(hint) or _node_types(hint)):
        return _node_from_json(obj, _allowed_kinds(kinds, hint), kinds, path)
    for option in _union_members(hint):
        if get_origin(option) is Literal and any(obj == one and type(obj) is type(one) for one in get_args(option)):
            return obj
        if option is float and type(obj) in (int, float) and abs(obj) <= sys.float_info.max:  # neither NaN nor infinite
            return float(obj)
        if type(obj) is option and option is not float and not (type(obj) is int and abs(obj) > LARGEST):
            return obj
        if get_origin(option) is tuple and isinstance(obj, list) and len(obj) == len(_item_hints(option, len(obj))):
            items = zip(obj, _item_hints(option, len(obj)))
            return tuple(_value_from_json(item, inner, kinds, path) for item, inner in items)
    raise UserError(f"{path}: expected {_describe(hint)}, found {obj!r}.")


# -- annotations and comments -----------------------------------------------------------------------------------------


@cache
def _comments(kind: type[Any]) -> dict[str, str]:
    """Field → its comment, in this class or in the base class that defines the field.

    The comment is on the line of the field, or alone on the lines above. A class without source code has no comments.
    """
    found: dict[str, str] = {}
    for each in filter(is_dataclass, reversed(kind.__mro__)):
        try:
            source = textwrap.dedent(inspect.getsource(each))
        except (OSError, TypeError):
            continue
        beside, alone = dict[int, str](), dict[int, str]()  # the number of a line → its comment
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                lines = alone if token.line.lstrip().startswith("#") else beside
                lines[token.start[0]] = token.string.lstrip("# ").rstrip()
        definition = ast.parse(source).body[0]
        assert isinstance(definition, ast.ClassDef)
        for line in definition.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                above = takewhile(alone.__contains__, count(line.lineno - 1, -1))
                comment = beside.get(line.end_lineno or 0) or " ".join(alone[one] for one in reversed([*above]))
                if comment:
                    found[line.target.id] = comment
    return found


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _table(hint: Any) -> str | None:
    """The name of the table that an annotation names, if it names one."""
    found = [extra.name for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Table)]
    return found[0] if found else None


def _allowed_kinds(kinds: Kinds, hint: Any) -> dict[str, Any]:
    """Every name that may be written where the annotation allows a node."""
    if table := _table(hint):
        return dict(kinds[table])
    nodes = _node_types(hint)
    named = {name: kind for table in kinds.values() for name, kind in table.items()}
    return {name: kind for name, kind in named.items() if kind in nodes or type(kind) in nodes}


def _fields(kind: Any) -> list[Field[Any]]:
    return [field for field in fields(kind) if field.init]


def _union_members(hint: Any) -> tuple[Any, ...]:
    """The members of a union; any other annotation is its own only one. A table's nodes are not among them."""
    if _table(hint):
        return tuple(option for option in get_args(get_args(hint)[0]) if option is NoneType)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _node_types(hint: Any) -> tuple[type, ...]:
    return tuple(option for option in _union_members(hint) if is_dataclass(option) and isinstance(option, type))


def _item_hints(hint: Any, length: int) -> tuple[Any, ...]:
    """The annotation of each item of a tuple; `tuple[X, ...]` takes any length."""
    inner = get_args(hint)
    return (inner[0],) * length if inner[-1] is Ellipsis else inner


def _describe(hint: Any) -> str:
    """What a person may write there."""
    if table := _table(hint):
        return f"a kind of {table}" + " or none" * bool(_union_members(hint))
    options = _union_members(hint)
    if len(options) > 1:
        return " or ".join(_describe(option) for option in options)
    if get_origin(hint) is Literal:
        names = ", ".join(map(str, get_args(hint)))
        return f"one of {names}" if len(get_args(hint)) > 1 else names
    if get_origin(hint) is tuple:
        count = "a list of" if get_args(hint)[-1] is Ellipsis else len(get_args(hint))
        return f"{count} values separated by commas, each {_describe(get_args(hint)[0])}"
    return NAMES.get(hint) or str(hint.__name__)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
