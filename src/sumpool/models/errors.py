"""Errors of model files."""

from sumpool.system.errors import UserError


class ModelError(UserError):
    """A weight file or stored model cannot be used; the message names it and the defect."""
