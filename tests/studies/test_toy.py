"""The toy study: what each pooling does to a foreground whose share is under-estimated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sumpool.studies.toy import experiment as toy

SETTINGS = toy.ToySettings()
SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_half_of_the_map_is_foreground_and_near_its_prototype(seed: int) -> None:
    features, foreground = toy.feature_map(SETTINGS, seed)
    assert foreground.sum() == 50
    assert features.amin() >= 0
    assert features.amax() <= 1
    near = torch.cdist(features, torch.tensor(toy.PROTOTYPES, dtype=features.dtype)).amin(-1)
    assert near[foreground].max() < 0.3
    assert near[~foreground].min() > 1.0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mu", [0.1, 0.2, 0.37])
def test_hard_weights_ignore_what_the_share_leaves_of_the_foreground(seed: int, mu: float) -> None:
    features, foreground = toy.feature_map(SETTINGS, seed)
    weights = toy.pooling_weights(features, "P1", mu, SETTINGS.eps)
    taken = round(100 * mu)
    torch.testing.assert_close(weights[weights > 0], torch.full((taken,), 1 / taken).double())
    assert toy.coverage(weights, foreground, 0.5)["ignored"] == 50 - taken
    assert (weights[~foreground] == 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_smooth_weights_cover_the_foreground_although_the_share_is_too_small(seed: int) -> None:
    features, foreground = toy.feature_map(SETTINGS, seed)
    weights = toy.pooling_weights(features, "P2", 0.2, SETTINGS.eps)
    measured = toy.coverage(weights, foreground, 0.5)
    assert measured["covered"] == 1
    assert measured["ignored"] == 0
    assert measured["foreground_weight"] > 0.99
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0).double())


@pytest.mark.parametrize("method", ["P1", "P2"])
def test_the_right_share_covers_the_foreground(method: str) -> None:
    features, foreground = toy.feature_map(SETTINGS, 0)
    weights = toy.pooling_weights(features, method, 0.5, SETTINGS.eps)
    assert toy.coverage(weights, foreground, 0.5)["covered"] == 1


def test_average_pooling_is_uniform() -> None:
    features, foreground = toy.feature_map(SETTINGS, 0)
    weights = toy.pooling_weights(features, "GAP", 1.0, SETTINGS.eps)
    assert (weights == 0.01).all()
    assert toy.coverage(weights, foreground, 0.5)["foreground_weight"] == pytest.approx(0.5)


def test_unknown_methods_and_shares_are_refused() -> None:
    features, _ = toy.feature_map(SETTINGS, 0)
    with pytest.raises(ValueError, match="method must be one of GAP, P1, P2, got 'P3'"):
        toy.pooling_weights(features, "P3", 0.2, 5.0)
    with pytest.raises(ValueError, match=r"mu must be 1 for GAP, got 0\.2"):
        toy.pooling_weights(features, "GAP", 0.2, 5.0)
    with pytest.raises(ValueError, match="block must be between 1 and half of side=10, got 6"):
        toy.feature_map(toy.ToySettings(block=6), 0)


def test_stored_cells_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    solve = toy.pooling_weights

    def counted(*args: object) -> torch.Tensor:
        calls.append(args)
        return solve(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(toy, "pooling_weights", counted)
    first = toy.run(tmp_path, seeds=2)
    assert len(calls) == len(first) == 10
    more = toy.run(tmp_path, seeds=3)
    assert len(calls) == 15
    assert more[:10] == first
    toy.run(tmp_path, seeds=1, force=True)
    assert len(calls) == 20
