"""Gallery on disk: what is written is read, and what is damaged is named."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from report.fake_runs import make_gallery, thumbnail
from sumpool.report.run.gallery import Gallery
from sumpool.report.run.gallery_files import read_gallery, write_gallery
from sumpool.system.files import StoreError


@pytest.mark.parametrize("pool", ["gsp", "gap"])
def test_exhibits_come_back_as_they_were_written(tmp_path: Path, pool: str) -> None:
    written = make_gallery(pool)
    read = read_gallery(write_gallery(written, tmp_path / "deep" / "exhibits"))
    assert read is not None
    for field in dataclasses.fields(Gallery):
        if field.name not in ("weights", "usage", "embedding_map"):
            assert getattr(read, field.name) == getattr(written, field.name), field.name
    assert read.weights.keys() == written.weights.keys()
    for name, weights in written.weights.items():
        np.testing.assert_array_equal(read.weights[name], weights)
    np.testing.assert_array_equal(read.usage, written.usage)
    assert read.embedding_map is not None
    assert written.embedding_map is not None
    np.testing.assert_array_equal(read.embedding_map.points, written.embedding_map.points)
    assert read.embedding_map.class_names == written.embedding_map.class_names


def test_exhibits_replace_those_before(tmp_path: Path) -> None:
    folder = tmp_path / "exhibits"
    write_gallery(make_gallery(), folder)
    extra = {**make_gallery("gap").images, "more.jpg": thumbnail(1)}
    write_gallery(dataclasses.replace(make_gallery("gap"), images=extra), folder)
    read = read_gallery(folder)
    assert read is not None
    assert read.prototypes == ()
    assert (folder / "images" / "more.jpg").is_file()
    write_gallery(make_gallery(), folder)
    assert not (folder / "images" / "more.jpg").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["exhibits"]


def test_an_interrupted_write_leaves_the_exhibits_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_gallery(make_gallery(), tmp_path / "exhibits")
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_gallery(make_gallery("gap"), folder)
    read = read_gallery(folder)
    assert read is not None
    assert read.prototypes
    write_gallery(make_gallery("gap"), folder)
    assert [path.name for path in tmp_path.iterdir()] == ["exhibits"]


@pytest.mark.parametrize("moment", range(5))
def test_an_interrupt_leaves_the_old_exhibits_or_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    folder = write_gallery(make_gallery(), tmp_path / "exhibits")
    left = iter(range(moment))

    def interrupted(function: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object, **options: object) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            function(*args, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted(os.replace))
        patch.setattr(shutil, "rmtree", interrupted(shutil.rmtree))
        with pytest.raises(KeyboardInterrupt):
            write_gallery(make_gallery("gap"), folder)
    read = read_gallery(folder)
    assert read is not None
    assert len(read.images) in (len(make_gallery().images), len(make_gallery("gap").images))
    write_gallery(make_gallery("gap"), folder)
    read = read_gallery(folder)
    assert read is not None
    assert read.prototypes == ()
    assert [path.name for path in tmp_path.iterdir()] == ["exhibits"]


def test_no_exhibits_are_none(tmp_path: Path) -> None:
    assert read_gallery(tmp_path / "exhibits") is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda index: index.update(format=99), r"exhibits\.json is damaged: .*format 99"),
        (lambda index: index.pop("worst"), r"exhibits\.json is damaged: it lacks 'worst'"),
        (lambda index: index["worst"][0].pop("item"), r"exhibits\.json is damaged: .*item"),
        (lambda index: index["map"].pop("method"), r"exhibits\.json is damaged: .*'method'"),
        (
            lambda index: index["sample"][0].update(image="../../secret.jpg"),
            "'../../secret.jpg' is no name of a thumbnail",
        ),
        (lambda index: index["sample"][0].update(image="gone.jpg"), r"gone\.jpg cannot be read"),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, change: object, said: str) -> None:
    folder = write_gallery(make_gallery(), tmp_path / "exhibits")
    (tmp_path / "secret.jpg").write_bytes(thumbnail(0))
    path = folder / "exhibits.json"
    index = json.loads(path.read_text())
    change(index)  # type: ignore[operator]
    path.write_text(json.dumps(index))
    with pytest.raises(StoreError, match=said):
        read_gallery(folder)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = write_gallery(make_gallery(), tmp_path / "exhibits")
    arrays = folder / "arrays.npz"
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:100])
    with pytest.raises(StoreError, match=r"arrays\.npz is damaged"):
        read_gallery(folder)
    arrays.unlink()
    with pytest.raises(StoreError, match=r"arrays\.npz is missing"):
        read_gallery(folder)
    arrays.write_bytes(whole)
    picture = folder / "images" / "image-0000003.jpg"
    picture.write_bytes(picture.read_bytes()[:-5])
    with pytest.raises(StoreError, match=r"image-0000003\.jpg is damaged: it is no whole JPEG"):
        read_gallery(folder)
    (folder / "exhibits.json").write_text('{"format": 1,')
    with pytest.raises(StoreError, match=r"exhibits\.json is damaged"):
        read_gallery(folder)
