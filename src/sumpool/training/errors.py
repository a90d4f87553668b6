"""The error of a run."""

from sumpool.system.errors import UserError


class RunError(UserError):
    """A run cannot start, resume or be read; the message says what, where, and what is kept."""
