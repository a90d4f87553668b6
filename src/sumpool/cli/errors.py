"""One-line messages for errors caused outside the program."""

from __future__ import annotations

import errno
import os

from sumpool.system.errors import UserError
from sumpool.system.wording import on_one_line

_ANOTHER = "choose another location, or change its permissions"
#: Remedies for errors of the operating system.
_REMEDIES = {
    errno.ENOSPC: "free some space, or choose another folder",
    errno.EDQUOT: "free some space, or choose another folder",
    errno.EACCES: _ANOTHER,
    errno.EPERM: _ANOTHER,
    errno.EROFS: _ANOTHER,
    errno.EMFILE: "raise the limit with ulimit -n, or use fewer --workers",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "look for a failing disk",
}
_MEMORY = "out of memory: lower the batch size, the crop, or the number of workers"


def describe(error: BaseException) -> str | None:
    """Describe ``error`` in one line if its cause is outside the program; None for a bug."""
    text = _describe(error)
    return None if text is None else on_one_line(text)


def _describe(error: BaseException) -> str | None:
    message = " ".join(line.strip() for line in str(error).splitlines())
    if isinstance(error, UserError):
        return message
    if isinstance(error, OSError):
        what = error.strerror or message or type(error).__name__
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        remedy = _REMEDIES.get(error.errno or 0)
        return f"{where}{what}" + (f"; {remedy}" if remedy else "")
    # By name, so that torch need not be imported.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return _MEMORY
    if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
        return _MEMORY
    if isinstance(error, UnicodeError):
        return f"a file or a name is not UTF-8 text: {message}"
    if isinstance(error, RecursionError):
        return "a file is nested too deeply"
    return None
