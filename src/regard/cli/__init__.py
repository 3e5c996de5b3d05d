"""The command line: one short file per command, over the verbs and the recipes.

Nothing here imports torch before a command that needs it runs, so that help and completion are fast.
"""

import atexit
import signal
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0, 2 after a mistake of the user's, 130 after Ctrl-C, which may come at once."""
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the output is complete; torch takes a while to exit
    try:
        from regard.cli.app import main as run
    except KeyboardInterrupt:
        return INTERRUPTED
    return run(arguments)
