"""The cells and the configurations of each protocol are those of the papers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from sumpool.cli.bench_options import GRIDS
from sumpool.protocols import PROTOCOLS, Member, get_protocol
from sumpool.training import (
    CcpConfig,
    ConfigError,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    resolve,
)
from sumpool.training.config import flat, with_options

FAIR, CONVENTIONAL = PROTOCOLS["fair"], PROTOCOLS["conventional"]


def settings(name: str, data_set: str, member: Member | None = None, **options: Any) -> Any:
    """The configured options, by dotted name."""
    protocol = PROTOCOLS[name]
    config = TrainConfig(data="x", **options)
    return flat(protocol.configure(config, member or protocol.members()[0], data_set))


def test_every_protocol_is_a_command() -> None:
    assert list(GRIDS) == list(PROTOCOLS)


def test_the_cells_of_each_protocol() -> None:
    grid = [(fold, seed) for fold in (1, 2, 3, 4) for seed in (0, 1, 2)]
    assert [(it.fold, it.seed) for it in FAIR.members()] == grid
    assert CONVENTIONAL.members() == [Member(None, seed) for seed in range(3)]
    for name, folds in (("tuning", 5), ("tuning-ccp", 3)):
        assert PROTOCOLS[name].members() == [Member(1, seed) for seed in range(3)]
        assert PROTOCOLS[name].folds == folds
    assert PROTOCOLS["steady"].members() == FAIR.members()
    assert PROTOCOLS["steady-tuning"].members() == [Member(fold, 0) for fold in (1, 2, 3, 4)]
    assert len(FAIR.members(seeds=2)) == 8
    with pytest.raises(ConfigError, match="seeds must be at least 1, got 0"):
        FAIR.members(seeds=0)
    with pytest.raises(ConfigError, match="protocol must be one of fair, conventional, tuning"):
        get_protocol("unfair")


@pytest.mark.parametrize(
    ("data_set", "every", "patience"),
    [("cub", 100, 15), ("cars196", 100, 15), ("sop", 1000, 10), ("inshop", 1000, 10)],
)
def test_the_fair_settings(data_set: str, every: int, patience: int) -> None:
    found = settings("fair", data_set, Member(3, 1), pool="gap")
    assert {
        "fold": 3,
        "folds": 4,
        "seed": 1,
        "selection": "validation",
        "embedding_size": 128,
        "pool": "gap",
        "batch_size": 32,
        "images_per_class": 4,
        "optimizer.lr": 1e-5,
        "optimizer.weight_decay": 1e-4,
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.99,
        "optimizer.plateau_patience": None,
        "stop.validate_every": every,
        "stop.patience": patience,
        "stop.monitor": "mean_average_precision_at_r",
    }.items() <= found.items()


@pytest.mark.parametrize("loss", ["panchor", "pnca", "softtriple"])
def test_proxy_losses_have_one_image_of_a_class_and_a_warm_up(loss: str) -> None:
    found = settings("fair", "sop", loss=loss)
    assert (found["batch_size"], found["images_per_class"]) == (32, 1)
    assert found["optimizer.proxy_lr_multiplier"] == 100
    assert found["optimizer.warmup_epochs"] == 1
    assert found["optimizer.lr"] == (5e-6 if loss == "panchor" else 1e-5)


@pytest.mark.parametrize(("data_set", "every"), [("cub", 25), ("cars196", 25), ("sop", 250)])
def test_chance_constrained_proxies_are_validated_more_often(data_set: str, every: int) -> None:
    found = settings("fair", data_set, ccp=CcpConfig(True), pool="gap")
    assert (found["stop.validate_every"], found["stop.patience"]) == (every, 60)
    # In one place, which runs outside of protocols follow too.
    assert (
        resolve(TrainConfig(data="x", ccp=CcpConfig(True)), data_set).stop.validate_every == every
    )


@pytest.mark.parametrize(
    ("data_set", "lr", "every", "patience", "backbone", "batch", "decay"),
    [
        ("cub", 1e-5, 25, 15, "bn_inception", 128, 1e-4),
        ("cars196", 1e-4, 25, 15, "resnet50", 112, 4e-4),
        ("sop", 1e-4, 250, 10, "resnet50.tv_in1k", 112, 4e-4),
        ("inshop", 1e-4, 250, 10, "seresnet50", 128, 1e-4),
    ],
)
@pytest.mark.parametrize("ccp", [False, True])
def test_the_conventional_settings(
    data_set: str,
    lr: float,
    every: int,
    patience: int,
    backbone: str,
    batch: int,
    decay: float,
    ccp: bool,
) -> None:
    found = settings(
        "conventional",
        data_set,
        backbone=backbone,
        pool="gap",
        ccp=CcpConfig(ccp),
        weights="none",
    )
    assert {
        "selection": "test",
        "fold": None,
        "seed": 0,
        "embedding_size": 512,
        "pool": "gap+gmp",
        "batch_size": batch,
        "images_per_class": 4,
        "optimizer.lr": lr,
        "optimizer.weight_decay": decay,
        "optimizer.plateau_patience": 4,
        "stop.validate_every": every,
        "stop.patience": patience,
        "stop.monitor": "precision_at_1",
    }.items() <= found.items()


@pytest.mark.parametrize(
    ("pool", "head"),
    [("gap", "gap+gmp"), ("gsp", "gmp+gsp"), ("gmp", "gmp"), ("gemean", "gemean")],
)
def test_maxima_join_what_the_method_pools(pool: str, head: str) -> None:
    found = settings("conventional", "cub", pool=pool)
    assert found["pool"] == head
    assert (found["zero_shot.weight"] > 0) == (pool == "gsp")
    assert settings("fair", "cub", pool=pool)["pool"] == pool


@pytest.mark.parametrize(
    ("name", "data_set", "ccp", "folds", "every", "patience"),
    [
        ("tuning", "cub", False, 5, 100, 10),
        ("tuning", "sop", False, 5, 1000, 7),
        ("tuning-ccp", "cub", True, 3, 25, 40),
        ("tuning-ccp", "cub", False, 3, 25, 40),
        ("tuning-ccp", "inshop", True, 3, 250, 40),
    ],
)
def test_the_tuning_settings(
    name: str, data_set: str, ccp: bool, folds: int, every: int, patience: int
) -> None:
    found = settings(name, data_set, ccp=CcpConfig(ccp), pool="gap")
    assert (found["fold"], found["folds"], found["embedding_size"]) == (1, folds, 128)
    assert (found["stop.validate_every"], found["stop.patience"]) == (every, patience)
    assert PROTOCOLS[name].evaluated_on == "validation"


def test_the_test_set_is_read_only_where_scores_are_of_it() -> None:
    for protocol in PROTOCOLS.values():
        member = protocol.members()[0]
        config = protocol.configure(TrainConfig(), member, "cub")
        assert config.test == (protocol.evaluated_on == "test"), protocol.name


@pytest.mark.parametrize("name", ["steady", "steady-tuning"])
def test_the_steady_settings(name: str) -> None:
    found = settings(name, "cub", pool="gap")
    assert {
        "optimizer.lr": 3e-5,
        "optimizer.schedule": "cosine",
        "optimizer.ema": 0.999,
        "stop.keep": "last",
        "stop.max_steps": 3000,
        "stop.validate_every": 1000,
        "stop.patience": None,
        "selection": "validation",
        "test": name == "steady",
    }.items() <= found.items()
    protocol, longer = PROTOCOLS[name], StopConfig(max_steps=9000)
    config = protocol.configure(TrainConfig(data="x", stop=longer), Member(1, 0), "cub")
    assert protocol.departures(config, "cub") == {"stop.max_steps": (9000, 3000)}
    assert settings(name, "cub", pool="gap", loss="pnca")["optimizer.lr"] == 1e-5
    given = settings(name, "cub", pool="gap", optimizer=OptimizerConfig(lr=1e-4))
    assert given["optimizer.lr"] == 1e-4


@pytest.mark.parametrize(
    ("data_set", "batch", "per_class", "rate", "decay", "epoch"),
    [
        ("cub", 54, 9, 1.564e-4, 6.06e-6, 109),
        ("cars196", 70, 7, 3.668e-4, 2.55e-9, 116),
        ("sop", 90, 6, 2.472e-4, 2.8e-13, 662),
        ("inshop", 56, 4, 1.127e-4, 1.06e-7, 463),
    ],
)
def test_the_settings_of_intra_batch_connections(
    data_set: str, batch: int, per_class: int, rate: float, decay: float, epoch: int
) -> None:
    found = settings("libc", data_set, pool="gmp", loss="libc")
    assert {
        "embedding_size": 512,
        "batch_size": batch,
        "images_per_class": per_class,
        "erasing": 0.5,
        "optimizer.name": "radam",
        "optimizer.lr": rate,
        "optimizer.weight_decay": decay,
        "optimizer.beta2": 0.999,
        "optimizer.restarts": [30 * epoch, 50 * epoch],
        "optimizer.restart_factor": 0.1,
        "stop.validate_every": epoch,
        "stop.max_steps": 70 * epoch,
        "stop.monitor": "precision_at_1",
        "selection": "test",
        "pool": "gmp",
    }.items() <= found.items()
    assert PROTOCOLS["libc"].note == "selected on the test set"


@pytest.mark.parametrize(
    ("data_set", "rate", "epochs", "epoch"), [("cub", 1e-4, 40, 184), ("sop", 6e-4, 60, 1861)]
)
def test_the_settings_of_skewed_means(data_set: str, rate: float, epochs: int, epoch: int) -> None:
    found = settings("skewed-means", data_set, pool="gap", loss="panchor", center_reg="r1")
    assert {
        "embedding_size": 512,
        "crop": 224,
        "optimizer.name": "adamw",
        "optimizer.lr": rate,
        "optimizer.proxy_lr_multiplier": 100.0,
        "images_per_class": 0,
        "stop.max_steps": epochs * epoch,
        "selection": "test",
    }.items() <= found.items()
    pairs = settings("skewed-means", data_set, pool="gap", loss="ms")
    assert pairs["images_per_class"] == (0 if data_set == "cub" else 4)
    for size in (32, 1024):
        assert settings("skewed-means", data_set, pool="gap", embedding_size=size)


@pytest.mark.parametrize(("name", "loss"), [("libc", "libc"), ("skewed-means", "panchor")])
def test_epochs_are_counted_in_images_that_are_known(name: str, loss: str) -> None:
    with pytest.raises(ConfigError, match=f"protocol {name} counts epochs of cub, .* data folder"):
        settings(name, "folder", pool="gap", loss=loss)


@pytest.mark.parametrize(
    ("name", "loss", "option", "value", "printed"),
    [("libc", "libc", "erasing", 0.1, 0.5), ("skewed-means", "panchor", "crop", 288, 224)],
)
def test_another_view_is_a_departure(
    name: str, loss: str, option: str, value: float, printed: float
) -> None:
    protocol, asked = PROTOCOLS[name], TrainConfig(data="x", pool="gap", loss=loss)
    config = protocol.configure(with_options(asked, {option: value}), Member(None, 0), "cub")
    assert protocol.departures(config, "cub") == {option: (value, printed)}


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("fair", {"selection": "test"}, "selection is 'test', but the fair protocol"),
        ("fair", {"fold": 2}, "fold is 2, but the fair protocol trains fold 1, seed 0 with 1"),
        ("fair", {"folds": 5}, "folds is 5, but the fair protocol"),
        ("fair", {"seed": 7}, "seed is 7, but the fair protocol"),
        ("fair", {"validation": 0.1}, "validation is 0.1, but the fair protocol"),
        (
            "fair",
            {"stop": StopConfig(monitor="precision_at_1")},
            "stop.monitor is 'precision_at_1'",
        ),
        ("conventional", {"fold": 1}, "fold is 1, but the conventional protocol"),
        ("fair", {"loss": "pnca", "images_per_class": 4}, "images_per_class is 4 .* loss pnca"),
        ("conventional", {"loss": "pnca"}, "images_per_class is 4 .* loss pnca"),
        ("fair", {"loss": "c3"}, "loss must be one of"),
        ("fair", {"loss": "c2", "images_per_class": 1}, "images_per_class must be at least 2"),
        ("fair", {"ccp": CcpConfig(proxies=2)}, "no effect without --ccp"),
    ],
)
def test_contradictions_are_refused_by_name(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        settings(name, "cub", **options)


def test_members_and_data_sets_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"fold must be one of 1, 2, 3, 4 .* got 5"):
        settings("fair", "cub", Member(5, 0))
    with pytest.raises(ConfigError, match=r"fold must be one of None .* got 1"):
        settings("conventional", "cub", Member(1, 0))
    with pytest.raises(ConfigError, match=r"data_set must be one of cub, .* got 'birds'"):
        settings("fair", "birds")
    with pytest.raises(ConfigError, match="seed must be at least 0, got -1"):
        settings("fair", "cub", Member(1, -1))


def test_settings_that_were_asked_for_stay_and_are_listed() -> None:
    asked = TrainConfig(
        data="x",
        batch_size=64,
        optimizer=OptimizerConfig(lr=1e-3),
        stop=StopConfig(validate_every=7, max_steps=9),
    )
    config = CONVENTIONAL.configure(asked, Member(None, 1), "cub")
    assert (config.batch_size, config.optimizer.lr, config.stop.validate_every) == (64, 1e-3, 7)
    assert CONVENTIONAL.departures(config, "cub") == {
        "batch_size": (64, 128),
        "optimizer.lr": (1e-3, 1e-5),
        "stop.validate_every": (7, 25),
        "stop.max_steps": (9, None),
    }
    plain = CONVENTIONAL.configure(TrainConfig(data="x"), Member(None, 1), "cub")
    assert CONVENTIONAL.departures(plain, "cub") == {}


def test_a_default_that_was_asked_for_stays_too() -> None:
    config = TrainConfig(data="x", embedding_size=128)
    member = Member(None, 0)
    assert CONVENTIONAL.configure(config, member, "cub").embedding_size == 512
    kept = CONVENTIONAL.configure(config, member, "cub", given=["embedding_size"])
    assert kept.embedding_size == 128
    with pytest.raises(ConfigError, match="seed is 0, but the fair protocol trains"):
        FAIR.configure(config, Member(1, 2), "cub", given=["seed"])
    with pytest.raises(ConfigError, match="given must name options, got size"):
        FAIR.configure(config, Member(1, 2), "cub", given=["size"])


def test_what_was_configured_is_not_changed_by_doing_it_again() -> None:
    for protocol in PROTOCOLS.values():
        member = protocol.members()[-1]
        once = protocol.configure(TrainConfig(data="x"), member, "sop")
        assert protocol.configure(once, member, "sop") == once
        assert resolve(once, "sop") == once


@pytest.mark.process
def test_protocols_are_listed_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from sumpool.protocols import PROTOCOLS\n"
        "print(len(PROTOCOLS['fair'].members()))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "12\n"
