"""The command line: one short file per command, over the verbs and the recipes.

Nothing here imports torch before a command that needs it runs, so that help and completion come at once.
"""

from regard.cli.app import main

__all__ = ["main"]
