"""The error of a run."""


class RunError(Exception):
    """A run cannot begin, go on or be read; the message says what, where, and what is kept."""
