"""MATLAB files are read as SciPy reads them, within limits on time and memory."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from sumpool.data.sets.matlab import read_mat


@pytest.mark.parametrize("compressed", [False, True])
def test_what_scipy_writes_is_read(compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    records = np.zeros((1, 2), dtype=[("path", "O"), ("class", "O"), ("box", "O")])
    records[0, 0] = ("images/ä.jpg", 3, np.arange(4, dtype=np.uint16))
    records[0, 1] = ("b", 70_000, np.array([0.5, 2.0]))
    names = np.array([["Audi TT", "BMW X5 SUV 2007"]], dtype=object)
    content: dict[str, Any] = {"annotations": records, "class_names": names, "one": 7}
    scipy.io.savemat(path, content, do_compression=compressed)
    assert read_mat(path) == {
        "annotations": [
            {"path": "images/ä.jpg", "class": 3, "box": [0, 1, 2, 3]},
            {"path": "b", "class": 70_000, "box": [0.5, 2.0]},
        ],
        "class_names": ["Audi TT", "BMW X5 SUV 2007"],
        "one": 7,
    }


def _element(kind: int, data: bytes, *, aligned: bool = True) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8 if aligned else 0)


def _array(kind: int, shape: tuple[int, ...], data: bytes, name: bytes = b"annotations") -> bytes:
    flags = _element(6, struct.pack("<II", kind, 0))
    dims = _element(5, struct.pack(f"<{len(shape)}i", *shape))
    return _element(14, flags + dims + _element(1, name) + data)


def _nested(levels: int) -> bytes:
    data = _array(6, (1, 1), _element(9, bytes(8)))
    for _ in range(levels):
        data = _array(1, (1, 1), data)
    return data


FIELDS = _element(5, struct.pack("<i", 8)) + _element(1, b"")
HOSTILE = {
    "a huge structure without fields": lambda: _array(2, (2**31 - 1, 2**31 - 1), FIELDS),
    "a huge cell": lambda: _array(1, (1, 2**31 - 1), b""),
    "huge text": lambda: _array(4, (2**31 - 1, 2**31 - 1), _element(16, b"x")),
    "a negative size": lambda: _array(1, (1, -5), b""),
    "deep nesting": lambda: _nested(3000),
    "a bomb": lambda: _element(15, zlib.compress(bytes(2**27)), aligned=False),
    "a size beyond the end": lambda: struct.pack("<II", 14, 2**32 - 1) + bytes(64),
    "an object": lambda: _array(3, (1, 1), bytes(16)),
    "nothing in an array": lambda: _element(14, bytes(8)),
    "a length of zero": lambda: _array(2, (1, 1), _element(5, bytes(4)) + _element(1, b"abc")),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_at_once(content: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(bytes(124) + b"\x00\x01IM" + content())
    start = time.process_time()
    with pytest.raises(ValueError, match=r"it |array|structure|class 3"):
        read_mat(path)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("size", [0, 60, 127, 128, 140, -20])
def test_a_torn_file_is_refused_or_empty(size: int, tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole.mat", tmp_path / "torn.mat"
    scipy.io.savemat(whole, {"names": np.array([["a", "b"]], dtype=object)})
    torn.write_bytes(whole.read_bytes()[:size])
    if size == 128:
        assert read_mat(torn) == {}
        return
    with pytest.raises(ValueError, match="it is"):
        read_mat(torn)
