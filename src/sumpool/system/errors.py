"""Base class of errors that are reported to the user without a traceback."""


class UserError(Exception):
    """An error in the input or the environment; the message says what, where, and what to do."""
