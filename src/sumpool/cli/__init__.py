"""The command ``sumpool``: one verb a file, parsing only."""

from sumpool.cli.entry import main

__all__ = ["main"]
