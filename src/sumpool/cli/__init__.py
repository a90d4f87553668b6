"""The command ``sumpool``: one file per verb, parsing only."""

from sumpool.cli.entry import main

__all__ = ["main"]
