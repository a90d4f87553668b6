"""Several processes compute what one does with the whole batch."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch import Tensor

from sumpool.evaluation import embed_images, retrieval_metrics
from sumpool.training import CcpConfig, GspConfig, TrainConfig, ZeroShotConfig
from sumpool.training.assemble import build_validation
from training.tiny import CONFIG, Memory, MemoryFeed, trainer

pytestmark = pytest.mark.process

BATCH = {"batch_size": 32, "images_per_class": 8}
#: The batch of 32 in one process, 16 in each of two.
CASES: dict[str, dict[str, Any]] = {
    "c2": {**BATCH, "zero_shot": ZeroShotConfig(weight=0.0)},
    "panchor": {
        "batch_size": 6,
        "images_per_class": 1,
        "loss": "panchor",
        "zero_shot": ZeroShotConfig(weight=0.0),
    },
    "xbm": {
        **BATCH,
        "loss": "xbm-c2",
        "loss_options": {"start_step": 1, "memory_batches": 2},
        "zero_shot": ZeroShotConfig(weight=0.0),
    },
    "spread": {**BATCH, "gsp": GspConfig(4, 0.5, spread=0.8)},
    "spread among images": {**BATCH, "gsp": GspConfig(4, 0.5, spread=0.8, init="image")},
    "zero-shot": {**BATCH, "zero_shot": ZeroShotConfig(weight=0.5)},
    "ccp": {
        **BATCH,
        "normalize": "ball",
        "ccp": CcpConfig(
            enabled=True, proxies=2, candidates=4, beta=0.3, alpha=0.3, solution="last"
        ),
        "zero_shot": ZeroShotConfig(weight=0.1),
    },
}
STEPS = 4


def record(fabric: Fabric) -> dict[str, Any]:
    """Losses, gradients and weights of a few steps of every case, and an evaluation."""
    out: dict[str, Any] = {}
    for case, changes in CASES.items():
        config: TrainConfig = replace(CONFIG, **changes)
        runner = trainer(config, on=fabric)
        batches = runner.task.feed.train_batches(runner.task.sampler)
        runner.model.train()
        runner._prepare()
        losses, gradients = [], []
        for _ in range(STEPS):
            batch = next(batches)
            losses.append(float(runner._step(batch)["loss"]))
            runner.progress.step += 1
            learned = [*runner.model.named_parameters(), *runner.criterion.named_parameters()]
            gradients.append({name: p.grad.clone() for name, p in learned if p.grad is not None})
        out[case] = (
            losses,
            gradients,
            {k: v.clone() for k, v in runner.model.state_dict().items()},
        )
    feed = MemoryFeed(Memory())
    found = embed_images(runner.model, feed, batch_size=5)
    out["evaluation"] = build_validation(feed, None, fabric)(runner.model)
    out["vectors"] = found.vectors
    out["again"] = retrieval_metrics(found.vectors, found.labels)
    return out


def record_to(fabric: Fabric, path: Path) -> None:
    """What :func:`record` gives, in a file: tensors do not outlive the process they are from."""
    torch.set_num_threads(1)
    found = record(fabric)
    if fabric.is_global_zero:
        torch.save(found, path)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    alone = record(Fabric(accelerator="cpu", devices=1))
    path = tmp_path_factory.mktemp("two") / "found.pt"
    with warnings.catch_warnings():
        # torch's own remarks on how its processes are started.
        warnings.simplefilter("ignore")
        Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn").launch(record_to, path)
    return alone, torch.load(path)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_have_the_loss_and_gradients_of_one(
    case: str, both: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    (losses, gradients, weights), (losses2, gradients2, weights2) = both[0][case], both[1][case]
    assert losses == pytest.approx(losses2, rel=1e-5)
    for one, two in zip(gradients, gradients2, strict=True):
        assert one.keys() == two.keys()
        scale = max(float(value.abs().max()) for value in one.values())
        for name in one:
            close(one[name], two[name], atol=1e-5 * scale)
    for name in weights:
        close(weights[name], weights2[name], atol=1e-5)


def test_two_processes_evaluate_as_one(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    alone, together = both
    close(alone["vectors"], together["vectors"], atol=1e-5)
    assert alone["evaluation"] == pytest.approx(together["evaluation"], abs=1e-6)
    assert together["evaluation"] == together["again"]
    assert together["evaluation"]["queries"] == len(Memory())


def close(one: Tensor, other: Tensor, atol: float) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=atol)
