"""MNIST and Fashion-MNIST from IDX files, plain or compressed."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.miniatures import MNIST_LABELS, idx, mnist
from sumpool.data import MNIST, DataError, FashionMNIST
from sumpool.data.sets.mnist import read_idx

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_images_are_gray_as_rgb(tmp_path: Path, ending: str) -> None:
    mnist(tmp_path, ending=ending)
    data = MNIST(tmp_path, "train", check_counts=False)
    expected = np.random.default_rng(0).integers(0, 256, (10, 28, 28), dtype=np.uint8)
    assert data.labels.tolist() == list(MNIST_LABELS)
    assert data.load(4).mode == "RGB"
    assert np.array_equal(data.load(4), expected[4][..., None].repeat(3, -1))
    assert data.item_name(4) == f"{tmp_path / IMAGES}{ending}[4]"
    assert data.class_names == tuple("0123456789")


def test_all_is_train_and_then_test(tmp_path: Path) -> None:
    mnist(tmp_path)
    data = MNIST(tmp_path, check_counts=False)
    assert data.labels.tolist() == [*MNIST_LABELS, *MNIST_LABELS[:3]]
    assert data.item_name(10).endswith("t10k-images-idx3-ubyte[0]")


@pytest.mark.parametrize(
    ("cls", "folder"), [(MNIST, "MNIST/raw"), (FashionMNIST, "FashionMNIST/raw")]
)
def test_files_are_found_where_torchvision_puts_them(tmp_path: Path, cls: Any, folder: str) -> None:
    mnist(tmp_path / folder)
    for root in (tmp_path, tmp_path / folder, (tmp_path / folder).parent):
        assert len(cls(root, "test", check_counts=False)) == 3


def test_fashion_has_names_of_its_own(tmp_path: Path) -> None:
    data = FashionMNIST(mnist(tmp_path), check_counts=False)
    assert data.class_names[9] == "Ankle boot"
    assert len(data.class_names) == 10


def test_published_counts_are_demanded(tmp_path: Path) -> None:
    mnist(tmp_path)
    match = r"'train' must have 60,000 images of 10 classes, found 10 images of 7 classes"
    with pytest.raises(DataError, match=match):
        MNIST(tmp_path, "train")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_reads_what_was_written(tmp_path: Path, ending: str) -> None:
    values = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
    assert np.array_equal(read_idx(idx(tmp_path / f"x{ending}", values), 3), values)
    empty = np.zeros((0, 28, 28), dtype=np.uint8)
    assert read_idx(idx(tmp_path / f"x{ending}", empty), 3).shape == (0, 28, 28)


HEADER = struct.pack(">HBB2I", 0, 8, 2, 3, 4)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"is cut short: its header has 0 bytes"),
        (HEADER[:7], r"is cut short: its header has 7 bytes"),
        (HEADER + bytes(11), r"must hold 12 bytes, .* shape \(3, 4\), found 11"),
        (HEADER + bytes(13), r"must hold 12 bytes, .* shape \(3, 4\), found 13"),
        (b"\0\0\x0d\x02" + bytes(20), r"is no IDX file .* in 2 dimensions: .* 00 00 0d 02"),
        (b"\0\0\x08\x03" + bytes(20), r"is no IDX file .* in 2 dimensions: .* 00 00 08 03"),
        (b"\x89PNG" + bytes(20), r"is no IDX file"),
        (struct.pack(">HBB2I", 0, 8, 2, 2**32 - 1, 2**32 - 1), r"must hold 18,446,.* found 0"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, content: bytes, match: str, compressed: bool
) -> None:
    path = tmp_path / ("x.gz" if compressed else "x")
    path.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(DataError, match=rf"{path} {match}"):
        read_idx(path, 2)


def test_damaged_compression_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    sound = gzip.compress(HEADER + np.random.default_rng(0).bytes(12))
    flipped = bytes([*sound[:-6], sound[-6] ^ 255, *sound[-5:]])
    for content in (sound[:-9], flipped, b"no gzip", sound[:10] + b"\xff" * 20):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{path} is damaged: \S"):
            read_idx(path, 2)
    with pytest.raises(DataError, match=r"cannot read .*none: No such file"):
        read_idx(tmp_path / "none", 2)


def test_a_file_that_unpacks_to_more_than_any_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumpool.data.sets.mnist._MOST", 1000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(DataError, match=r"bomb\.gz holds more than 1,000 bytes"):
        read_idx(path, 1)


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    mnist(tmp_path)
    idx(tmp_path / LABELS, np.zeros(9, dtype=np.uint8))
    with pytest.raises(DataError, match=rf"{LABELS} has 9 labels for the 10 images of .*{IMAGES}"):
        MNIST(tmp_path, check_counts=False)
    idx(tmp_path / LABELS, np.full(10, 10, dtype=np.uint8))
    with pytest.raises(DataError, match=rf"{LABELS} must hold labels in 0\.\.9, got 10"):
        MNIST(tmp_path, check_counts=False)
    idx(tmp_path / IMAGES, np.zeros((10, 20, 28), dtype=np.uint8))
    with pytest.raises(DataError, match=rf"{IMAGES} must hold images of 28×28, got .*\(10, 20, 28"):
        MNIST(tmp_path, check_counts=False)
    (tmp_path / LABELS).unlink()
    with pytest.raises(DataError, match=rf"holds no MNIST: .* lacks {LABELS} or {LABELS}\.gz$"):
        MNIST(tmp_path)


def test_unknown_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one of \('train', 'test', 'all'\), got 'val'"):
        MNIST(mnist(tmp_path), "val")
