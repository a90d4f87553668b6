"""Reader of MATLAB version 5 files (text, numbers, cells, structures) with resource limits.

SciPy's reader allocates whatever a file declares, and takes minutes for some files of a few hundred
bytes. This reader requires that an array has at most as many elements as bytes.
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any

#: Limits on bytes (of the file and decompressed), number of arrays and nesting.
BYTES = 2**26
ARRAYS = 1_000_000
DEPTH = 8

_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _CHAR = 1, 2, 4
#: Format characters of ``struct`` by MATLAB data type number.
_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}


def read_mat(path: Path) -> dict[str, Any]:
    """Read the variables of a file, by name.

    Text becomes a string, a numeric array of one element a number, a structure array a list of
    dictionaries; other arrays become flat lists in file order.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not a MATLAB version 5 file, is damaged, or exceeds the limits.
    """
    with path.open("rb") as file:
        content = file.read(BYTES + 1)
    if len(content) > BYTES:
        raise ValueError(f"it is larger than {BYTES // 2**20} MiB")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("it is not a MATLAB file of version 5")
    return _File(order).variables(content[128:])


class _File:
    def __init__(self, order: str) -> None:
        self.order, self.array_count, self.left = order, 0, BYTES

    def variables(self, content: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}
        view = memoryview(content)
        while view:
            kind, data, view = self.element(view, aligned=False)
            if kind == _COMPRESSED:
                kind, data, _ = self.element(memoryview(self.inflate(data)))
            if kind != _MATRIX:
                raise ValueError(f"it has data of type {kind} outside of an array")
            name, value = self.array(data, 0)
            found[name] = value
        return found

    def inflate(self, data: memoryview) -> bytes:
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(data, self.left)
        except zlib.error as error:
            raise ValueError(f"its compressed data are damaged: {error}") from error
        if not stream.eof:
            raise ValueError(f"it is cut short, or holds more than {BYTES // 2**20} MiB")
        self.left -= len(content)
        return content

    def element(
        self, view: memoryview, *, aligned: bool = True
    ) -> tuple[int, memoryview, memoryview]:
        """Return the type and data of the first element, and the remaining bytes."""
        if len(view) < 8:
            raise ValueError("it is cut short")
        first, size = struct.unpack_from(f"{self.order}II", view)
        if first >> 16:  # small element: up to four bytes, inside the tag
            kind, size, begin, end = first & 0xFFFF, first >> 16, 4, 8
        else:
            kind, begin = first, 8
            end = 8 + size + (-size % 8 if aligned else 0)
        if (size > 4 and begin == 4) or begin + size > len(view):
            raise ValueError("it is cut short")
        return kind, view[begin : begin + size], view[end:]

    def array(self, view: memoryview, depth: int) -> tuple[str, Any]:
        self.array_count += 1
        if depth > DEPTH or self.array_count > ARRAYS:
            raise ValueError(f"it has more than {DEPTH} levels or {ARRAYS:,} arrays")
        if not view:  # an empty cell
            return "", []
        whole = len(view)
        _, flags, view = self.element(view)
        shape, view = self.numbers(view)
        _, name, view = self.element(view)
        count = math.prod(shape) if all(size >= 0 for size in shape) else whole + 1
        if count > whole:
            raise ValueError(f"an array of the shape {shape} has {whole} bytes")
        kind = struct.unpack_from(f"{self.order}I", flags)[0] & 0xFF if len(flags) >= 4 else 0
        title = bytes(name).decode("latin-1")
        if kind == _CELL:
            return title, self.arrays_of(view, count, depth)[0]
        if kind == _STRUCT:
            return title, self.records(view, count, depth)
        if kind == _CHAR:
            return title, self.text(view)
        if not 6 <= kind <= 15:
            raise ValueError(f"{title or 'an array'} is of class {kind}, which is not read")
        values, _ = self.numbers(view)
        return title, values[0] if count == 1 and values else values

    def arrays_of(self, view: memoryview, count: int, depth: int) -> tuple[list[Any], memoryview]:
        found = []
        for _ in range(count):
            kind, data, view = self.element(view)
            if kind != _MATRIX:
                raise ValueError(f"it has data of type {kind} in place of an array")
            found.append(self.array(data, depth + 1)[1])
        return found, view

    def records(self, view: memoryview, count: int, depth: int) -> list[dict[str, Any]]:
        length, view = self.numbers(view)
        _, data, view = self.element(view)
        size = int(length[0]) if length else 0
        if size < 1:
            raise ValueError("a structure has no fields")
        names = [
            bytes(data[place : place + size]).split(b"\0")[0].decode("latin-1")
            for place in range(0, len(data), size)
        ]
        if not names:
            raise ValueError("a structure has no fields")
        found = []
        for _ in range(count):
            values, view = self.arrays_of(view, len(names), depth)
            found.append(dict(zip(names, values, strict=True)))
        return found

    def numbers(self, view: memoryview) -> tuple[list[Any], memoryview]:
        kind, data, view = self.element(view)
        if kind not in _NUMBERS:
            raise ValueError(f"it has data of type {kind} in place of numbers")
        code = f"{self.order}{_NUMBERS[kind]}"
        return [value for (value,) in struct.iter_unpack(code, self.whole(data, code))], view

    def text(self, view: memoryview) -> str:
        kind, data, _ = self.element(view)
        if kind not in _TEXT:
            raise ValueError(f"it has data of type {kind} in place of text")
        wide = kind in (4, 17, 18)
        return bytes(data).decode(_TEXT[kind] + ("-le" if self.order == "<" else "-be") * wide)

    def whole(self, data: memoryview, code: str) -> memoryview:
        if len(data) % struct.calcsize(code):
            raise ValueError("it is cut short")
        return data
