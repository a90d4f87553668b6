"""CIFAR-10 and CIFAR-100 as their archives have them."""

from __future__ import annotations

import functools
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.miniatures import cifar10, cifar100, dump_python2, pixels
from sumpool.data import CIFAR10, CIFAR100, DataError, open_dataset

#: The folder of the real data sets, where there is one.
REAL = Path(os.environ.get("SUMPOOL_DATA", "none"))
DUMPS = [functools.partial(pickle.dumps, protocol=4), dump_python2]
each_dump = pytest.mark.parametrize("dump", DUMPS, ids=["python-3", "python-2"])


def channels_last(row: Any) -> Any:
    """An image as CIFAR's rows store it, red first, then green and blue, pixel by pixel."""
    return [[[row[c * 1024 + y * 32 + x] for c in range(3)] for x in range(32)] for y in range(32)]


@each_dump
def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path, dump: Any) -> None:
    home, content = cifar100(tmp_path, dump)
    fine = CIFAR100(tmp_path, "train", check_counts=False)
    coarse = CIFAR100(home, "train", labels="coarse", check_counts=False)
    assert fine.labels.tolist() == content["train"]["fine_labels"]
    assert coarse.labels.tolist() == content["train"]["coarse_labels"]
    assert fine.class_names == tuple("abcde")
    assert coarse.class_names == ("vowel", "other")
    assert fine.labels.dtype == torch.int64


@each_dump
def test_pixels_are_where_the_format_puts_them(tmp_path: Path, dump: Any) -> None:
    _, content = cifar100(tmp_path, dump)
    data = CIFAR100(tmp_path, "test", check_counts=False)
    for it in range(len(data)):
        image = data.load(it)
        assert image.mode == "RGB"
        assert np.array_equal(image, channels_last(content["test"]["data"][it]))


@each_dump
def test_cifar10_puts_its_batches_in_order(tmp_path: Path, dump: Any) -> None:
    home = cifar10(tmp_path, dump)
    data = CIFAR10(tmp_path, "train", check_counts=False)
    assert data.labels.tolist() == [1, 2, 2, 0, 0, 1, 1, 2, 2, 0]
    assert data.class_names == ("plane", "car", "bird")
    assert np.array_equal(data.load(7), channels_last(pixels(2, 4)[1]))
    assert data.item_name(7) == f"{home}/data_batch_4[1]"
    assert len(CIFAR10(home, "test", check_counts=False)) == 3


def test_all_is_train_and_then_test(tmp_path: Path) -> None:
    home, _ = cifar100(tmp_path)
    data = CIFAR100(tmp_path, check_counts=False)
    assert data.labels.tolist() == [0, 1, 2, 3, 4, 0, 4, 3, 2, 1]
    assert [data.item_name(it) for it in (5, 6)] == [f"{home}/train[5]", f"{home}/test[0]"]


@pytest.mark.parametrize(("build", "cls"), [(cifar10, CIFAR10), (cifar100, CIFAR100)])
def test_published_counts_are_demanded(tmp_path: Path, build: Any, cls: Any) -> None:
    build(tmp_path)
    with pytest.raises(DataError, match=r"CIFAR-10+ in .*'train' must have 50,000 .*, found"):
        cls(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("train", {"data": pixels(6).astype(np.int64)}, r"data must be an array \(N, 3072\) of"),
        ("train", {"data": pixels(6)[:, :3000]}, r"data must be an array \(N, 3072\) of uint8"),
        ("train", {"data": [1, 2]}, r"data must be an array"),
        ("train", {"data": pixels(5)}, r"fine_labels must be 5 integers in 0\.\.4"),
        ("train", {"fine_labels": [0, 1, 2, 3, 4, 5]}, r"fine_labels must be 6 integers"),
        ("train", {"fine_labels": [0, 1, 2, 3, 4, -1]}, r"fine_labels must be 6 integers"),
        ("train", {"fine_labels": [0, 1, 2, 3, 4, 0.5]}, r"fine_labels must be 6 integers"),
        ("train", {"fine_labels": None}, r"fine_labels must be 6 integers"),
        ("meta", {"fine_label_names": 5}, r"fine_label_names must be a list of names"),
        ("meta", {"fine_label_names": []}, r"fine_label_names must be a list of names"),
    ],
)
def test_wrong_content_is_named(tmp_path: Path, name: str, change: Any, match: str) -> None:
    home, content = cifar100(tmp_path)
    (home / name).write_bytes(pickle.dumps({**content[name], **change}))
    with pytest.raises(DataError, match=rf"{home / name}: {match}"):
        CIFAR100(tmp_path, "train", check_counts=False)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    home, content = cifar100(tmp_path)
    (home / "test").write_bytes(pickle.dumps({"data": content["test"]["data"]}))
    with pytest.raises(
        DataError, match=rf"{home}/test has no entry 'fine_labels', only \['data'\]"
    ):
        CIFAR100(tmp_path, "test", check_counts=False)
    (home / "train").unlink()
    with pytest.raises(DataError, match=r"holds no CIFAR-100: .*cifar-100-python lacks train$"):
        CIFAR100(tmp_path)


def test_unknown_splits_and_labels_are_refused(tmp_path: Path) -> None:
    cifar100(tmp_path)
    with pytest.raises(ValueError, match=r"one of \('train', 'test', 'all'\), got 'validation'"):
        CIFAR100(tmp_path, "validation")
    with pytest.raises(
        ValueError, match=r"labels must be one of \('fine', 'coarse'\), got 'rough'"
    ):
        CIFAR100(tmp_path, labels="rough")


@pytest.mark.skipif(
    not (REAL / "cifar-100-python").is_dir(), reason="needs cifar-100-python in $SUMPOOL_DATA"
)
def test_the_real_cifar100_has_its_counts() -> None:
    data = open_dataset(REAL, "cifar100", "test")
    assert torch.bincount(data.labels).tolist() == [100] * 100
    coarse = open_dataset(REAL, "cifar100", "test", labels="coarse")
    assert torch.bincount(coarse.labels).tolist() == [500] * 20
    assert data.load(9999).size == (32, 32)
