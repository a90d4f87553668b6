"""What goes wrong with files of models."""

from sumpool.system.errors import UserError


class ModelError(UserError):
    """A file of weights or a stored model cannot be used; the message names it and the defect."""
