"""Ctrl-C and SIGTERM, but never in the middle of an update."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)  # the second is how schedulers and torchrun ask


class SignalGuard:
    """While installed, an interrupt waits for the end of a `with shield.closed()` block; elsewhere it acts at once.

    One of several ranks is `patient`: an interrupt is only noted in `asked`, for all ranks to stop together, except in
    a `with shield.open()` block.
    """

    def __init__(self, patient: bool = False) -> None:
        self.asked = False
        self._patient = self._closed = patient

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take over the signals; only the main thread may, elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """What happens inside is not interrupted."""
        self._closed = True
        try:
            yield
        finally:
            self._closed = self._patient
        if not self._patient:
            self._act()

    @contextmanager
    def open(self) -> Iterator[None]:
        """What happens inside is interrupted at once."""
        self._closed = False
        try:
            self._act()
            yield
        finally:
            self._closed = self._patient

    def _act(self) -> None:
        if self.asked:
            self.asked = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._closed:
            raise KeyboardInterrupt
        self.asked = True
