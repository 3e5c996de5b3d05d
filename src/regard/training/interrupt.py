"""Handling of Ctrl-C, SIGTERM and SIGHUP: an update is never interrupted."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Schedulers and torchrun send SIGTERM, a terminal that is closed sends SIGHUP.
HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, HANGUP)))


class SignalGuard:
    """Signal handlers that delay an interrupt until the end of a `with guard.delayed()` block.

    Outside such a block, an interrupt raises KeyboardInterrupt at once. With `always_delay`, for one of several ranks,
    an interrupt only sets `requested`, so that all ranks can stop together, except in a `with guard.immediate()` block.
    """

    def __init__(self, always_delay: bool = False) -> None:
        self.requested = False
        self._always_delay = self._delaying = always_delay

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the handlers inside the block; outside the main thread, where Python allows none, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._handle)
            for number in SIGNALS
            if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN  # nohup ignores it
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """The block is not interrupted."""
        self._delaying = True
        try:
            yield
        finally:
            self._delaying = self._always_delay
        if not self._always_delay:
            self._raise_if_requested()

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """The block is interrupted at once, also inside a `delayed` block."""
        before, self._delaying = self._delaying, False
        try:
            self._raise_if_requested()
            yield
        finally:
            self._delaying = before

    def _raise_if_requested(self) -> None:
        if self.requested:
            self.requested = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._delaying:
            raise KeyboardInterrupt
        self.requested = True
