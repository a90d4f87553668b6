"""What goes wrong with files of models."""


class ModelError(Exception):
    """A file of weights or a stored model cannot be used; the message names it and the defect."""
