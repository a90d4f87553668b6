"""A regularizer of class centers beside a proxy loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sumpool.centers import REGULARIZERS, build_regularizer, center_uniformity
from sumpool.losses import RunningCenters, build_loss
from sumpool.training import CenterConfig, ConfigError, TrainConfig, resolve
from sumpool.training.without_folder import Trained
from training.test_ccp import WITH_CCP
from training.test_loop import assert_equal, stop, weights
from training.tiny import CONFIG, Scripted, trainer

PROXY: dict[str, Any] = {"loss": "panchor", "images_per_class": 1, "batch_size": 4}


def with_centers(name: str | None, **center: Any) -> dict[str, Any]:
    return {**PROXY, "center_reg": name, "center": CenterConfig(**center)}


@pytest.mark.parametrize("name", ["r1", "k-near", "mhe"])
def test_the_loss_has_the_regularizer_with_its_weight(name: str) -> None:
    lam = 2 if name.startswith("k-") else None  # of six classes
    runner = trainer(**with_centers(name, weight=0.7, lam=lam))
    runner.model.train()
    runner._prepare()
    batch = next(iter(runner.task.feed.train_batches(runner.task.sampler)))
    wanted = build_regularizer(name, lam=lam, seed=0)(runner.criterion.centers().detach())  # type: ignore[operator]
    terms = runner._step(batch)
    assert terms["center_loss"].item() == pytest.approx(wanted.item(), rel=1e-5)
    assert torch.isclose(terms["loss"], _without(terms) + 0.7 * terms["center_loss"], rtol=1e-5)


def _without(terms: dict[str, torch.Tensor]) -> torch.Tensor:
    # The mixture of base loss and zero-shot loss, whose weight is 0.1.
    return 0.9 * terms["base_loss"] + 0.1 * terms["zero_shot_loss"]


def test_weight_zero_trains_as_without() -> None:
    found = []
    for center in (with_centers(None), with_centers("r1", weight=0.0)):
        runner = trainer(**center)
        runner.fit()
        found.append(weights(runner.model))
    assert_equal(*found)


def test_a_strong_regularizer_spreads_the_centers() -> None:
    found = []
    for center in (with_centers(None), with_centers("r1", weight=10.0)):
        runner = trainer(**center)
        runner.fit()
        centers = runner.criterion.centers().detach()  # type: ignore[operator]
        found.append(center_uniformity(centers).nearest_cosine)
    assert found[1] < found[0]


def test_a_resumed_run_draws_the_same_subsets(tmp_path: Path) -> None:
    changes = with_centers("r2", subset=3)
    whole = trainer(folder=tmp_path / "whole", validate=Scripted([0.1, 0.2, 0.3]), **changes)
    whole.fit()
    parts = tmp_path / "parts"
    short = replace(CONFIG.stop, max_steps=8)
    first = trainer(folder=parts, validate=Scripted([0.1, 0.2]), **{**changes, "stop": short})
    first.fit()
    second = trainer(folder=parts, validate=Scripted([0.3]), **changes)
    second.fit(resume=True)
    assert_equal(weights(whole.criterion), weights(second.criterion))


def test_centers_of_chance_constrained_proxies_are_regularized_too() -> None:
    runner = trainer(**{**WITH_CCP, "center_reg": "r1", "center": CenterConfig(weight=0.5)})
    assert runner.fit().steps == 12


def test_a_number_of_neighbors_must_be_whole() -> None:
    with pytest.raises(ConfigError, match=r"center_reg k-near cannot be built: k must be an int"):
        trainer(**with_centers("k-near", lam=2.5))


@pytest.mark.parametrize("loss", ["ms", "npair", "lifted"])
def test_losses_without_proxies_have_running_means_as_centers(loss: str) -> None:
    runners = [
        trainer(
            loss=loss,
            center_reg="r1",
            center=CenterConfig(weight=weight, momentum=0.5),
            stop=stop(max_steps=4),
        )
        for weight in (0.0, 2.0)
    ]
    for runner in runners:
        runner.fit()
        base = runner.criterion.base
        assert isinstance(base, RunningCenters)
        assert bool(base.seen.all())
    first, second = (weights(runner.model) for runner in runners)
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_a_resumed_run_has_the_same_running_means(tmp_path: Path) -> None:
    changes = {"loss": "ms", "center_reg": "r2", "center": CenterConfig(momentum=0.5)}
    whole = trainer(folder=tmp_path / "whole", validate=Scripted([0.1, 0.2, 0.3]), **changes)
    whole.fit()
    parts, short = tmp_path / "parts", replace(CONFIG.stop, max_steps=8)
    trainer(folder=parts, validate=Scripted([0.1, 0.2]), **{**changes, "stop": short}).fit()
    second = trainer(folder=parts, validate=Scripted([0.3]), **changes)
    second.fit(resume=True)
    assert_equal(weights(whole.criterion), weights(second.criterion))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"center_reg": "r3", "loss": "pnca"}, "center_reg must be one of r1, .*, got 'r3'"),
        (
            {"center_reg": "r1", "loss": "pnca", "center": CenterConfig(momentum=0.5)},
            "center.momentum has no effect: the centers are the proxies of loss pnca",
        ),
        (
            {"center_reg": "r1", "center": CenterConfig(momentum=1.0)},
            r"center.momentum must lie in \[0, 1\), got 1.0",
        ),
        ({"center": CenterConfig(weight=2.0)}, "have no effect without --center-reg"),
        (
            {"center_reg": "r1", "loss": "pnca", "center": CenterConfig(weight=-1.0)},
            "center.weight must be at least 0",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        resolve(TrainConfig(data="x", **changes), "cub")


def test_help_names_all_regularizers() -> None:
    text = TrainConfig.__doc__ or ""
    start = text.index("center_reg:")
    listed = text[start : text.index("center:", start)]
    for name in REGULARIZERS:
        assert f"{name}," in listed or f"{name} " in listed, name


def test_more_pairs_than_there_are_is_an_error_before_training() -> None:
    with pytest.raises(ConfigError, match="center_reg k-near cannot be built: k must be at most"):
        trainer(**with_centers("k-near", lam=9))


@pytest.mark.parametrize(("loss", "has"), [("ms", False), ("margin", False), ("panchor", True)])
def test_a_result_has_the_centers_that_the_loss_learns(loss: str, has: bool) -> None:
    criterion: Any = RunningCenters(build_loss(loss, num_classes=3, embedding_size=4), 3, 4)
    nothing: Any = None
    config = TrainConfig(loss=loss)
    found = Trained(nothing, criterion, {}, nothing, nothing, config, [], [], []).centers
    assert (found is not None) == has
