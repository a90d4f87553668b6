"""Which images make up a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sumpool.data import ClassBatchSampler, DataError
from sumpool.training import CcpConfig, ConfigError, ZeroShotConfig
from sumpool.training.batches import build_sampler
from training.tiny import CLASSES, CONFIG, PER_CLASS, Memory, fabric, trainer

IMAGES = CLASSES * PER_CLASS


def sampler_of(**options: object) -> ClassBatchSampler:
    config = replace(CONFIG, **options)  # type: ignore[arg-type]
    return build_sampler(config, Memory(), CLASSES, fabric())


def test_batches_have_the_images_per_class_asked_for() -> None:
    labels = Memory().labels
    for step in range(20):
        counts = labels[sampler_of().batch(step)].unique(return_counts=True)[1]
        assert counts.tolist() == [2] * 4


def test_random_batches_show_every_image_once_before_any_comes_again() -> None:
    sampler = sampler_of(images_per_class=0, batch_size=12)
    for start in (0, 4, 400):
        shown = [index for step in range(start, start + 4) for index in sampler.batch(step)]
        assert sorted(shown) == list(range(IMAGES))


def test_random_batches_hold_images_of_any_class() -> None:
    sampler = sampler_of(images_per_class=0, zero_shot=ZeroShotConfig(weight=0.0))
    labels = Memory().labels
    classes = [labels[sampler.batch(step)].unique().numel() for step in range(2000)]
    # Hypergeometric: the share of a batch's images that miss a class.
    missed = torch.arange(IMAGES - PER_CLASS, IMAGES - PER_CLASS - 8, -1).double()
    expected = CLASSES * (1 - float((missed / torch.arange(IMAGES, IMAGES - 8, -1)).prod()))
    assert sum(classes) / len(classes) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("loss", ["c2", "pnca"])
def test_a_run_learns_from_random_batches(loss: str) -> None:
    runner = trainer(images_per_class=0, loss=loss, batch_size=12)
    before = [it.clone() for it in runner.task.model.parameters()]
    runner.fit()
    assert any(
        not torch.equal(a, b) for a, b in zip(before, runner.task.model.parameters(), strict=True)
    )


def test_random_batches_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"48 images are left to learn from, .* --batch-size 48"):
        sampler_of(images_per_class=0, batch_size=49)
    with pytest.raises(ConfigError, match=r"loss c2 .* 2 random images of 6 classes holds 0\.1 "):
        sampler_of(images_per_class=0, batch_size=2)
    few = {"images_per_class": 0, "batch_size": 2, "loss": "pnca"}
    with pytest.raises(ConfigError, match=r"zero-shot loss .* 2 random images of 6 classes may be"):
        sampler_of(**few)
    assert sampler_of(**few, zero_shot=ZeroShotConfig(weight=0.0)).batch_size == 2


def test_random_views_of_a_pool_need_two_images_of_every_class() -> None:
    config = replace(CONFIG, images_per_class=1, batch_size=4)
    single = Memory(per_class=1)
    for views in ("central", "random"):
        config = replace(config, ccp=CcpConfig(enabled=True, views=views))
        if views == "central":
            build_sampler(config, single, CLASSES, fabric())
        else:
            with pytest.raises(DataError, match="at least 2 are needed"):
                build_sampler(config, single, CLASSES, fabric())
