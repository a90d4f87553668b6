"""Intra-batch connections in a run: a head that only training has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.losses import IntraBatchLoss
from sumpool.training import ConfigError, OptimizerConfig, StopConfig, TrainConfig, resolve
from training.test_loop import stop
from training.tiny import Scripted, trainer

LIBC: dict[str, Any] = {"loss": "libc", "loss_options": {"heads": 2}}


def head_of(criterion: Any) -> IntraBatchLoss:
    head = getattr(criterion, "base", criterion).loss
    assert isinstance(head, IntraBatchLoss)
    return head


def test_the_graph_is_used_in_training_alone_and_is_no_part_of_the_model() -> None:
    passes: list[str] = []

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            before = len(passes)
            (batch,) = runner.task.feed.test_batches(batch_size=1000)
            vectors = model.eval()(batch.images)
            torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(vectors)))
            assert len(passes) == before
            return super().__call__(model)

    runner = trainer(**LIBC, validate=Watch([0.1]), stop=stop(max_steps=4))
    head = head_of(runner.criterion)
    head.graph[0].register_forward_hook(lambda *_: passes.append("graph"))
    outcome = runner.fit()
    assert len(passes) == outcome.steps == 4
    assert list(runner.model.state_dict()) == list(trainer().model.state_dict())
    kept = {id(it) for it in runner.model.parameters()}
    assert not any(id(it) in kept for it in head.parameters())


def test_the_loss_sees_embeddings_before_normalization_and_everything_learns() -> None:
    runner = trainer(**LIBC, stop=stop(max_steps=2))
    head, seen = head_of(runner.criterion), []
    head.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    before = {name: it.clone() for name, it in head.named_parameters()}
    runner.fit()
    assert not torch.allclose(seen[0].norm(dim=1), torch.ones(len(seen[0])), atol=0.01)
    for name, value in head.named_parameters():
        assert torch.equal(value, before[name]) == (name == "neck.bias"), name


@pytest.mark.parametrize(
    ("name", "kind"), [("adamw", torch.optim.AdamW), ("radam", torch.optim.RAdam)]
)
def test_the_optimizer_is_the_one_named(name: Any, kind: type) -> None:
    options = OptimizerConfig(0.01, proxy_lr_multiplier=1.0, warmup_epochs=0.0, name=name)
    runner = trainer(**LIBC, optimizer=options, stop=stop(max_steps=4))
    assert type(runner.optimizer.optimizer) is kind
    moved: dict[str, Tensor] = {name: it.clone() for name, it in runner.model.state_dict().items()}
    runner.fit()
    assert any(not torch.equal(moved[name], it) for name, it in runner.model.state_dict().items())


def test_a_restart_goes_back_to_the_best_model_with_other_rates() -> None:
    seen: list[dict[str, Tensor]] = []

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            seen.append({name: it.clone() for name, it in model.state_dict().items()})
            return super().__call__(model)

    options = OptimizerConfig(
        0.01, proxy_lr_multiplier=1.0, warmup_epochs=0.0, restarts=[8], restart_factor=0.25
    )
    runner = trainer(validate=Watch([0.2, 0.1, 0.3]), optimizer=options)
    begun, step = {}, runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        state = {name: it.clone() for name, it in runner.model.state_dict().items()}
        begun[runner.progress.step] = state, runner.optimizer.param_groups[0]["lr"]
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    # Validated after 4, 8 and 12 steps: step 8 begins with the weights of the first validation.
    assert [begun[it][1] for it in (7, 8, 11)] == [0.01, 0.0025, 0.0025]
    assert all(torch.equal(seen[0][name], it) for name, it in begun[8][0].items())
    assert any(not torch.equal(seen[1][name], it) for name, it in begun[8][0].items())


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        (OptimizerConfig(restarts=[0]), r"restarts must be steps of at least 1, got \[0\]"),
        (OptimizerConfig(restart_factor=0.5), "no effect without optimizer.restarts"),
        (OptimizerConfig(restarts=[5], schedule="cosine"), "leave it out with optimizer.schedule"),
        (OptimizerConfig(restarts=[5], restart_factor=2.0), "restart_factor must lie in"),
    ],
)
def test_restarts_that_cannot_be_are_refused(optimizer: OptimizerConfig, complaint: str) -> None:
    config = TrainConfig(data="x", optimizer=optimizer, stop=StopConfig(max_steps=9))
    with pytest.raises(ConfigError, match=complaint):
        resolve(config, "cub")
