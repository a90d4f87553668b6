"""Reading pickled arrays without running anything that a pickle asks for.

A pickle is a program: it may name any function of any module and have it called. Here every name
but the four that a pickled array needs is refused, and those four are stand-ins that only write
down what they are given. The arrays are made afterwards, from checked types, shapes and bytes, so
that not even numpy's own way of restoring itself, which trusts its input, sees the file's content.
"""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumpool.data.base import DataError

_SCALARS = (str, bytes, int, float, bool)
_NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


class _StandIn:
    """What a permitted name stands for. Never a function: state set on one would outlive us."""

    def __setstate__(self, state: object) -> None:
        raise DataError(f"state for {type(self).__name__.strip('_')}, which has none")


class _Dtype(_StandIn):
    """Stands for ``numpy.dtype``; holds plain numbers only."""

    def __init__(self, code: object, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not _NUMBERS.fullmatch(code):
            raise DataError(f"an array of type {code!r}, which is no plain number")
        self.code = code.lstrip("<>|=")
        self.order = "="

    def __setstate__(self, state: object) -> None:
        # (version, byte order, sub-array, names, fields, ...): the middle three make structures.
        match state:
            case (int(), "<" | ">" | "|" | "=" as order, None, None, None, *_):
                self.order = order
            case _:
                raise DataError("an array of a structured type")


class _Array(_StandIn):
    """Stands for ``numpy.ndarray``; the array is made by :meth:`restore`."""

    state: tuple[Any, ...] | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), tuple(), _Dtype(), int(), bytes() | str()):
                self.state = tuple(state)
            case _:
                raise DataError("an array whose state is not shape, type and bytes")

    def restore(self) -> NDArray[Any]:
        """The array, if shape, type and bytes fit together."""
        if self.state is None:
            raise DataError("an array without content")
        _, shape, kind, fortran, raw = self.state
        dtype = np.dtype(kind.code).newbyteorder(kind.order)
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        if not all(type(side) is int and side >= 0 for side in shape):
            raise DataError(f"an array of shape {shape}")
        if math.prod(shape) * dtype.itemsize != len(content):
            raise DataError(f"{len(content)} bytes for an array of shape {shape} of {dtype}")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


class _Reconstruct(_StandIn):
    """Stands for ``_reconstruct``, which numpy's pickles call to make an empty array."""

    def __new__(cls, kind: object, shape: object, code: object) -> Any:
        if kind is not _Array:
            raise DataError("an array of a class of its own")
        return _Array()


class _Encode(_StandIn):
    """Stands for ``_codecs.encode``, by which protocols below 3 write bytes."""

    def __new__(cls, text: object, encoding: object) -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise DataError(f"bytes in the encoding {encoding!r}")
        return text.encode("latin1")


_PERMITTED: dict[tuple[str, str], type[_StandIn]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _PERMITTED:
            raise DataError(f"it asks for {module}.{name}; arrays and plain containers only")
        return _PERMITTED[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary pickled in a file: arrays of numbers, containers, numbers and text.

    Reads the pickles of Python 2 and of Python 3, as the CIFAR archives have them. Nothing in the
    file is executed. Keys that are bytes become text.

    Raises:
        DataError: If the file holds anything else, or is damaged; names the file.
    """
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="latin1").load()
        if not isinstance(content, dict):
            raise DataError(f"it holds a {type(content).__name__}, not a dictionary")
        plain = _plain(content, {})
    except MemoryError as error:
        raise DataError(f"{path} is not a sound pickle: it asks for too much memory") from error
    except Exception as error:  # damaged bytes make the unpickler raise all sorts
        reason = error if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        raise DataError(f"{path} is not a pickle of arrays: {reason}") from error
    return {it.decode("latin1") if isinstance(it, bytes) else it: plain[it] for it in plain}


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """``value`` with arrays in place of their stand-ins; what is shared stays shared."""
    if value is None or type(value) in _SCALARS:
        return value
    if id(value) in done:
        return done[id(value)]
    result: Any
    if isinstance(value, _Array):
        result = value.restore()
    elif type(value) is list:
        result = [_plain(it, done) for it in value]
    elif type(value) is tuple:
        result = tuple(_plain(it, done) for it in value)
    elif type(value) is dict:
        if any(type(key) not in _SCALARS for key in value):
            raise DataError("it holds a dictionary whose keys are no text or numbers")
        result = {key: _plain(it, done) for key, it in value.items()}
    else:
        raise DataError(f"it holds a {type(value).__name__}")
    done[id(value)] = result
    return result
