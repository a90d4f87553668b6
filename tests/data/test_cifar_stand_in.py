"""The stand-in for CIFAR-100: its files, its classes, and that they can be learned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sumpool.data import CIFAR100, write_cifar_stand_in
from sumpool.data.sets.cifar_names import COARSE_NAMES, COARSE_OF_FINE, FINE_NAMES
from sumpool.data.sets.pickles import read_pickle


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in with few images."""
    folder = tmp_path_factory.mktemp("stand-in")
    return write_cifar_stand_in(folder, train_per_class=6, test_per_class=3)


def test_names_are_those_of_cifar100() -> None:
    assert len(FINE_NAMES) == len(set(FINE_NAMES)) == len(COARSE_OF_FINE) == 100
    assert list(FINE_NAMES) == sorted(FINE_NAMES)
    assert list(COARSE_NAMES) == sorted(COARSE_NAMES)
    assert Counter(COARSE_OF_FINE) == dict.fromkeys(range(20), 5)
    # As the files of the data set have them.
    assert COARSE_OF_FINE[:10] == (4, 1, 14, 8, 0, 6, 7, 7, 18, 3)
    assert COARSE_OF_FINE[-10:] == (18, 1, 2, 15, 6, 0, 17, 8, 14, 13)


def test_files_have_what_those_of_cifar100_have(home: Path) -> None:
    assert home.name == "cifar-100-python"
    assert sorted(it.name for it in home.iterdir()) == ["meta", "test", "train"]
    meta = read_pickle(home / "meta")
    assert meta["fine_label_names"] == list(FINE_NAMES)
    assert meta["coarse_label_names"] == list(COARSE_NAMES)
    for split, per_class in (("train", 6), ("test", 3)):
        batch = read_pickle(home / split)
        assert batch["data"].shape == (100 * per_class, 3072)
        assert batch["data"].dtype == np.uint8
        assert Counter(batch["fine_labels"]) == dict.fromkeys(range(100), per_class)
        assert batch["coarse_labels"] == [COARSE_OF_FINE[it] for it in batch["fine_labels"]]
        assert len(set(batch["filenames"])) == 100 * per_class


def test_cifar100_reads_it(home: Path) -> None:
    data = CIFAR100(home.parent, "test", check_counts=False)
    assert len(data) == 300
    assert data.class_names == FINE_NAMES
    assert data.load(0).size == (32, 32)
    coarse = CIFAR100(home, "test", labels="coarse", check_counts=False)
    assert coarse.labels.tolist() == [COARSE_OF_FINE[it] for it in data.labels.tolist()]


def test_a_seed_fixes_every_byte(tmp_path: Path) -> None:
    def content(name: str, seed: int) -> list[bytes]:
        home = write_cifar_stand_in(tmp_path / name, train_per_class=1, test_per_class=1, seed=seed)
        return [(home / it).read_bytes() for it in ("train", "test", "meta")]

    first = content("a", 3)
    assert content("b", 3) == first == content("a", 3)
    other = content("c", 4)
    assert other[0] != first[0]
    assert other[1] != first[1]


def test_the_hues_of_super_classes_are_told_apart_by_mean_colours(home: Path) -> None:
    def features(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        data = CIFAR100(home, split, labels="coarse", check_counts=False)
        images = torch.stack([torch.tensor(np.asarray(data.load(i))) for i in range(len(data))])
        middle = images[:, 12:20, 12:20].double().flatten(1, 2)  # (N, 64, 3)
        return torch.nn.functional.normalize(middle.mean(1) - middle.mean((1, 2))[:, None]), (
            data.labels % 5
        )

    train, labels = features("train")
    test, wanted = features("test")
    means = torch.stack([train[labels == hue].mean(0) for hue in range(5)])
    assert ((test @ means.T).argmax(1) == wanted).double().mean() > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_per_class": 0}, "train_per_class must be a whole number of at least 1, got 0"),
        ({"test_per_class": 2.5}, "test_per_class must be a whole number of at least 1, got 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_cifar_stand_in(tmp_path, **arguments)
    assert not list(tmp_path.iterdir())
