"""Tokens and numbers as text for pictures: invisible characters made visible, markup escaped."""

import html
import re
import unicodedata

from rich.cells import cell_len

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


def visible(piece: str) -> str:
    """A token with visible symbols for spaces, control characters and lone accents: no label is blank."""
    if not piece:
        return "∅"
    shown = "".join(_visible_character(character) for character in piece)
    return shown if cell_len(graphemes(shown)[0]) else "◌" + shown  # an accent or a joiner without a letter before it


def _visible_character(character: str) -> str:
    if character == "\n":
        return "↵"
    if character == "\t":
        return "⇥"
    if character.isspace():
        return "␣"
    if ord(character) < 32:
        return chr(0x2400 + ord(character))  # the control pictures
    return "�" if unicodedata.category(character) in ("Cc", "Cs") else character


def graphemes(text: str) -> list[str]:
    """Characters, each with the combining marks that follow it."""
    found: list[str] = []
    for character in text:
        if found and cell_len(character) == 0:
            found[-1] += character
        else:
            found.append(character)
    return found


def shorten_special(piece: str) -> str:
    """Shortens special tokens: <|endoftext|> becomes <|e…>. Other tokens stay as they are."""
    special = piece[:1] + piece[-1:] in ("<>", "[]")
    return f"{piece[:3]}…{piece[-1]}" if special and len(piece) > 6 else piece


def truncate(text: str, cells: int) -> str:
    """Shortens a text to that many terminal cells; an ellipsis marks the cut."""
    if cell_len(text) <= cells:
        return text
    kept = ""
    for cluster in graphemes(text):
        if cell_len(kept + cluster) > cells - 1:
            break
        kept += cluster
    return kept + "…"


def escape(text: str) -> str:
    """Escapes a text for XML and HTML, attributes included."""
    return html.escape(_ILLEGAL.sub("�", text))


def format_number(value: float) -> str:
    """Six significant digits, about the precision of float32."""
    return f"{value:.6g}"
