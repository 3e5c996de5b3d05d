""" "It" in the heads of a model: every pair of sentences read, every head judged, and the story told."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.cli.topics.reading import Reading, read

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explain.pronouns import Version
    from regard.explain.resolve import Resolution, Resolver, Share
    from regard.verbs.loaded import Loaded

FEWEST = 10  # pairs, to say anything about a model
SHOWN = 10  # heads, in the terminal
COLUMNS = ("layer", "head", "right noun", "moves with the end")


@dataclass(frozen=True, eq=False)
class It:
    """What the heads of a model make of "it"."""

    asked: str  # which word's looks were judged
    pairs: int  # of so many
    left_out: int  # pairs with a noun the model does not know, or too long for it
    found: "Resolution | None"  # None: too few pairs are left
    sentences: "list[tuple[Reading, int]]"  # both versions of each pair, with the word that was asked

    def verdict(self) -> str:
        """In a few lines."""
        skipped = f" {self.left_out} pairs have words that it cannot read." if self.left_out else ""
        if self.found is None:
            return f"“it” cannot be judged in this model.{skipped}"
        best = self.found.best
        return (
            f"The best head for “it” is layer {short(best.layer)}, head {best.head}, by one half of {self.pairs} pairs "
            f"of sentences ({self.found.chosen.right.rate:.0%}). In the other half, {self.asked} looks more at the "
            f"right noun than at the wrong one in {_told(best.right)} of {best.right.count} sentences; when the end "
            f"changes, its preference moves to the noun that is then right in {_told(best.moved)} of "
            f"{best.moved.count} pairs. Chance is 50%.{skipped}"
        )

    def ranked(self) -> "list[Resolver]":
        """All heads, the best over all pairs first."""
        return sorted(self.found.heads, key=lambda one: -one.right.hits) if self.found else []

    def rows(self) -> list[list[str]]:
        return [[short(one.layer), str(one.head), f"{one.right.rate:.0%}", f"{one.moved.rate:.0%}"]
                for one in self.ranked()]  # fmt: skip

    def data(self) -> dict[str, object]:
        found = self.found
        return {
            "asked": self.asked,
            "pairs": self.pairs,
            "left_out": self.left_out,
            "heads": [_data(one) for one in found.heads] if found else [],
            "chosen": _data(found.chosen) if found else None,
            "best": _data(found.best) if found else None,
        }


def short(layer: str) -> str:
    """stack.blocks.3.attention.read is 3; where layers share a module, stack.blocks.0.attention.read[3] is."""
    numbers = re.findall(r"\d+", layer)
    return numbers[-1] if numbers else layer


def resolved(model: "Loaded") -> It:
    """Reads all pairs.

    Who reads from left to right has not seen the end when it is at "it", so there the last word is asked: it is where
    such a model could first know.
    """
    import torch

    from regard.explain.pronouns import pairs
    from regard.explain.resolve import resolution
    from regard.models import reads_whole

    ahead = reads_whole(model.module.config)
    names: list[tuple[str, int]] = []
    leads: list[Tensor] = []
    kept: list[tuple[Reading, int]] = []
    left_out = 0
    for pair in pairs():
        readings = [one for version in pair if (one := _known(model, version)) is not None]
        if len(readings) < 2:
            left_out += 1
            continue
        both = [_leads(one, version, ahead) for one, version in zip(readings, pair)]
        names = [(layer, head) for layer, of in both[0].items() for head in range(len(of))]
        leads.append(torch.stack([torch.cat(list(of.values())) for of in both]))  # (2, heads)
        kept += [(reading, _asked(version, ahead)) for reading, version in zip(readings, pair)]
    found = resolution(torch.stack(leads), names) if len(leads) >= FEWEST else None
    return It("“it”" if ahead else "the last word", len(leads), left_out, found, kept)


def _leads(reading: Reading, version: "Version", ahead: bool) -> "dict[str, Tensor]":
    from regard.explain.resolve import lead

    asked = _asked(version, ahead)
    return {name: lead(weights, reading.words, version, asked) for name, weights in reading.weights.items()}


def _asked(version: "Version", ahead: bool) -> int:
    return version.pronoun if ahead else version.last


def _known(model: "Loaded", version: "Version") -> Reading | None:
    """The sentence as the model reads it; None where it is too long, or the words that matter are not in it."""
    longest, (tokens,) = model.longest, model.tokenizer.encode_batch([version.text])
    if longest is not None and len(tokens) + len(model.tokenizer.special_tokens.wrap_input([])) + 1 > longest:
        return None
    reading = read(model, version.text)
    spelled = _spelled(reading)
    places = (*version.nouns, version.pronoun, version.last)
    right = len(spelled) > version.last and all(
        spelled[at].rstrip(".").lower() == version.words[at].lower() for at in places
    )
    return reading if right else None


def _spelled(reading: Reading) -> list[str]:
    """Its words, put together from their pieces."""
    spelled = [""] * (max(reading.words, default=-1) + 1)
    for word, piece in zip(reading.words, reading.model.tokenizer.detokenizer(reading.tokens)):
        if word >= 0:
            spelled[word] += piece.decode("utf-8", errors="replace").strip()
    return spelled


def _told(share: "Share") -> str:
    low, high = share.interval
    return f"{share.rate:.0%} ({low:.0%} to {high:.0%})"


def _data(one: "Resolver") -> dict[str, object]:
    shares = {"right": one.right, "moved": one.moved}
    return {
        "layer": one.layer,
        "head": one.head,
        **{name: {"rate": of.rate, "count": of.count, "interval": of.interval} for name, of in shares.items()},
    }
