"""No pickle runs anything; arrays and plain containers come through unharmed."""

from __future__ import annotations

import builtins
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.miniatures import cifar100, dump_python2
from sumpool.data import CIFAR100, DataError
from sumpool.data.sets.pickles import _PERMITTED, read_pickle


def stored(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return path


class Calls:
    """Pickles as a call of ``function`` with ``arguments``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.what = (function, arguments)

    def __reduce__(self) -> Any:
        return self.what


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_and_containers_come_through(tmp_path: Path, protocol: int) -> None:
    arrays = {
        "bytes": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big-endian": np.arange(5, dtype=">i4"),
        "scalar": np.array(7, dtype=np.int64),
        "truth": np.array([True, False]),
    }
    if protocol >= 3:  # before, no bytes were a call of bytes(), which is no array's business
        arrays["empty"] = np.zeros((0, 3), dtype=np.float32)
    content = {**arrays, "list": [1, (2.5, "three"), {"four": None}], "same": arrays["bytes"]}
    read = read_pickle(stored(tmp_path, pickle.dumps(content, protocol)))
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        assert np.array_equal(read[name], array)
    assert read["list"] == content["list"]
    assert read["same"] is read["bytes"]


def test_pickles_of_python_2_come_through(tmp_path: Path) -> None:
    content = {
        "data": np.arange(256, dtype=np.uint8).reshape(16, 16),
        "labels": [3, 1],
        "names": ["é"],
    }
    read = read_pickle(stored(tmp_path, dump_python2(content)))
    assert np.array_equal(read["data"], content["data"])
    assert read["data"].dtype == np.uint8
    assert read["labels"] == [3, 1]
    assert list(read) == ["data", "labels", "names"]


def test_keys_of_bytes_become_text(tmp_path: Path) -> None:
    assert read_pickle(stored(tmp_path, pickle.dumps({b"data": 1}))) == {"data": 1}


# Each would leave a file called "ran" behind, or an attribute on numpy, if it were executed.
ATTACKS = {
    "os.system": lambda ran: pickle.dumps({"data": Calls(os.system, f"touch {ran}")}),
    "posix.system": lambda ran: f"cposix\nsystem\n(Vtouch {ran}\ntR.".encode(),
    "eval": lambda ran: pickle.dumps(Calls(builtins.eval, f"open({str(ran)!r}, 'w')")),
    "exec": lambda ran: pickle.dumps([Calls(builtins.exec, f"open({str(ran)!r}, 'w')")], 0),
    "open": lambda ran: pickle.dumps(Calls(builtins.open, str(ran), "w"), 2),
    "INST": lambda ran: f"(Vtouch {ran}\nios\nsystem\n.".encode(),
    "OBJ": lambda ran: f"(cos\nsystem\nVtouch {ran}\no.".encode(),
    "getattr": lambda ran: b"cbuiltins\ngetattr\n(cnumpy\nndarray\nV__class__\ntR.",
    # A dotted name reaches through a permitted one: ndarray.tofile, dtype.__class__, os by numpy.
    "dotted": lambda ran: _global("numpy", "ndarray.tofile", "."),
    "dotted module": lambda ran: _global("numpy", "f2py.os.system", f"(Vtouch {ran}\ntR."),
    "numpy.fromfile": lambda ran: b"cnumpy\nfromfile\n(V/etc/passwd\ntR.",
    "numpy.load": lambda ran: b"cnumpy\nload\n(V/etc/passwd\nNI01\ntR.",
    "numpy.memmap": lambda ran: f"cnumpy\nmemmap\n(V{ran}\nVuint8\nVw+\ntR.".encode(),
    "numpy runstring": lambda ran: (
        f"cnumpy.testing._private.utils\nrunstring\n(Vopen('{ran}', 'w')\n}}tR.".encode()
    ),
    "numpy scalar": lambda ran: pickle.dumps({"data": np.float64(1.0)}),
    "object array": lambda ran: pickle.dumps(
        {"data": np.array([Calls(os.system, f"touch {ran}")], dtype=object)}
    ),
    # Declares plain bytes to be objects, so that numpy would take them for pointers.
    "pointers": lambda ran: _array(dtype=b"VO8\n", flags=b"K\x00", raw=struct.pack("<Q", 4096)),
    "structure": lambda ran: pickle.dumps({"data": np.zeros(2, dtype=[("x", "u1"), ("y", "O")])}),
    "subclass": lambda ran: pickle.dumps(np.ma.masked_array([1, 2])),
    "codec": lambda ran: b"c_codecs\nencode\n(Vhello\nVrot13\ntR.",
    "set state of a class": lambda ran: b"cnumpy\nndarray\n}Vshape\nI1\nsb.",
    "set slots of a class": lambda ran: b"cnumpy\ndtype\n(N}V__doc__\nI1\nstb.",
    "set slots of a call": lambda ran: (
        b"cnumpy.core.multiarray\n_reconstruct\n(N}V__new__\nI1\nstb."
    ),
    "state of an array": lambda ran: _array(state=b"}V__class__\nI1\ns"),
    "extension": lambda ran: b"\x80\x02\x82\x01.",
    "persistent id": lambda ran: b"Pdata\n.",
    "other class": lambda ran: pickle.dumps(OrderedDict(a=1)),
    "path": lambda ran: pickle.dumps({"data": Path("x")}),
}


def _global(module: str, name: str, rest: str) -> bytes:
    parts = (b"\x8c" + bytes([len(it)]) + it.encode() for it in (module, name))
    return b"\x80\x04" + b"".join(parts) + b"\x93" + rest.encode()


def _array(
    dtype: bytes = b"Vu1\n",
    flags: bytes = b"K\x00",
    raw: bytes = bytes(8),
    shape: bytes = b"K\x01\x85",
    state: bytes | None = None,
) -> bytes:
    """An array whose parts are what the attack wants."""
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
    kind = (
        b"cnumpy\ndtype\n(" + dtype + b"K\x00K\x01tR"
        b"(K\x03V|\nNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff" + flags + b"tb"
    )
    full = b"(K\x01" + shape + kind + b"I00\nC" + bytes([len(raw)]) + raw + b"t"
    return b"\x80\x03}X\x04\x00\x00\x00data" + empty + (full if state is None else state) + b"bs."


def test_the_attacks_are_arrays_but_for_what_they_change(tmp_path: Path) -> None:
    read = read_pickle(stored(tmp_path, _array(raw=b"\x05" * 8, shape=b"K\x08\x85")))
    assert read["data"].tolist() == [5] * 8


@pytest.mark.parametrize("name", ATTACKS)
def test_a_crafted_pickle_does_not_run(tmp_path: Path, name: str) -> None:
    before = {it: dict(vars(it)) for it in _PERMITTED.values()}
    ran = tmp_path / "ran"
    path = stored(tmp_path, ATTACKS[name](ran))
    with pytest.raises(DataError, match=rf"{path} is not a pickle of arrays: "):
        read_pickle(path)
    assert not ran.exists()
    assert {it: dict(vars(it)) for it in _PERMITTED.values()} == before


@pytest.mark.parametrize("name", ["train", "meta"])
def test_a_crafted_file_in_the_archive_does_not_run(tmp_path: Path, name: str) -> None:
    home, content = cifar100(tmp_path)
    ran = tmp_path / "ran"
    attack = {**content[name], "also": Calls(os.system, f"touch {ran}")}
    (home / name).write_bytes(pickle.dumps(attack))
    with pytest.raises(DataError, match=rf"{home / name} .*system; arrays and plain"):
        CIFAR100(tmp_path, "train", check_counts=False)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "EOFError"),
        (b"hello", "UnpicklingError|KeyError|ValueError"),
        (pickle.dumps({"data": np.zeros(1000)})[:-50], "truncated"),
        (pickle.dumps([1, 2]), "it holds a list, not a dictionary"),
        (pickle.dumps({"data": {1, 2}}), "it holds a set"),
        (pickle.dumps({(1, 2): 3}), "keys are no text or numbers"),
        (_array(shape=b"K\x09\x85"), r"8 bytes for an array of shape \(9,\) of uint8"),
        (_array(shape=b"J\xff\xff\xff\xff\x85"), r"an array of shape \(-1,\)"),
        (_array(shape=b"K\x01"), "whose state is not shape, type and bytes"),
        (_array(dtype=b"VS8\n"), "an array of type 'S8', which is no plain number"),
        (b"}X\x04\x00\x00\x00datacnumpy\nndarray\n)\x81s.", "it holds a Array"),
        (b"](" + b"h\x00" + b"e.", r"\S"),
        (b"\x80\x04}\x94X\x01\x00\x00\x00ah\x00s.", "RecursionError"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", r"\S"),
    ],
)
def test_damaged_pickles_are_named(tmp_path: Path, content: bytes, match: str) -> None:
    path = stored(tmp_path, content)
    with pytest.raises(DataError, match=rf"(?s){path} is not .*({match})"):
        read_pickle(path)


def test_shared_containers_are_not_multiplied(tmp_path: Path) -> None:
    nested: list[Any] = [0]
    for _ in range(60):
        nested = [nested, nested]  # written out, 2⁶⁰ zeros
    read = read_pickle(stored(tmp_path, pickle.dumps({"data": nested})))["data"]
    assert read[0] is read[1]
