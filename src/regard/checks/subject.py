"""What the checks examine: a copy of a module, how the module is called, and small random texts for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UserError
from regard.objectives.objective import Trainer

ROWS, LENGTH, PADDING = 3, 6, 2  # of the random texts: how many, their tokens, and the padding that is added
NOT_FINITE = (math.nan, math.inf)
FEWEST = 8  # ids that a vocabulary must have
BOUNDS = {torch.float64: 1e-6, torch.float32: 1e-4}  # the largest error that counts as rounding, by precision
SAMPLES = (  # texts for a tokenizer, if none are given
    *("A plain sentence, with 3 numbers: 12.5 and 7!", "  two  spaces\tand a tab ", "naïve café Straße ﬁ x²"),
    *("Η βάρκα φεύγει", "Привет, мир", "東京の天気", "مرحبا بالعالم", "🙂👩‍👩‍👧", "e\u0301 \u200b \ufffd", ""),
)


@dataclass(frozen=True, eq=False)
class Calls:
    """How a module is called. Every function gets the module as its first argument, because checks run copies of it.

    ``tokens`` are ids (B, T), or numbers (B, T, N); True in ``real`` (B, T) means "not padding". If the module reads a
    source, ``logits``, ``start`` and ``loss`` get ``source`` and ``source_real``, both (B, Ts), as their last two
    arguments. A source that is an image (B, …) has no padding, and is the last argument.
    """

    logits: Callable[..., Tensor]  # (module, tokens, real) → (B, T, …), or (B, …) with one_per_text
    vocab: int  # ids of tokens are 0 to vocab - 1
    source_vocab: int = 0  # the same for a source; 0: the module reads no source, or an image
    source_shape: tuple[int, ...] = ()  # the shape of an image that is the source: numbers of 0 to 255; empty: no image
    causal: bool = False  # whether the output at a token depends only on this token and those before it
    one_per_text: bool = False  # whether there is one output per text
    longest: int | None = None  # the most tokens of a text; None: any number
    left_padding: bool = False  # whether padding may also be before a text
    padding_values: tuple[float, ...] = NOT_FINITE  # what embeddings of padding are set to; (): left as they are
    start: Callable[..., Any] | None = None  # (module, rows, capacity) → the state before the first token
    step: Callable[[Any, Tensor, Any], tuple[Tensor, Any]] | None = None  # (module, tokens (R,), state) → (R, V), state
    loss: Callable[..., tuple[Tensor, int]] | None = None  # (module, tokens, real) → sum, count; None: Σ output²
    build: Callable[[], nn.Module] | None = None  # the same module with new weights
    trainer: Callable[[], Trainer] | None = None  # a new trainer, always with the same first weights
    encode: Mapping[str, Callable[[str], Sequence[int]]] = field(default_factory=dict)  # of tokens, and of a source
    texts: Sequence[str] = SAMPLES  # what `encode` is tried on
    numbers: int = 0  # the module reads so many numbers at each place instead of an id; 0: it reads ids


class Texts(NamedTuple):
    """A batch of texts, with sources where the module reads them."""

    tokens: Tensor  # (B, T) ids, or (B, T, N) numbers
    real: Tensor  # (B, T) True: not padding
    source: Tensor | None = None  # (B, Ts); or images (B, …)
    source_real: Tensor | None = None  # (B, Ts); None of images

    def select(self, rows: Sequence[int]) -> Texts:
        """These rows of the batch."""
        return Texts(*(None if each is None else each[list(rows)] for each in self))  # type: ignore[arg-type]

    def pad(self, left: int, right: int, filler: int) -> Texts:
        """The same texts with more padding."""
        sides = (left, right)
        return self._with(
            (F.pad(ids, (*[0, 0] * (ids.dim() - 2), *sides), value=filler), F.pad(real, sides))
            for ids, real in self._parts()
        )

    def fill(self, filler: float) -> Texts:
        """The same texts with this id, or number, in the padding."""
        return self._with(
            (ids.masked_fill(~real.reshape(*real.shape, *[1] * (ids.dim() - 2)), filler), real)
            for ids, real in self._parts()
        )

    def mask(self, kept: Tensor) -> Texts:
        """The same texts, of which only the places in `kept`, (B, T) or (B, 1), are real."""
        return self._with((ids, real & kept) for ids, real in self._parts())

    def _with(self, parts: Iterable[tuple[Tensor, Tensor]]) -> Texts:
        """The same batch with other ids and padding; images stay as they are."""
        return Texts(*(one for part in parts for one in part), *((self.source,) if self.source_real is None else ()))

    def _parts(self) -> list[tuple[Tensor, Tensor]]:
        first = [(self.tokens, self.real)]
        return first if self.source is None or self.source_real is None else [*first, (self.source, self.source_real)]


class CheckResult(NamedTuple):
    """The result of a check."""

    status: str  # PASSED, FAILED or DOES_NOT_APPLY
    error: float | None = None  # the size of the error; infinite: an output is not finite
    bound: float | None = None  # the largest error that passes
    note: str = ""  # where to look; or why the check does not apply


PASSED, FAILED, DOES_NOT_APPLY = "passed", "failed", "does not apply"


def measured(error: float, bound: float, where: str) -> CheckResult:
    """Passed if the error is within the bound; `where` is the place to look at if it is not."""
    passed = error <= bound
    return CheckResult(PASSED if passed else FAILED, error, bound, "" if passed else where)


def does_not_apply(why: str) -> CheckResult:
    """The check has nothing to examine."""
    return CheckResult(DOES_NOT_APPLY, note=why)


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference between two tensors, in units of the largest expected number if that is above 1.

    Infinite if one of the numbers is NaN, or is infinite in one tensor only.
    """
    if found.shape != expected.shape:
        return math.inf
    if not expected.numel():
        return 0.0
    apart = (found - expected).abs().masked_fill(found == expected, 0.0).nan_to_num(math.inf, math.inf)
    scale = expected.abs().masked_fill(~expected.isfinite(), 0.0).max().clamp(min=1)
    return float(apart.max() / scale)


@dataclass(frozen=True, eq=False)
class Subject:
    """A module that is examined: a copy on the CPU, in float64 if it runs in float64, in evaluation mode."""

    original: nn.Module  # as given; never run and never changed
    module: Any  # the copy
    calls: Calls
    dtype: torch.dtype = torch.float64  # of the copy

    @classmethod
    def copy_of(cls, original: nn.Module, calls: Calls) -> Subject:
        """The subject with the module in the best precision that it runs in."""
        smallest = min(calls.vocab, calls.source_vocab or calls.vocab)
        if smallest < FEWEST and not calls.numbers:
            raise UserError(f"vocab={smallest}: the checks need texts of different ids; give {FEWEST} or more.")
        for dtype in BOUNDS:
            try:
                subject = cls(original, deepcopy(original).to("cpu", dtype).eval(), calls, dtype)
            except RuntimeError as error:
                raise UserError(f"module: cannot be copied: {error}; give a module that deepcopy copies.") from error
            try:
                outputs: object = subject.logits(subject.texts())
            except (RuntimeError, TypeError):
                if dtype == torch.float32:
                    raise
            else:
                break
        _check_outputs(outputs, subject.texts().real.shape[: 1 if calls.one_per_text else 2])
        for weight in subject.module.parameters():
            weight.requires_grad_(weight.is_floating_point())
        return subject

    @property
    def bound(self) -> float:
        """The largest error that counts as rounding."""
        return BOUNDS[self.dtype]

    @property
    def filler(self) -> int:
        """The id in the padding; no random text has it. For a module that reads numbers, 0."""
        if self.calls.numbers:
            return 0
        return min(self.calls.vocab, self.calls.source_vocab or self.calls.vocab) - 1

    def ids(self, count: int) -> Tensor:
        """The first `count` ids of random texts; the lowest ids are often special tokens."""
        return torch.arange(count) + min(5, self.filler - count)

    def texts(self, seed: int = 0, ragged: bool = False) -> Texts:
        """A batch of random texts; ragged: of different lengths, with padding after each but the longest."""
        length = min(LENGTH, (self.calls.longest or math.inf) - PADDING)
        if length < 2:
            raise UserError(f"longest={self.calls.longest}: the checks need texts of {2 + PADDING} tokens or more.")
        draw = torch.Generator().manual_seed(seed)
        first = int(self.ids(4)[0])

        def ids() -> Tensor:
            if self.calls.numbers:
                return torch.randn(ROWS, int(length), self.calls.numbers, generator=draw, dtype=self.dtype)
            return torch.randint(first, self.filler, (ROWS, int(length)), generator=draw)

        real = torch.ones(ROWS, int(length), dtype=torch.bool)
        whole = Texts(ids(), real, ids(), real) if self.calls.source_vocab else Texts(ids(), real)
        if shape := self.calls.source_shape:
            whole = whole._replace(source=256 * torch.rand(ROWS, *shape, generator=draw, dtype=self.dtype))
        if not ragged:
            return whole
        ends = torch.linspace(int(length), 1, ROWS).long()[:, None]
        return whole.mask(torch.arange(int(length)) < ends).fill(self.filler)

    def logits(self, texts: Texts, module: nn.Module | None = None) -> Tensor:
        """The outputs of the copy, or of another module."""
        return self.calls.logits(module or self.module, *self.arguments(texts))

    def real_logits(self, texts: Texts, module: nn.Module | None = None) -> Tensor:
        """The outputs that count: of each text, or of each token that is not padding."""
        with torch.no_grad():
            outputs = self.logits(texts, module)
        return outputs if self.calls.one_per_text else outputs[texts.real]

    def arguments(self, texts: Texts) -> list[Tensor]:
        """The arguments of a call after the module."""
        return [each for each in texts if each is not None]

    def check_usable(self) -> None:
        """Raise a UserError if the outputs are random or do not depend on the tokens: no check can examine them."""
        texts = self.texts()
        torch.manual_seed(1)
        outputs = self.real_logits(texts)
        torch.manual_seed(2)
        if difference(self.real_logits(texts), outputs) > self.bound:
            cure = "use dropout only if self.training is true"
            raise UserError(f"module: the same texts have other outputs in a second call after eval(); {cure}.")
        if difference(self.real_logits(self.texts(seed=1)), outputs) <= self.bound:
            raise UserError("module: all texts have the same outputs; give logits that depend on the tokens.")


def _check_outputs(outputs: object, first: tuple[int, ...]) -> None:
    """Raise a UserError if the outputs of `logits` are not a tensor with these first sizes."""
    expected = "a tensor (B, T, …), or (B, …) with one_per_text=True"
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise UserError(f"logits: returns {kind}; return {expected}, such as the field .logits of a {kind}.")
    if outputs.shape[: len(first)] != first:
        raise UserError(f"logits: returns {tuple(outputs.shape)} for ids {first}; return {expected}.")
