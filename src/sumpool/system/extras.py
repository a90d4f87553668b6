"""Packages of optional extras, imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

from sumpool.system.errors import UserError


def import_extra(name: str, extra: str, needs: str, error: type[UserError] = UserError) -> Any:
    """Import a module that is missing unless an extra of this package is installed.

    Args:
        name: The module.
        extra: The extra that installs it.
        needs: The beginning of the error message, such as "ONNX files need".
        error: The error to raise.

    Raises:
        UserError: Or ``error``, if it is missing; the message says how to install it.

    Example:
        >>> import_extra("missing_module", "onnx", "ONNX files need")
        Traceback (most recent call last):
        ...
        sumpool.system.errors.UserError: ONNX files need missing_module: pip install 'sumpool[onnx]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        missing = cause.name or name
        raise error(f"{needs} {missing}: pip install 'sumpool[{extra}]'") from cause
