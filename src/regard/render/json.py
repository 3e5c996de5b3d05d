"""Results and sections as JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def to_json(value: Any) -> str:
    """A value on one line of JSON, with null for numbers that are not finite."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """A value that JSON can hold: dataclasses as objects, arrays as lists, floats with seven digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def sections_json(sections: Any) -> list[dict[str, Any]]:
    """Each section as an object, with its kind: text, table, curve …"""
    return [{"kind": type(section).__name__.lower(), **plain(section)} for section in sections]
