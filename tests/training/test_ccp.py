"""Training with chance-constrained proxies: problems, pull, resuming."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.ccp import ProxyPairs
from sumpool.training import (
    CcpConfig,
    ConfigError,
    RunError,
    TrainConfig,
    ZeroShotConfig,
    resolve,
)
from sumpool.training.loop import Trainer
from training.test_loop import assert_equal, stop, timeless, weights
from training.tiny import CONFIG, Scripted, trainer

CCP = CcpConfig(
    True, proxies=2, candidates=3, pull=0.05, patience=1, solution="best", beta=0.3, alpha=0.3
)
WITH_CCP: dict[str, Any] = {
    "ccp": CCP,
    "normalize": "ball",
    "zero_shot": ZeroShotConfig(weight=0.0),
    "optimizer": replace(CONFIG.optimizer, proxy_lr_multiplier=1.0),
}


def pairs_of(runner: Trainer) -> ProxyPairs:
    pairs = getattr(runner.criterion, "base", runner.criterion)
    assert isinstance(pairs, ProxyPairs)
    return pairs


@pytest.mark.parametrize("loss", ["c2", "triplet"])
def test_one_problem_without_pull_is_plain_proxy_training(loss: str) -> None:
    single = replace(CCP, pull=0.0, problems=1)
    runner = trainer(
        **{**WITH_CCP, "loss": loss, "ccp": single}, validate=Scripted([0.5, 0.4, 0.3])
    )
    twin = trainer(**{**WITH_CCP, "loss": loss, "ccp": single})
    twin._prepare()
    model, criterion = twin.model, twin.criterion
    optimizer = torch.optim.Adam(
        [*model.parameters(), *criterion.parameters()],
        lr=1e-2,
        betas=(0.9, 0.99),
        weight_decay=1e-4,
    )
    for batch in islice(twin.task.feed.train_batches(twin.task.sampler), 12):
        optimizer.zero_grad()
        embeddings, *_ = twin._pass(batch.images)
        criterion(embeddings, twin._class_of[batch.labels]).backward()
        optimizer.step()
    seen: list[dict[str, Tensor]] = []
    validate = runner.task.validate
    object.__setattr__(
        runner.task,
        "validate",
        lambda it: (seen.append(weights(it)), validate(it))[1],
    )
    runner.fit()
    assert_equal(seen[-1], weights(model))
    assert runner.alternating is not None
    assert [row["problem"] for row in runner.alternating.problems] == [1.0]


def test_a_problem_ends_when_validation_stands_still() -> None:
    # Better, worse | better, worse | … with a patience of 1: two validations a problem.
    script = Scripted([0.1, 0.05, 0.2, 0.2, 0.05, 0.3, 0.1])
    runner = trainer(**WITH_CCP, validate=script, stop=stop(validate_every=2, max_steps=14))
    outcome = runner.fit()
    assert runner.alternating is not None
    rows = runner.alternating.problems
    assert [row["problem"] for row in rows] == [1, 2, 3]
    assert [(row["first_step"], row["last_step"]) for row in rows] == [(0, 4), (4, 8), (8, 14)]
    assert [row["best_step"] for row in rows] == [2, 6, 12]
    assert [row["value"] for row in rows] == [0.1, 0.2, 0.3]
    assert (outcome.stopped, outcome.best_step) == ("max_steps", 12)


@pytest.mark.parametrize(
    ("solution", "begins_at", "pulled_to"), [("best", 1, 1), ("last", 3, 3), ("authors", 3, 1)]
)
def test_a_problem_begins_at_the_solution_of_the_last(
    solution: Any, begins_at: int, pulled_to: int
) -> None:
    seen: list[dict[str, Tensor]] = []

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            seen.append(weights(model))
            return super().__call__(model)

    runner = trainer(
        **{**WITH_CCP, "ccp": replace(CCP, patience=2, solution=solution)},
        validate=Watch([0.1, 0.3, 0.2, 0.1]),
        stop=stop(validate_every=1, max_steps=5),
    )
    begun: list[dict[str, Tensor]] = []
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        begun.append(weights(runner.model))
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    # Validated after steps 1 to 4; the problem ends after the fourth, and the second was the best.
    assert_equal(begun[4], seen[begins_at])
    assert runner.alternating is not None
    anchor = runner.alternating._alternation.pull.anchor
    assert anchor is not None
    for name, parameter in runner.model.named_parameters():
        assert torch.equal(anchor[f"model.{name}"], seen[pulled_to][name]), parameter.shape


def test_the_pull_touches_every_weight_but_the_proxies() -> None:
    gradients: list[dict[str, Tensor]] = []
    for pull in (0.0, 0.5):
        runner = trainer(
            **{**WITH_CCP, "ccp": replace(CCP, pull=pull), "zero_shot": ZeroShotConfig(weight=0.1)}
        )
        runner.model.train()
        runner._prepare()
        batches = runner.task.feed.train_batches(runner.task.sampler)
        runner._step(next(batches))
        assert runner.alternating is not None
        # As if the first problem had ended here, and the weights had moved since.
        runner.alternating._alternation.problem.number = 2
        anchor = {
            name: parameter.detach() - 1.0
            for name, parameter in runner.alternating._alternation.pull._parameters.items()
        }
        runner.alternating._alternation.pull.set_anchor(anchor)
        runner.optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
        runner._step(next(batches))
        found = {f"model.{name}": p.grad for name, p in runner.model.named_parameters()}
        found |= {f"criterion.{name}": p.grad for name, p in runner.criterion.named_parameters()}
        gradients.append({name: it.clone() for name, it in found.items() if it is not None})
    without, pulled = gradients
    assert without.keys() == pulled.keys()
    for name in without:
        expected = 0.0 if name == "criterion.base.proxies" else 0.5
        apart = pulled[name] - without[name]
        assert torch.allclose(apart, torch.full_like(apart, expected), atol=1e-5), name
    assert "criterion.base.proxies" in without
    assert "criterion.zero_shot.embeddings" in without or len(without) > 4


def test_nothing_pulls_in_the_first_problem() -> None:
    histories = []
    for pull in (0.0, 10.0):
        changed = {**WITH_CCP, "ccp": replace(CCP, pull=pull)}
        runner = trainer(**changed, validate=Scripted([0.1, 0.2, 0.3]))
        runner.fit()
        histories.append(weights(runner.model))
    assert_equal(*histories)


def test_proxies_are_drawn_among_embeddings_of_their_class() -> None:
    runner = trainer(**WITH_CCP)
    runner.model.train()
    runner._prepare()
    feed = runner.task.feed
    (batch,) = feed.test_batches(batch_size=1000)
    vectors = runner.model(batch.images).detach()
    classes = runner._class_of[batch.labels]
    for number, own in enumerate(pairs_of(runner).proxies):
        apart = torch.cdist(own, vectors[classes == number]).amin(1)
        assert bool((apart < 1e-5).all())


@pytest.mark.process
@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"loss": "ms"}, 9),
        ({"zero_shot": ZeroShotConfig(weight=0.1)}, 9),
        ({"zero_shot": ZeroShotConfig(weight=0.1)}, 10),  # after a validation
        ({"ccp": replace(CCP, batch_weight=0.1, solution="last"), "loss": "c1"}, 9),
        ({"ccp": replace(CCP, solution="authors", views="random")}, 10),
    ],
    ids=["ms", "zero-shot", "zero-shot, validated", "pairs in the batch, last weights", "authors"],
)
def test_a_run_resumed_in_its_third_problem_ends_as_the_uninterrupted_one(
    tmp_path: Path, changes: dict[str, Any], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [0.1, 0.05, 0.2, 0.15, 0.3, 0.25, 0.4]
    options = {**WITH_CCP, **changes, "stop": stop(validate_every=2, max_steps=14), "dropout": 0.3}
    whole = trainer(validate=Scripted(script), folder=tmp_path / "whole", **options)
    torch.manual_seed(0)
    whole.fit()
    parts = tmp_path / "parts"
    first = trainer(validate=Scripted(script), folder=parts, **options)
    step = first._step

    def interrupted(batch: Any) -> dict[str, Tensor]:
        terms = step(batch)
        if first.progress.step == at - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return terms

    monkeypatch.setattr(first, "_step", interrupted)
    torch.manual_seed(0)
    assert first.fit().stopped == "interrupted"
    assert first.alternating is not None
    assert first.alternating._alternation.problem.number == 3
    torch.manual_seed(77)
    second = trainer(validate=Scripted(script[at // 2 :]), folder=parts, **options)
    second.fit(resume=True)
    assert_equal(weights(whole.model), weights(second.model))
    assert_equal(weights(whole.criterion), weights(second.criterion))
    for name in ("log.csv", "validation.csv", "problems.csv"):
        assert timeless(tmp_path / "whole" / name) == timeless(parts / name)
    assert len((parts / "problems.csv").read_text().splitlines()) == 5


def test_a_lengthened_run_begins_the_problem_that_was_due(tmp_path: Path) -> None:
    script = [0.1, 0.05, 0.2, 0.15, 0.3]
    long = {**WITH_CCP, "stop": stop(validate_every=2, max_steps=10)}
    short = {**WITH_CCP, "stop": stop(validate_every=2, max_steps=4)}
    whole = trainer(validate=Scripted(script), folder=tmp_path / "whole", **long)
    whole.fit()
    parts = tmp_path / "parts"
    trainer(validate=Scripted(script[:2]), folder=parts, **short).fit()
    longer = trainer(validate=Scripted(script[2:]), folder=parts, **long)
    longer.fit(resume=True)
    assert_equal(weights(whole.model), weights(longer.model))
    for name in ("log.csv", "validation.csv", "problems.csv"):
        assert timeless(tmp_path / "whole" / name) == timeless(parts / name)


def test_a_run_resumed_after_its_end_keeps_one_line_per_problem(tmp_path: Path) -> None:
    options = {**WITH_CCP, "stop": stop(validate_every=2, max_steps=6)}
    trainer(validate=Scripted([0.1, 0.05, 0.2]), folder=tmp_path, **options).fit()
    before = timeless(tmp_path / "problems.csv")
    trainer(folder=tmp_path, **options).fit(resume=True)
    assert timeless(tmp_path / "problems.csv") == before


def test_moments_of_proxies_begin_anew_with_a_problem() -> None:
    runner = trainer(
        **WITH_CCP, validate=Scripted([0.1, 0.05]), stop=stop(validate_every=1, max_steps=2)
    )
    kept: list[float] = []
    assert runner.alternating is not None
    turn = runner.alternating.turn

    def watched(step: int) -> None:
        turn(step)
        state = runner.optimizer.optimizer.state[pairs_of(runner).proxies]
        kept.extend(float(value.abs().sum()) for value in state.values())

    runner.alternating.turn = watched  # type: ignore[method-assign]
    object.__setattr__(runner.config.stop, "max_steps", 3)
    runner._pace.limit = 3
    runner.fit()
    assert kept == [0.0] * 3


def test_measured_problems_are_within_their_bounds() -> None:
    runner = trainer(**WITH_CCP, validate=Scripted([0.1, 0.05, 0.2]))
    runner.fit()
    assert runner.alternating is not None
    for row in runner.alternating.problems:
        assert 0 <= row["violation_rate"] <= row["violation_bound"] + 1e-9
        assert 0 <= row["covering_radius"] <= 2
        assert 0 <= row["spread"] <= 2
        assert row["drift"] > 0
        assert 0 < row["norm"] <= 1 + 1e-6
        # Adam moves each of D numbers by about the rate in a step.
        steps = row["best_step"] - row["first_step"]
        bound = (
            float(runner.optimizer.param_groups[0]["lr"])
            * steps
            * runner.config.embedding_size**0.5
        )
        assert 0 < row["travel"] < 1.5 * bound


def test_random_views_bring_as_many_candidates_of_every_class() -> None:
    runner = trainer(**{**WITH_CCP, "ccp": replace(CCP, views="random", candidates=20)})
    assert runner.alternating is not None
    central, _ = trainer(**WITH_CCP).alternating._pool(1)
    vectors, mask = runner.alternating._pool(1)
    again, _ = runner.alternating._pool(1)
    other, _ = runner.alternating._pool(2)
    assert torch.equal(vectors, again)
    assert not torch.equal(vectors, other)
    # Views of these images are the images themselves.
    (batch,) = runner.task.feed.test_batches(batch_size=1000)
    known = runner.model.eval()(batch.images).detach()
    classes = runner._class_of[batch.labels]
    for number, own in enumerate(vectors):
        assert bool((torch.cdist(own, known[classes == number]).amin(1) < 1e-5).all())
    assert mask.shape == vectors.shape[:2] == (len(central), 20)
    assert bool(mask.all())


def test_ccp_has_the_published_settings() -> None:
    cub = resolve(TrainConfig(data="x", ccp=CcpConfig(True)), "cub")
    assert (cub.ccp.proxies, cub.ccp.candidates, cub.ccp.pull) == (8, 12, 2e-4)
    assert (cub.stop.patience, cub.ccp.patience, cub.normalize) == (60, 3, "ball")
    assert (cub.ccp.solution, cub.ccp.views) == ("last", "central")
    assert (cub.optimizer.proxy_lr_multiplier, cub.optimizer.warmup_epochs) == (1.0, 0)
    assert cub.ccp.beta == pytest.approx(0.3841 / 2)
    assert cub.ccp.alpha == pytest.approx(0.3841 / 2)
    sop = resolve(TrainConfig(data="x", ccp=CcpConfig(True), loss="ms"), "sop")
    assert (sop.ccp.proxies, sop.ccp.candidates) == (4, 7)
    assert resolve(TrainConfig(data="x"), "cub").normalize == "l2"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"ccp": CcpConfig(True), "loss": "pnca"},
            "ccp needs a loss out of c1, c2, ms, triplet, got pnca",
        ),
        ({"ccp": replace(CCP, enabled=False)}, "have no effect without --ccp"),
        ({"ccp": CcpConfig(True, candidates=4)}, "ccp.candidates must be at least"),
        ({"ccp": CcpConfig(True, patience=0)}, "ccp.patience must be positive"),
        ({"ccp": CcpConfig(True, pull=-1.0)}, "ccp.pull must be at least 0"),
        (
            {"ccp": CcpConfig(True), "loss": "c2", "loss_options": {"neg_margin": "x"}},
            "neg_margin of c2 must be",
        ),
        (
            {"ccp": CcpConfig(True), "loss": "c2", "loss_options": {"neg_margin": -1.0}},
            "with ccp, neg_margin of c2 must exceed pos_margin",
        ),
        ({"normalize": "ball", "loss": "pnca"}, "normalize must be l2 with loss pnca"),
        (
            {"ccp": CcpConfig(True), "zero_shot": ZeroShotConfig(balance=1.0)},
            "leave it or ccp out",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        resolve(TrainConfig(data="x", **changes), "cub")


def test_runs_without_proxies_that_stored_a_solution_are_read() -> None:
    resolve(TrainConfig(data="x", ccp=CcpConfig(solution="best")), "cub")
    with pytest.raises(ConfigError, match="have no effect without --ccp"):
        resolve(TrainConfig(data="x", ccp=CcpConfig(solution="last")), "cub")


def test_a_loss_that_is_not_finite_keeps_the_problems(tmp_path: Path) -> None:
    runner = trainer(**WITH_CCP, validate=Scripted([0.1, 0.05, 0.2]), folder=tmp_path)
    step = runner._step

    def broken(batch: Any) -> dict[str, Tensor]:
        terms = step(batch)
        return {
            name: it * (float("nan") if runner.progress.step > 9 else 1)
            for name, it in terms.items()
        }

    runner._step = broken  # type: ignore[method-assign]
    with pytest.raises(RunError, match="the loss is nan"):
        runner.fit()
    assert len((tmp_path / "problems.csv").read_text().splitlines()) == 2
