"""The command line: one short file per command, over the verbs and the recipes.

Nothing here imports torch before a command that needs it runs, so that help and completion are fast.
"""

import atexit
import signal
from collections.abc import Mapping, Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None, kinds: Mapping[str, Mapping[str, Any]] | None = None) -> int:
    """Run one command; the exit code: 0, 2 after a mistake of the user's, 130 after Ctrl-C, which may come at once.

    `kinds` has tables of your own package (`regard.recipes.KINDS` has ours): commands then know what is in them.
    """
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the work is done, and torch takes a while to exit
    try:
        from regard.cli.app import run_command

        return run_command(arguments, kinds)
    except KeyboardInterrupt:
        return 130
