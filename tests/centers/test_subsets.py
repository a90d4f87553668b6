"""Subsets of classes: what is drawn, what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from centers.naive_centers import random_centers
from sumpool.centers import REGULARIZERS, HypersphericalEnergy, build_regularizer
from sumpool.centers.regularizer import MOST_CENTERS
from sumpool.centers.subset import random_subset

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "centers.py"


def draws(count: int, size: int, times: int, seed: int = 0) -> torch.Tensor:
    return torch.stack([random_subset(count, size, seed, torch.tensor(t)) for t in range(times)])


def test_a_subset_has_no_repetition_and_depends_on_seed_and_draw_alone() -> None:
    subset = random_subset(1000, 300, 5, torch.tensor(7))
    assert subset.dtype == torch.int64
    assert subset.unique().tolist() == subset.tolist()
    assert 0 <= int(subset.min()) < int(subset.max()) < 1000
    assert torch.equal(subset, random_subset(1000, 300, 5, torch.tensor(7)))
    assert not torch.equal(subset, random_subset(1000, 300, 5, torch.tensor(8)))
    assert not torch.equal(subset, random_subset(1000, 300, 6, torch.tensor(7)))


def test_every_class_and_every_pair_is_drawn_as_often() -> None:
    found = draws(12, 4, 3000)
    drawn = torch.zeros(3000, 12).scatter(1, found, 1.0)
    together = drawn.T @ drawn / 3000
    single = together.diagonal()
    double = together[~torch.eye(12, dtype=torch.bool)]
    # Standard errors 0.009 and 0.005; the bounds are four of them.
    assert (single - 4 / 12).abs().max() < 0.035
    assert (double - 4 * 3 / (12 * 11)).abs().max() < 0.022
    # One draw says nothing about the next.
    after = drawn[:-1].T @ drawn[1:] / 2999
    assert (after - 1 / 9).abs().max() < 0.022


@pytest.mark.parametrize("name", REGULARIZERS)
def test_a_subset_stands_for_its_own_centers(name: str) -> None:
    centers = random_centers(30, 2, 4)
    regularizer = build_regularizer(name, subset=12, seed=3)
    drawn = random_subset(30, 12, 3, torch.tensor(0))
    value, alone = regularizer(centers), build_regularizer(name)(centers[drawn])
    if name.startswith("r1"):  # the sum in it is that over all centers
        sign = -1 if name.endswith("far") else 1
        gamma = REGULARIZERS[name].lam
        assert gamma is not None
        alone = alone + sign * torch.tensor(29 / 11).log() / gamma
    assert torch.allclose(value, alone.to(value))


def test_the_sum_of_energies_is_scaled_to_all_pairs() -> None:
    centers = random_centers(30, 4)
    values = [HypersphericalEnergy(1.0, reduction="sum", subset=20, seed=s) for s in range(300)]
    mean = torch.stack([it(centers) for it in values]).mean()
    assert torch.allclose(mean, HypersphericalEnergy(1.0, reduction="sum")(centers), rtol=0.01)


def test_a_gradient_goes_to_the_drawn_centers_alone() -> None:
    centers = random_centers(40, 4).requires_grad_()
    build_regularizer("r1", subset=6, seed=1)(centers).backward()
    assert centers.grad is not None
    moved = centers.grad.abs().sum(-1).nonzero().flatten()
    assert torch.equal(moved, random_subset(40, 6, 1, torch.tensor(0)))


def test_a_resumed_regularizer_draws_what_comes_next() -> None:
    centers = random_centers(50, 4)
    first = build_regularizer("r2", subset=8, seed=4)
    values = [first(centers) for _ in range(3)]
    assert len({float(it) for it in values}) == 3
    state = first.state_dict()
    second = build_regularizer("r2", subset=8, seed=4)
    second.load_state_dict(state)
    again = build_regularizer("r2", subset=8, seed=4)
    assert torch.equal(first(centers), second(centers))
    assert [float(again(centers)) for _ in range(3)] == [float(it) for it in values]


def test_the_global_random_state_stays() -> None:
    before = torch.get_rng_state()
    build_regularizer("r2", subset=8)(random_centers(50, 4))
    assert torch.equal(before, torch.get_rng_state())


def test_no_draw_where_all_classes_are_taken() -> None:
    centers = random_centers(10, 4)
    regularizer = build_regularizer("r2", subset=10)
    assert torch.equal(regularizer(centers), build_regularizer("r2")(centers))
    assert int(regularizer.draws) == 0


def test_many_centers_are_drawn_from_unasked() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(MOST_CENTERS // 4 + 1, 4, 3, generator=generator).requires_grad_()
    regularizer = build_regularizer("uniformface")
    regularizer(centers).backward()
    assert int(regularizer.draws) == 1
    assert centers.grad is not None
    assert int((centers.grad.abs().sum((1, 2)) > 0).sum()) == MOST_CENTERS // 4


@pytest.mark.process
@pytest.mark.parametrize("name", ["r1", "r2-far", "mhe"])
def test_a_step_with_690000_centers_takes_little_memory(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--step", name],
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout)
    assert measured["centers"] == 690_000
    assert measured["gradient_finite"]
    assert measured["additional_bytes"] < 2e9
