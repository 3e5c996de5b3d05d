"""Ctrl-C, but never in the middle of an update."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Shield:
    """While installed, Ctrl-C waits for the end of a `with shield.closed()` block; elsewhere it acts at once."""

    def __init__(self) -> None:
        self._closed = False
        self._asked = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take over the signal; only the main thread may, elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """What happens inside is not interrupted."""
        self._closed = True
        try:
            yield
        finally:
            self._closed = False
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._closed:
            raise KeyboardInterrupt
        self._asked = True
