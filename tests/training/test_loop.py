"""The loop: what it keeps, when it stops, and that it resumes bit for bit."""

from __future__ import annotations

import math
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.models import EmbedderConfig, build_embedder
from sumpool.models.head import ORTHOGONAL_GAIN, single_map
from sumpool.pooling import MaximumSumPool2d
from sumpool.training import (
    GspConfig,
    OptimizerConfig,
    RunError,
    StopConfig,
    Trainer,
    ZeroShotConfig,
)
from sumpool.training.assemble import build_task
from sumpool.training.gradient_balance import GradientNorms, measure_gradient_norms
from sumpool.training.optimization import follow_cosine, parameter_groups
from sumpool.transport import lipschitz_normalize, spread_of
from training import tiny
from training.tiny import CONFIG, Memory, MemoryFeed, Scripted, constant, fabric, trainer


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def stop(**values: Any) -> StopConfig:
    return replace(CONFIG.stop, **values)


@pytest.mark.process
def test_training_lowers_the_loss(tmp_path: Path) -> None:
    runner = trainer(folder=tmp_path, stop=stop(max_steps=100, validate_every=50))
    runner.fit()
    lines = (tmp_path / "log.csv").read_text().splitlines()
    column = lines[0].split(",").index("loss")
    losses = [float(line.split(",")[column]) for line in lines[1:]]
    assert losses[-1] < losses[0]


def test_the_best_weights_are_restored() -> None:
    seen: list[dict[str, Tensor]] = []

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            seen.append(weights(model))
            return super().__call__(model)

    runner = trainer(validate=Watch([0.1, 0.9, 0.3]))
    outcome = runner.fit()
    assert (outcome.steps, outcome.best_step, outcome.stopped) == (12, 8, "max_steps")
    assert_equal(weights(runner.model), seen[1])


def test_patience_counts_validations_without_gain() -> None:
    script = Scripted([0.1, 0.3, 0.3, 0.2, 0.25, 0.9])
    outcome = trainer(validate=script, stop=stop(patience=3, max_steps=None)).fit()
    assert (outcome.stopped, outcome.steps, outcome.best_step) == ("patience", 20, 8)
    assert script.calls == 5


def test_the_metric_that_decides_can_be_chosen() -> None:
    script = Scripted([0.1, 0.3, 0.2])  # P@1 is one less these
    outcome = trainer(validate=script, stop=stop(monitor="precision_at_1")).fit()
    assert outcome.best_step == 4


def test_the_last_step_is_validated_wherever_it_falls() -> None:
    script = Scripted([0.1, 0.2, 0.3])
    outcome = trainer(validate=script, stop=stop(max_steps=10)).fit()
    assert (outcome.steps, outcome.best_step) == (10, 10)


def test_rates_fall_on_a_plateau() -> None:
    optimizer = replace(CONFIG.optimizer, plateau_patience=1, plateau_factor=0.5)
    runner = trainer(optimizer=optimizer, stop=stop(max_steps=24))
    runner.fit()
    # The first of 6 validations is the best; after two more without gain the rates fall, and again.
    rates = [group["lr"] for group in runner.optimizer.param_groups]
    assert rates == pytest.approx([0.01 / 4] * len(rates))


def test_rates_follow_a_cosine_to_zero_at_the_last_step() -> None:
    optimizer = OptimizerConfig(0.01, proxy_lr_multiplier=10.0, schedule="cosine")
    runner = trainer(optimizer=optimizer, loss="pnca")
    rates: dict[int, list[float]] = {}
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        rates[runner.progress.step] = [group["lr"] for group in runner.optimizer.param_groups]
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    full = rates[0]
    assert sorted({*full}) == pytest.approx([0.01, 0.1])
    for now, found in rates.items():
        factor = (1 + math.cos(math.pi * now / 12)) / 2
        assert found == pytest.approx([factor * rate for rate in full])


def test_a_rate_on_the_device_follows_the_cosine_in_place() -> None:
    rate = torch.tensor(0.02)
    optimizer = torch.optim.Adam([{"params": [nn.Parameter(torch.ones(1))], "lr": rate}])
    optimizer.param_groups[0]["initial_lr"] = 0.02
    follow_cosine(optimizer, 5, 10)
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.01)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_average_of_the_weights_is_evaluated_and_kept(keep: Any) -> None:
    optimizer = OptimizerConfig(0.01, proxy_lr_multiplier=1.0, ema=0.5)
    stopping = stop(keep=keep, patience=None if keep == "last" else 100)
    raw: list[dict[str, Tensor]] = []
    evaluated: dict[int, dict[str, Tensor]] = {}

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            evaluated[runner.progress.step] = weights(model)
            return super().__call__(model)

    runner = trainer(validate=Watch([0.1, 0.9, 0.3]), optimizer=optimizer, stop=stopping)
    add = runner._add

    def watched(terms: dict[str, Tensor]) -> None:
        raw.append(weights(runner.model))
        add(terms)

    runner._add = watched  # type: ignore[method-assign]
    outcome = runner.fit()
    kept = 12 if keep == "last" else 8
    assert (outcome.steps, outcome.best_step) == (12, kept)
    assert_equal(weights(runner.model), evaluated[8] if keep == "best" else evaluated[12])
    for step, found in evaluated.items():
        for name, value in found.items():
            if not value.is_floating_point():
                continue
            wanted = raw[0][name]
            for past, weight in enumerate((it[name] for it in raw[1:step]), 1):
                decay = min(0.5, past / (past + 9))
                wanted = decay * wanted + (1 - decay) * weight
            torch.testing.assert_close(value, wanted, msg=name)


@pytest.mark.parametrize("ema", [None, 0.5])
def test_the_kept_model_has_its_share_of_the_start(ema: float | None) -> None:
    rates: dict[str, Any] = {"lr": 0.01, "proxy_lr_multiplier": 1.0, "ema": ema}
    last = stop(keep="last", patience=None)
    evaluated: list[dict[str, Tensor]] = []

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            evaluated.append(weights(model))
            return super().__call__(model)

    whole = trainer(optimizer=OptimizerConfig(**rates), stop=last)
    mixed = trainer(
        validate=Watch([0.1, 0.9, 0.3]),
        optimizer=OptimizerConfig(**rates, start_share=0.25),
        stop=last,
    )
    prepare, start = mixed._prepare, {}

    def watched() -> None:
        prepare()
        start.update(weights(mixed.model))

    mixed._prepare = watched  # type: ignore[method-assign]
    whole.fit()
    mixed.fit()
    found, wanted = weights(mixed.model), weights(whole.model)
    assert_equal(found, evaluated[-1])
    assert not torch.equal(start["map.weight"], wanted["map.weight"])
    for name, value in found.items():
        expected = 0.75 * wanted[name] + 0.25 * start[name]
        torch.testing.assert_close(value, expected.to(value.dtype), msg=name)


def test_averaging_does_not_change_what_is_trained() -> None:
    rates = {"lr": 0.01, "proxy_lr_multiplier": 1.0}
    last = stop(keep="last", patience=None)
    plain = trainer(optimizer=OptimizerConfig(**rates), stop=last)
    averaged = trainer(optimizer=OptimizerConfig(**rates, ema=0.9), stop=last)
    average: Any = averaged._average
    average.apply = lambda: None  # the weights that training itself ends with
    with_average, average.applied = average.applied, nullcontext
    plain.fit()
    averaged.fit()
    assert_equal(weights(plain.model), weights(averaged.model))
    del average.apply
    with with_average():
        assert not torch.equal(plain.model.map.weight, averaged.model.map.weight)
    assert_equal(weights(plain.model), weights(averaged.model))


def test_the_last_model_is_kept_whatever_validations_give() -> None:
    seen: list[dict[str, Tensor]] = []

    class Watch(Scripted):
        def __call__(self, model: nn.Module) -> dict[str, float]:
            seen.append(weights(model))
            return super().__call__(model)

    last = stop(keep="last", patience=None, validate_every=1)
    runner = trainer(validate=Watch([0.9, 0.1]), stop=last)
    outcome = runner.fit()
    assert (outcome.stopped, outcome.steps, outcome.best_step) == ("max_steps", 12, 12)
    assert_equal(weights(runner.model), seen[-1])


def test_warm_up_spares_the_backbone_and_nothing_else() -> None:
    optimizer = replace(CONFIG.optimizer, warmup_epochs=1.0)  # 48 images: 6 steps
    runner = trainer(optimizer=optimizer, stop=stop(max_steps=6, validate_every=6), loss="pnca")
    before = weights(runner.model)
    runner.fit()
    after = weights(runner.model)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("backbone")} == same
    runner = trainer(optimizer=optimizer, stop=stop(max_steps=7, validate_every=7), loss="pnca")
    runner.fit()
    assert not torch.equal(
        before["backbone.0.weight"], runner.model.state_dict()["backbone.0.weight"]
    )


def test_proxies_and_the_embedding_learn_at_their_own_rates() -> None:
    optimizer = replace(CONFIG.optimizer, embedding_lr_multiplier=10.0)
    runner = trainer(loss="pnca", images_per_class=1, batch_size=4, optimizer=optimizer)
    rates = {group["name"]: group["lr"] for group in runner.optimizer.param_groups}
    assert rates == pytest.approx(
        {"backbone": 0.01, "embedding": 0.1, "proxies": 1.0, "class_embeddings": 0.01}
    )


def test_the_zero_shot_loss_counts_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    zero_shot = ZeroShotConfig(weight=0.5, begin=4, end=8)
    runner = trainer(folder=tmp_path, zero_shot=zero_shot)
    plain = trainer(zero_shot=ZeroShotConfig(weight=0.0), stop=stop(max_steps=4))
    at_four: list[dict[str, Tensor]] = []
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        if runner.progress.step == 4:
            at_four.append(weights(runner.model))
        terms = step(batch)
        counts = 4 <= runner.progress.step < 8
        share = 0.5 if counts else 0.0
        mixed = (1 - share) * terms["base_loss"] + share * terms["zero_shot_loss"]
        torch.testing.assert_close(terms["loss"], mixed)
        return terms

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    plain.fit()
    assert_equal(at_four[0], weights(plain.model))


def test_a_balanced_zero_shot_loss_has_a_gradient_in_proportion() -> None:
    runner = trainer(zero_shot=ZeroShotConfig(weight=0.5, balance=0.7), stop=stop(max_steps=1))
    found: list[float] = []
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        model: Any = runner.model
        criterion: Any = runner.criterion
        with torch.no_grad():
            features = model.feature_map(batch.images)
        labels = runner._class_of[batch.labels]
        norms = measure_gradient_norms(
            model.pooling, criterion, features, labels, embed=model.embedding
        )
        found.append(norms.ratio(criterion.weight))
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    assert found == pytest.approx([0.7], rel=1e-4)


def test_gradient_norms_are_those_at_the_features() -> None:
    runner = trainer()
    model: Any = runner.model
    criterion: Any = runner.criterion
    batch = next(runner.task.feed.train_batches(runner.task.sampler))
    labels = runner._class_of[batch.labels]
    features = model.feature_map(batch.images).detach().requires_grad_()
    model.pooling.initialize_prototypes(features)
    pooled = model.pooling.pool(features)
    parts = criterion.components(
        nn.functional.normalize(pooled.embedding), labels, pooled.attributes
    )
    wanted = [
        torch.autograd.grad(parts[name], features, retain_graph=True)[0].norm().item()
        for name in ("base_loss", "zero_shot_loss")
    ]
    norms = measure_gradient_norms(
        model.pooling, criterion, features, labels, embed=model.embedding
    )
    assert [norms.base, norms.zero_shot] == pytest.approx(wanted, rel=1e-5)
    assert norms.base_loss == pytest.approx(parts["base_loss"].item())


def test_gradient_norms_are_of_the_vectors_that_the_model_gives() -> None:
    runner = trainer(normalize="ball")
    model: Any = runner.model
    batch = next(runner.task.feed.train_batches(runner.task.sampler))
    features = model.feature_map(batch.images)
    model.pooling.initialize_prototypes(features)
    losses = [
        measure_gradient_norms(
            model.pooling,
            runner.criterion,  # type: ignore[arg-type]
            features,
            runner._class_of[batch.labels],
            embed=lambda it, length=length: length * model.embedding(it),  # type: ignore[misc]
        ).base_loss
        for length in (1.0, 0.5)
    ]
    assert losses[0] != pytest.approx(losses[1])


def test_measuring_gradient_norms_leaves_a_memory_as_it_was() -> None:
    options = {"start_step": 0, "memory_batches": 2}
    runner = trainer(loss="xbm-c2", loss_options=options)
    model: Any = runner.model
    criterion: Any = runner.criterion
    batch = next(runner.task.feed.train_batches(runner.task.sampler))
    features = model.feature_map(batch.images)
    model.pooling.initialize_prototypes(features)
    before = {name: it.clone() for name, it in criterion.state_dict().items()}
    labels = runner._class_of[batch.labels]
    measure_gradient_norms(model.pooling, criterion, features, labels, embed=model.embedding)
    assert_equal(before, criterion.state_dict())


def test_a_base_loss_that_is_flat_cannot_be_balanced() -> None:
    options = {"pos_margin": 10.0, "neg_margin": 0.0}
    runner = trainer(zero_shot=ZeroShotConfig(weight=0.5, balance=0.7), loss_options=options)
    with pytest.raises(RunError, match=r"zero_shot\.balance needs a base loss with a gradient"):
        runner.fit()


def test_a_zero_shot_loss_that_is_flat_cannot_be_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    zero_shot = ZeroShotConfig(weight=0.5, balance=0.7)
    runner = trainer(zero_shot=zero_shot)
    pooling: Any = runner.model.pooling
    pick = pooling.initialize_prototypes

    def pick_one(features: Tensor) -> None:
        pick(features)
        pooling.prototypes.data[:] = pooling.prototypes[0].clone()

    monkeypatch.setattr(pooling, "initialize_prototypes", pick_one)
    with pytest.raises(RunError, match=r"zero_shot\.balance needs a zero-shot loss with a grad"):
        runner.fit()
    # With many classes, its gradient is small but not flat.
    norms = GradientNorms(1.0, 1.0, 0.5, 0.0)
    monkeypatch.setattr("sumpool.training.phases.measure_gradient_norms", lambda *_, **__: norms)
    with pytest.raises(RunError, match=r"do not depend on small changes of the features"):
        trainer(zero_shot=zero_shot).fit()
    norms = norms._replace(zero_shot=2e-6)
    runner = trainer(zero_shot=zero_shot)
    runner.fit()
    criterion: Any = runner.criterion
    assert criterion.weight == norms.weight(0.7)


def test_a_run_that_fails_before_its_first_step_closes_its_logs(tmp_path: Path) -> None:
    options = {"pos_margin": 10.0, "neg_margin": 0.0}  # a flat base loss, as above
    zero_shot = ZeroShotConfig(weight=0.5, balance=0.7)
    runner = trainer(folder=tmp_path, zero_shot=zero_shot, loss_options=options)
    with pytest.raises(RunError):
        runner.fit()
    journal: Any = runner._journal
    assert journal._log._file.closed
    assert journal._validation._file.closed
    assert journal._board.all_writers is None  # TensorBoard's mark of a closed one


def test_the_zero_shot_loss_waits_for_prototypes() -> None:
    gsp = GspConfig(4, 0.5, 5.0, average_steps=5)
    zero_shot = ZeroShotConfig(weight=0.3, begin=2)
    runner = trainer(gsp=gsp, zero_shot=zero_shot, stop=stop(max_steps=8, validate_every=2))
    criterion: Any = runner.criterion
    weighed: list[float] = []
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        weighed.append(criterion.weight)
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    assert weighed == [0.0] * 5 + [0.3] * 3


def test_pooling_is_an_average_until_prototypes_are_picked_among_embeddings() -> None:
    gsp = GspConfig(4, 0.5, 5.0, average_steps=5)
    zero_shot = ZeroShotConfig(weight=0.0)
    runner = trainer(gsp=gsp, zero_shot=zero_shot, stop=stop(max_steps=8, validate_every=2))
    pooling: Any = runner.model.get_submodule("pooling")
    drawn = pooling.prototypes.detach().clone()
    shares: dict[int, Tensor] = {}
    prototypes: dict[int, Tensor] = {}
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        now = runner.progress.step
        prototypes[now] = pooling.prototypes.detach().clone()
        with torch.no_grad():
            shares[now] = runner.model(batch.images, details=True).weights
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    outcome = runner.fit()
    for now in range(5):
        assert torch.equal(prototypes[now], drawn)
        torch.testing.assert_close(shares[now], torch.full_like(shares[now], 1 / 16))
    assert not torch.equal(prototypes[5], drawn)
    assert float(shares[5].std()) > 1e-4
    # What is kept is a model with prototypes.
    assert outcome.best_step == 6
    assert bool(pooling.prototypes_ready)


def test_a_combination_averages_at_first_while_its_map_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        tiny, "GeneralizedSumPool2d", lambda channels, **it: MaximumSumPool2d(channels, 8, **it)
    )
    runner = trainer(gsp=GspConfig(4, 0.5, 5.0, average_steps=5), stop=stop(max_steps=7))
    pooling: Any = runner.model.pooling
    start = {name: it.clone() for name, it in pooling.named_parameters()}
    seen, step = [], runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        same = {name: torch.equal(start[name], it) for name, it in pooling.named_parameters()}
        seen.append((pooling.averaging, same["gsp.prototypes"], same["map.weight"]))
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    assert seen[:5] == [(True, True, True), *[(True, True, False)] * 4]
    assert seen[5:] == [(False, False, False)] * 2


# Every pair of values comes once.
@pytest.mark.parametrize(
    ("init", "average_steps", "learn_eps"),
    [("local", 0, False), ("local", 5, True), ("image", 0, True), ("image", 5, False)],
)
def test_sharpness_is_set_once_for_the_given_spread(
    init: Any, average_steps: int, learn_eps: bool
) -> None:
    gsp = GspConfig(4, 0.5, spread=0.8, init=init, average_steps=average_steps, learn_eps=learn_eps)
    runner = trainer(gsp=gsp, optimizer=OptimizerConfig(1e-5, proxy_lr_multiplier=1.0))
    pooling: Any = runner.model.get_submodule("pooling")
    found: dict[int, tuple[float, float]] = {}
    step = runner._step

    def watched(batch: Any) -> dict[str, Tensor]:
        images = runner.task.feed.images  # type: ignore[attr-defined]
        with torch.no_grad():
            shares = runner.model(images, details=True).weights
        spread = float(spread_of(shares.flatten(1)).mean())
        eps = torch.as_tensor(pooling.eps).detach()
        found[runner.progress.step] = float(eps), spread
        return step(batch)

    runner._step = watched  # type: ignore[method-assign]
    runner.fit()
    for now, (eps, spread) in found.items():
        if now < average_steps:
            assert (eps, spread) == (5.0, pytest.approx(1.0))
        else:
            assert spread == pytest.approx(0.8, abs=0.01)
            assert eps == pytest.approx(found[average_steps][0], rel=1e-3 if learn_eps else 0)
    assert found[11][0] != 5.0
    assert learn_eps == (found[11][0] != found[average_steps][0])


def test_prototypes_start_among_embeddings_of_images() -> None:
    runner = trainer(gsp=GspConfig(4, 0.5, 5.0, init="image"), stop=stop(max_steps=1))
    pooling: Any = runner.model.get_submodule("pooling")
    batches = runner.task.feed.train_batches(runner.task.sampler)
    with torch.no_grad():
        maps = [runner.model.feature_map(next(batches).images) for _ in range(2)]  # type: ignore[operator]
        means = torch.cat(maps).mean((2, 3))
    runner._prepare()
    assert bool(pooling.prototypes_ready)
    distances = torch.cdist(pooling.prototypes.detach(), lipschitz_normalize(means))
    assert float(distances.amin(1).max()) < 1e-5


@pytest.mark.parametrize("pool", ["gap", "gemean", "gsp", "gmp+gsp"])
def test_the_map_starts_at_the_principal_axes_of_what_it_sees(pool: str) -> None:
    options = {"prototypes": 4} if "gsp" in pool else {}
    config = replace(CONFIG, pool=pool, map_init="principal", zero_shot=ZeroShotConfig(weight=0.0))
    described = EmbedderConfig("small_cnn", "none", 8, pool, options, map_init="principal")
    model, feed = build_embedder(described), MemoryFeed(Memory())
    task = build_task(config, model, feed, constant, fabric(), data_set="default")
    runner = Trainer(fabric(), task, config, None, progress=False)
    model.eval()  # batch normalization as it is, in this pass and the one that is checked
    runner._prepare()
    with torch.no_grad():
        batches = [it.images for it in islice(feed.train_batches(task.sampler), 6)]
        maps = torch.cat([model.backbone_map(it) for it in batches])
        seen = model.pooling(maps) if pool == "gemean" else maps.mean((2, 3))
    unit = nn.functional.normalize(seen.double(), dim=-1)
    layer: Any = single_map(model.map, model.pooling)
    rows = layer.weight.detach().double().flatten(1) / ORTHOGONAL_GAIN
    best = torch.linalg.eigvalsh(unit.T @ unit)[-8:].sum()
    torch.testing.assert_close((unit @ rows.T).square().sum(), best, rtol=1e-6, atol=0)


@pytest.mark.parametrize("multiplier", [1.0, 7.0])
def test_prototypes_and_sharpness_learn_at_their_own_rate(multiplier: float) -> None:
    gsp = GspConfig(4, 0.5, 5.0, learn_eps=True, lr_multiplier=multiplier)
    optimizer = OptimizerConfig(0.01, proxy_lr_multiplier=1.0, embedding_lr_multiplier=2.0)
    runner = trainer(gsp=gsp, optimizer=optimizer)
    rates = {id(p): it["lr"] for it in runner.optimizer.param_groups for p in it["params"]}
    pooling: Any = runner.model.get_submodule("pooling")
    for parameter in (pooling.prototypes, pooling.log_eps):
        assert rates[id(parameter)] == pytest.approx(0.02 * multiplier)
    assert rates[id(runner.model.map.weight)] == pytest.approx(0.02)  # type: ignore[union-attr]


def test_queries_and_keys_learn_at_the_rate_of_prototypes() -> None:
    config = EmbedderConfig("small_cnn", "none", 8, "gsp-keys")
    model = build_embedder(config)
    groups = parameter_groups(model, nn.Module(), own_prototypes=True)
    wanted = {"pooling.prototypes", "pooling.query.weight", "pooling.key.weight"}
    own = {id(it) for it in groups.prototypes}
    assert {name for name, it in model.named_parameters() if id(it) in own} == wanted


def test_every_trainable_parameter_is_in_one_group() -> None:
    runner = trainer(loss="softtriple", images_per_class=1, batch_size=4)
    listed = [id(p) for group in runner.optimizer.param_groups for p in group["params"]]
    wanted = [*runner.model.parameters(), *runner.criterion.parameters()]
    assert sorted(listed) == sorted(id(p) for p in wanted if p.requires_grad)


#: Each joins states that do not meet: of the loss, of the zero-shot loss, of pooling and of rates.
CASES = {
    "c2 and zero-shot": {},
    "proxies, a balanced zero-shot loss, average pooling at first": {
        "loss": "panchor",
        "images_per_class": 1,
        "batch_size": 4,
        "zero_shot": ZeroShotConfig(balance=0.7, weight=0.5),
        "gsp": GspConfig(4, 0.5, 5.0, average_steps=5),
    },
    "memory, a zero-shot loss for a while, a given spread, cosine and average": {
        "loss": "xbm-c2",
        "loss_options": {"start_step": 3, "memory_batches": 2},
        "zero_shot": ZeroShotConfig(weight=0.3, begin=3, end=9),
        "gsp": GspConfig(4, 0.5, spread=0.8),
        "optimizer": OptimizerConfig(
            0.01, proxy_lr_multiplier=1.0, schedule="cosine", ema=0.9, start_share=0.25
        ),
    },
    "a given spread among images, then learned; plateau": {
        "gsp": GspConfig(4, 0.5, spread=0.8, init="image", learn_eps=True, lr_multiplier=5.0),
        "optimizer": OptimizerConfig(0.01, proxy_lr_multiplier=1.0, plateau_patience=1),
    },
    "cost, share and mixture that are learned": {
        "gsp": GspConfig(
            *(4, 0.5, 5.0, 3), cost="norm", share="image", learn_mix=True, lr_multiplier=5.0
        )
    },
}


@pytest.mark.parametrize(
    ("case", "at"),
    [
        ("c2 and zero-shot", 4),
        ("proxies, a balanced zero-shot loss, average pooling at first", 5),
        *((case, 7) for case in CASES),
    ],
)
def test_a_resumed_run_ends_as_the_uninterrupted_one(
    tmp_path: Path, case: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [0.1, 0.3, 0.2]
    whole = trainer(
        validate=Scripted(script), folder=tmp_path / "whole", dropout=0.3, **CASES[case]
    )
    torch.manual_seed(0)
    whole.fit()
    parts = tmp_path / "parts"
    first = trainer(validate=Scripted(script), folder=parts, dropout=0.3, **CASES[case])
    step = first._step

    def interrupted(batch: Any) -> dict[str, Tensor]:
        terms = step(batch)
        if first.progress.step == at - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return terms

    monkeypatch.setattr(first, "_step", interrupted)
    torch.manual_seed(0)
    outcome = first.fit()
    assert (outcome.stopped, outcome.signal, outcome.steps) == ("interrupted", "SIGTERM", at)
    torch.manual_seed(77)  # a new process begins with another state
    second = trainer(validate=Scripted(script[at // 4 :]), folder=parts, dropout=0.3, **CASES[case])
    outcome = second.fit(resume=True)
    assert (outcome.stopped, outcome.steps, outcome.best_step) == ("max_steps", 12, 8)
    assert_equal(weights(whole.model), weights(second.model))
    assert_equal(weights(whole.criterion), weights(second.criterion))
    for name in ("log.csv", "validation.csv"):
        assert timeless(tmp_path / "whole" / name) == timeless(parts / name)


def timeless(path: Path) -> list[list[str]]:
    """The lines of a CSV file without times and speeds."""
    lines = [line.split(",") for line in path.read_text().splitlines()]
    dropped = {
        lines[0].index(name) for name in ("seconds", "images_per_second") if name in lines[0]
    }
    return [[cell for place, cell in enumerate(line) if place not in dropped] for line in lines]


def test_resuming_without_a_checkpoint_begins_at_the_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = trainer(folder=tmp_path).fit(resume=True)
    assert outcome.steps == 12
    assert "no checkpoint yet" in caplog.text


def test_a_finished_run_resumes_to_its_end(tmp_path: Path) -> None:
    first = trainer(validate=Scripted([0.1, 0.3, 0.2]), folder=tmp_path)
    first.fit()
    second = trainer(folder=tmp_path)
    outcome = second.fit(resume=True)
    assert (outcome.steps, outcome.best_step) == (12, 8)
    assert_equal(weights(first.model), weights(second.model))


def test_a_run_without_a_folder_keeps_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    trainer(validate=constant).fit()
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_stops_the_run_at_its_step(tmp_path: Path) -> None:
    runner = trainer(folder=tmp_path, stop=stop(max_steps=40), checkpoint_seconds=0.0)
    step = runner._step

    def broken(batch: Any) -> dict[str, Tensor]:
        terms = step(batch)
        return {**terms, "loss": terms["loss"] * float("nan")} if step_is(10) else terms

    def step_is(number: int) -> bool:
        return runner.progress.step + 1 == number

    runner._step = broken  # type: ignore[method-assign]
    with pytest.raises(RunError, match=r"the loss is nan in step 10: lower optimizer\.lr"):
        runner.fit()
    kept = runner.folder.checkpoints.files()  # type: ignore[union-attr]
    assert [path.name for path in kept] == ["step-000000004.ckpt", "step-000000008.ckpt"]


def test_an_embedding_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    optimizer = replace(CONFIG.optimizer, lr=1e30)
    with pytest.raises(RunError, match=r"the loss is nan in step \d+: lower .* no checkpoint"):
        trainer(folder=tmp_path, optimizer=optimizer, stop=stop(max_steps=40)).fit()


@pytest.mark.parametrize("missing", ["model", "progress", "best", "random"])
def test_a_checkpoint_without_a_key_is_refused_by_name(missing: str, tmp_path: Path) -> None:
    first = trainer(folder=tmp_path)
    first.fit()
    assert first.folder is not None
    state = first.folder.checkpoints.load() or {}
    del state[missing]
    first.folder.checkpoints.save(10**6, state)
    with pytest.raises(RunError, match=f"does not fit this run: it lacks '{missing}'"):
        trainer(folder=tmp_path).fit(resume=True)


def test_a_metric_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(RunError, match="at least two images each"):
        trainer(validate=Scripted([float("nan")])).fit()
