"""The error of a run."""


class RunError(Exception):
    """A run cannot start, resume or be read; the message says what, where, and what is kept."""
