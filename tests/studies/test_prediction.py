"""The prediction study: the transfer of attributes against loops, and the study end to end."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sumpool.data import write_cifar_stand_in
from sumpool.studies.prediction import experiment as prediction
from sumpool.studies.prediction.attribute_transfer import (
    class_means,
    class_splits,
    halves,
    transfer_accuracy,
)
from sumpool.studies.prediction.setup import cell_config, choose_settings, open_parts
from sumpool.studies.shared.measuring import attribute_perplexity
from sumpool.system.rows import Row, read_arrays
from sumpool.training import ConfigError


def random_classes(
    classes: int, seed: int = 0, m: int = 8, size: int = 12
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    histograms = torch.rand(classes, m, generator=generator).softmax(-1)
    return histograms, torch.randn(classes, size, generator=generator)


def naive_accuracy(
    histograms: Tensor, means: Tensor, order: list[int], ridge: float
) -> tuple[float, float, float, float]:
    """One split by loops: fit, predict, look for the nearest, and rank."""
    Z, Y = histograms.double().numpy(), means.double().numpy()
    fitted, _ = halves(len(order))
    known, asked = order[:fitted], order[fitted:]
    gram = ridge * np.eye(Z.shape[1])
    for it in known:
        gram += np.outer(Z[it], Z[it])
    W = np.linalg.solve(gram, sum(np.outer(Z[it], Y[it]) for it in known))
    right, precision = [0, 0], [0.0, 0.0]
    for it in asked:
        guess = Z[it] @ W
        by_distance = sorted(asked, key=lambda other: float(np.linalg.norm(guess - Y[other])))
        by_angle = sorted(
            asked, key=lambda other: -float(guess @ Y[other] / np.linalg.norm(Y[other]))
        )
        precision[0] += 1 / (1 + by_distance.index(it))
        precision[1] += 1 / (1 + by_angle.index(it))
        nearest = min(asked, key=lambda other: float(np.linalg.norm(guess - Y[other])))
        closest = max(
            asked,
            key=lambda other: float(
                guess @ Y[other] / np.linalg.norm(guess) / np.linalg.norm(Y[other])
            ),
        )
        right[0] += nearest == it
        right[1] += closest == it
    return tuple(it / len(asked) for it in (*right, *precision))  # type: ignore[return-value]


@pytest.mark.parametrize(("classes", "ridge"), [(10, 0.05), (20, 0.05), (7, 1e-3)])
def test_transfer_equals_a_loop_over_splits(classes: int, ridge: float) -> None:
    histograms, means = random_classes(classes)
    means = means + 8 * histograms @ torch.randn(8, 12, generator=torch.Generator().manual_seed(5))
    orders = class_splits(classes, 12, seed=3)
    found = transfer_accuracy(histograms, means, orders, ridge)
    for split, order in enumerate(orders.tolist()):
        wanted = naive_accuracy(histograms, means, order, ridge)
        assert tuple(float(it[split]) for it in found) == pytest.approx(wanted)
    assert 0 < found.l2.mean() < 1


def test_a_linear_relation_transfers_and_no_relation_is_chance() -> None:
    histograms, noise = random_classes(20, m=4)
    linear = histograms @ torch.randn(4, 12, generator=torch.Generator().manual_seed(1))
    orders = class_splits(20, 200, seed=0)
    assert transfer_accuracy(histograms, linear, orders, 1e-9).l2.mean() > 0.999
    flat = torch.full_like(histograms, 0.25)
    accuracies, precisions = (transfer_accuracy(flat, noise, orders)[i : i + 2] for i in (0, 2))
    for share in accuracies:
        # One prediction for all classes: exactly one of them is right.
        torch.testing.assert_close(share, torch.full_like(share, 0.1))
    for precision in precisions:  # each of the ten has another rank
        wanted = sum(1 / rank for rank in range(1, 11)) / 10
        torch.testing.assert_close(precision, torch.full_like(precision, wanted))


def test_splits_are_orders_of_all_classes_that_the_seed_draws() -> None:
    state = torch.get_rng_state()
    orders = class_splits(10, 50, seed=4)
    assert (orders.sort(1).values == torch.arange(10)).all()
    assert (orders == class_splits(10, 50, seed=4)).all()
    assert (orders != class_splits(10, 50, seed=5)).any()
    assert len(orders.unique(dim=0)) == 50
    assert (torch.get_rng_state() == state).all()
    first = class_splits(10, 4000, seed=0)[:, :5]
    shares = torch.bincount(first.flatten(), minlength=10) / 4000
    assert (shares - 0.5).abs().max() < 0.04


def test_class_means_equal_a_loop() -> None:
    values, labels = torch.randn(40, 3), torch.arange(40) % 6
    found = class_means(values, labels, 6)
    for label in range(6):
        rows = [values[it].double() for it in range(40) if labels[it] == label]
        torch.testing.assert_close(found[label], sum(rows) / len(rows))


def test_perplexity_counts_the_attributes_in_use() -> None:
    assert attribute_perplexity(torch.eye(5)) == pytest.approx(5)
    assert attribute_perplexity(torch.eye(5)[:1].repeat(7, 1)) == pytest.approx(1)
    mean = [0.5, 0.3, 0.2]
    wanted = math.exp(-sum(it * math.log(it) for it in mean))
    assert attribute_perplexity(torch.tensor([mean])) == pytest.approx(wanted, rel=1e-6)


def test_arguments_that_do_not_fit_are_refused() -> None:
    histograms, means = random_classes(6)
    with pytest.raises(ValueError, match="classes must be at least 4"):
        class_splits(3, 5, seed=0)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        class_splits(6, 0, seed=0)
    with pytest.raises(ValueError, match="of the 6 classes of histograms"):
        transfer_accuracy(histograms, means[:5], class_splits(6, 2, seed=0))
    with pytest.raises(ValueError, match="ridge must be positive, got 0"):
        transfer_accuracy(histograms, means, class_splits(6, 2, seed=0), 0.0)
    with pytest.raises(ValueError, match=r"every class of 0\.\.3"):
        class_means(torch.zeros(3, 2), torch.tensor([0, 1, 3]), 4)


def test_a_full_run_says_which_data_it_wants(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the folder of CIFAR-10 or CIFAR-100 with --data"):
        prediction.run(tmp_path)
    (tmp_path / "images" / "one").mkdir(parents=True)
    with pytest.raises(ConfigError, match="cifar10, cifar100, found folder in"):
        prediction.run(tmp_path, data=tmp_path / "images")


def test_parts_share_their_classes_and_no_image(tmp_path: Path) -> None:
    write_cifar_stand_in(tmp_path, train_per_class=4, test_per_class=2)
    settings = choose_settings(None, True, None)
    parts = open_parts(settings, tmp_path, seed=1)
    assert parts.test is not None
    train, kept = parts.train.indices, parts.validation.indices  # type: ignore[attr-defined]
    assert (len(train), len(kept), len(parts.test.query)) == (180, 20, 100)
    assert not set(train.tolist()) & set(kept.tolist())
    assert len({*train.tolist(), *kept.tolist()}) == 200
    assert (torch.cat([parts.train.labels, parts.validation.labels]).bincount() == 10).all()
    assert (parts.test.query.labels.bincount() == 5).all()
    for part in (parts.train, parts.validation, parts.test.query):
        assert len(part.class_names) == 20
    for seed, same in ((1, True), (2, False)):
        again = open_parts(settings, tmp_path, seed).validation.indices  # type: ignore[attr-defined]
        assert torch.equal(again, kept) is same


def test_cells_differ_in_the_zero_shot_loss_alone() -> None:
    settings = choose_settings(None, True, None)
    without, with_it = (
        cell_config(settings, {"eps": 0.5, "zero_shot": used, "seed": 0}, None)
        for used in (False, True)
    )
    assert without.zero_shot.weight == 0
    assert with_it.zero_shot.weight == 0.1
    assert {**vars(without), "zero_shot": None} == {**vars(with_it), "zero_shot": None}
    assert (with_it.gsp.prototypes, with_it.gsp.mu, with_it.gsp.eps) == (8, 0.3, 0.5)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    folder = tmp_path_factory.mktemp("prediction")
    return folder, prediction.run(folder, quick=True, progress=False)


@pytest.mark.process
def test_quick_run_stores_what_table_and_figures_need(quick: tuple[Path, list[Row]]) -> None:
    folder, rows = quick
    assert [dict(row.cell) for row in rows] == [
        {"eps": 10.0, "zero_shot": False, "seed": 0},
        {"eps": 10.0, "zero_shot": True, "seed": 0},
    ]
    for row in rows:
        assert row.metrics["chance"] == pytest.approx(0.1)
        assert 0 <= row.metrics["accuracy_l2"] <= 1
        assert 1 <= row.metrics["class_perplexity"] <= row.metrics["attribute_perplexity"] <= 8
        arrays = read_arrays(folder, row)
        assert arrays["histograms"].dtype == np.float32
        np.testing.assert_allclose(arrays["histograms"].sum(1), np.ones(20), rtol=1e-5)
        assert arrays["class_names"].shape == (20,)
        assert arrays["images"].shape == (10, 32, 32, 3)
        assert arrays["dominant"].shape == arrays["weights"].shape == (10, 8, 8)
        assert arrays["dominant"].max() < 8
        np.testing.assert_allclose(arrays["weights"].sum((1, 2)), np.ones(10), rtol=1e-4)


@pytest.mark.process
def test_stored_cells_are_not_trained_again(
    quick: tuple[Path, list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = quick

    def never(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(prediction, "run_cell", never)
    assert prediction.run(folder, quick=True, progress=False) == rows
