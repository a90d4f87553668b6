"""Safe reader of pickled arrays.

A pickle is a program that can call any function of any module. This reader rejects all names except
those that pickled arrays need, and replaces these by stand-ins that only record their arguments.
Arrays are then built from checked types, shapes and bytes.
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
_NUMBER = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


class _StandIn:
    """Record of arguments and state. A class, since state set on a function would be global."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_StandIn): ...


class _Dtype(_StandIn): ...


class _Reconstruct(_StandIn): ...


class _Encode(_StandIn): ...  # how protocols below 3 write bytes


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
    """Read a pickled dictionary of numeric arrays, containers, numbers and text.

    Accepts pickles of Python 2 and 3, such as the CIFAR archives. Nothing in the file is executed.
    Keys of type bytes become text.

    Raises:
        DataError: If the file is damaged or contains anything else; names the file.
    """
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="latin1").load()
        if not isinstance(content, dict):
            raise DataError(f"it holds a {type(content).__name__}, not a dictionary")
        plain = _plain(content, {})
    except MemoryError as error:
        raise DataError(f"{path} is not a sound pickle: it asks for too much memory") from error
    except Exception as error:  # damaged bytes can make the unpickler raise anything
        reason = error if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        raise DataError(f"{path} is not a pickle of arrays: {reason}") from error
    return {it.decode("latin1") if isinstance(it, bytes) else it: plain[it] for it in plain}


def _plain(value: Any, done: dict[int, Any]) -> Any:
    """Replace the stand-ins in ``value`` by arrays and bytes; shared objects stay shared."""
    if value is None or type(value) in _SCALARS:
        return value
    if id(value) in done:
        return done[id(value)]
    result: Any
    if type(value) is list or type(value) is tuple:
        result = type(value)(_plain(it, done) for it in value)
    elif type(value) is dict:
        if any(type(key) not in _SCALARS for key in value):
            raise DataError("it holds a dictionary whose keys are no text or numbers")
        result = {key: _plain(it, done) for key, it in value.items()}
    elif isinstance(value, _Reconstruct):
        result = _array(value)
    elif isinstance(value, _Encode):
        result = _bytes(value)
    else:
        raise DataError(f"it holds a {type(value).__name__.strip('_')}")
    done[id(value)] = result
    return result


def _array(value: _Reconstruct) -> NDArray[Any]:
    match value.arguments, value.state:
        case (kind, _, _), (int(), tuple(shape), _Dtype() as code, int(fortran), content) if (
            kind is _Array
        ):
            dtype, raw = _number_type(code), _bytes(content)
        case _:
            raise DataError("an array whose state is not shape, type and bytes")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise DataError(f"an array of shape {shape}")
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise DataError(f"{len(raw)} bytes for an array of shape {shape} of {dtype}")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def _number_type(value: _Dtype) -> np.dtype[Any]:
    code = value.arguments[0] if value.arguments else None
    if not isinstance(code, str) or not _NUMBER.fullmatch(code):
        raise DataError(f"an array of type {code!r}, which is no plain number")
    # (version, byte order, subarray, names, fields, ...); structured types set the middle three.
    match value.state:
        case (int(), "<" | ">" | "|" | "=" as order, None, None, None, *_):
            return np.dtype(code.lstrip("<>|=")).newbyteorder(order)
    raise DataError("an array of a structured type")


def _bytes(value: Any) -> bytes:
    if isinstance(value, _Encode) and value.arguments[1:] == ("latin1",):
        value = value.arguments[0]
    if isinstance(value, str):
        value = value.encode("latin1")
    if not isinstance(value, bytes):
        raise DataError("bytes in an unknown encoding")
    return value
