"""The error whose message is all that a user needs."""


class UserError(Exception):
    """Something outside the program is wrong; the message says what, where, and what to do."""
