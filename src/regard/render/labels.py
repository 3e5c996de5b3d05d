"""Pieces and numbers as a person reads them: nothing invisible, nothing that breaks the page."""

import html
import re
import unicodedata

from rich.cells import cell_len

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


def visible(piece: str) -> str:
    """A piece with its spaces, controls and lone accents drawn, so that no label is ever blank."""
    if not piece:
        return "∅"
    shown = "".join(_visible_character(character) for character in piece)
    return shown if cell_len(clusters(shown)[0]) else "◌" + shown  # an accent or a joiner with nothing to stand on


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


def clusters(text: str) -> list[str]:
    """Characters with the marks that stand on them: what takes one place on a grid."""
    found: list[str] = []
    for character in text:
        if found and cell_len(character) == 0:
            found[-1] += character
        else:
            found.append(character)
    return found


def short(piece: str) -> str:
    """A special token, such as <|endoftext|>, in five letters: all that a narrow column needs."""
    special = piece[:1] + piece[-1:] in ("<>", "[]")
    return f"{piece[:3]}…{piece[-1]}" if special and len(piece) > 6 else piece


def clip(text: str, cells: int) -> str:
    """At most that many terminal cells, the cut shown by an ellipsis."""
    if cell_len(text) <= cells:
        return text
    kept = ""
    for cluster in clusters(text):
        if cell_len(kept + cluster) > cells - 1:
            break
        kept += cluster
    return kept + "…"


def escape(text: str) -> str:
    """Any text, safe inside XML and HTML, attributes included."""
    return html.escape(_ILLEGAL.sub("�", text))


def number(value: float) -> str:
    """Six significant digits: all that single precision can honestly claim, and nothing small becomes nothing."""
    return f"{value:.6g}"
