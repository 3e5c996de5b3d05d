"""The axes of charts: what they span, where a value is, and which ticks they have."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from regard.render.svg import LETTER

MAX_TICKS = 10  # of measured points
BEYOND = 0.05  # how far a value may be beyond the last tick of a y axis, as a part of the step between ticks


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels, and chooses the ticks, unless they are given."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    given: Sequence[float] = ()  # the ticks; empty: round numbers

    def at(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def clamp(self, value: float) -> float:
        """The value, or the end of the axis that it is beyond."""
        return min(max(value, self.low), self.high)

    def ticks(self) -> list[float]:
        """Round numbers; on a logarithmic axis, powers of ten and their multiples if at least three are in range."""
        if self.given:
            return list(self.given)
        step = _round_step((self.high - self.low) / 5)
        even = [k * step for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
        if not self.log:
            return even
        decades = math.log10(self.high / self.low)
        multiples = (1,) if decades > 3 else (1, 2, 5)
        stride = max(1, math.ceil(decades / 8))
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1, stride)
        candidates = [multiple * 10.0**power for power in powers for multiple in multiples]
        found = [tick for tick in candidates if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]
        return found if len(found) > 2 else even


def _round_step(minimum: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least ``minimum``."""
    decade = 10.0 ** math.floor(math.log10(minimum))
    return next(multiple * decade for multiple in (1, 2, 5, 10) if multiple * decade >= minimum * (1 - 1e-9))


def axis_over(values: list[float], start: float, end: float, log: bool, room: float = 0.0) -> Axis:
    """An axis over the range of the values, with `room`, a part of the range, beyond both ends.

    A range of one point is widened, not below 0 if the point is not; a y axis ends at ticks. A value may be a
    little beyond the last tick.
    """
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        half, least = max(1.0, abs(high)) / 2, -math.inf if low < 0 else 0.0
        low, high = (low / 2, high * 2) if log else (max(least, low - half), high + half)
    low, high = low - room * (high - low), high + room * (high - low)
    if start > end and log:
        low, high = 1 / _round_step(1 / low), _round_step(high)  # 1, 2 and 5 times a power of ten, as 1/x is
    elif start > end:
        step = _round_step((high - low) / 5)
        low, high = math.floor(low / step + BEYOND) * step, math.ceil(high / step - BEYOND) * step
    return Axis(low, high, start, end, log)


def within(values: list[float], points: list[float], ends: tuple[float | None, float | None]) -> list[float]:
    """What an axis spans: the values and the ends that it must have.

    A value beyond such an end moves it if it is a point: no point is left out. The bar of a deviation does not.
    """
    low, high = ends
    least = -math.inf if low is None else min([low, *points])
    most = math.inf if high is None else max([high, *points])
    return [*(min(max(value, least), most) for value in values), *(end for end in ends if end is not None)]


def with_measured_ticks(axis: Axis, values: Collection[float]) -> Axis:
    """The axis with a tick at each of the values, if they are a few whole numbers with room for their labels."""
    ticks = sorted(values)
    if len(ticks) > MAX_TICKS or not all(float(tick).is_integer() for tick in ticks):
        return axis
    halves = [len(format_tick(tick)) * LETTER / 2 for tick in ticks]
    ends = [(axis.at(tick) - half, axis.at(tick) + half) for tick, half in zip(ticks, halves)]
    fits = all(right + 6 < left for (_, right), (left, _) in pairwise(ends))
    return replace(axis, given=ticks) if fits else axis


def format_tick(value: float) -> str:
    return f"{value:,.10g}"
