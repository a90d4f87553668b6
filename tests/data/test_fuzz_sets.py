"""Readers of data sets, given nearly right files: a value, or an error of one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data import miniatures
from fuzzing import damaged, is_read_or_refused
from sumpool.data.sets.cars import Cars196
from sumpool.data.sets.csv_dataset import read_table
from sumpool.data.sets.decoding import read_image
from sumpool.data.sets.mnist import read_idx
from sumpool.data.sets.pickles import read_pickle

pytestmark = pytest.mark.process


def _png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), "red").save(file, "PNG")
    return file.getvalue()


def _csv() -> bytes:
    return b'path,label,split\na/0.png,cat,train\n"b, c/1.png",dog,test\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def _mat(home: Path) -> bytes:
    return (miniatures.cars(home / "cars") / "cars_annos.mat").read_bytes()


def _pickle(home: Path) -> bytes:
    root, _ = miniatures.cifar100(home / "cifar")
    return next(it for it in root.rglob("test") if it.is_file()).read_bytes()


def _idx(home: Path) -> bytes:
    return miniatures.idx(home / "labels", np.arange(9, dtype=np.uint8)).read_bytes()


READERS: dict[str, tuple[Callable[[Path], bytes], str, Callable[[Path], Any]]] = {
    "image": (lambda _: _png(), "x.png", read_image),
    "CSV": (lambda _: _csv(), "x.csv", read_table),
    "IDX": (_idx, "x", lambda path: read_idx(path, 1)),
    "pickle": (_pickle, "x", read_pickle),
    ".mat": (_mat, "cars_annos.mat", lambda path: Cars196.read(path.parent)),
}


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_data_file_is_read_or_refused(kind: str, home: Path, data: st.DataObject) -> None:
    sound, name, read = READERS[kind]
    kept = home / f"{kind.strip('.')}-sound"
    if not kept.exists():
        kept.write_bytes(sound(home))
    path = home / name
    path.write_bytes(data.draw(damaged(kept.read_bytes())))
    assert is_read_or_refused(lambda: read(path))
