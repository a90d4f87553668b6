"""What a user leaves open is filled in from the published settings; contradictions are refused."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sumpool.models import EmbedderConfig, build_embedder
from sumpool.training import (
    CcpConfig,
    ConfigError,
    GspConfig,
    HardwareConfig,
    OptimizerConfig,
    StopConfig,
    TrainConfig,
    ZeroShotConfig,
    resolve,
)
from sumpool.training.assemble import (
    build_criterion,
    build_model,
    check_devices,
    check_prototypes,
)
from sumpool.training.config import FREE_TO_CHANGE, flat, with_options
from sumpool.training.run import merge
from sumpool.training.settings import check_effects, check_options
from sumpool.training.values.limits import LIMITS, check_limits


def test_the_fair_settings_of_cub() -> None:
    config = resolve(TrainConfig(data="x"), "cub")
    assert (config.gsp.prototypes, config.gsp.mu, config.gsp.eps) == (64, 0.3, 5.0)
    assert config.zero_shot.weight == 0.1
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (1e-5, 1e-4)
    assert (config.optimizer.beta1, config.optimizer.beta2) == (0.9, 0.99)
    assert (config.batch_size, config.images_per_class) == (32, 4)
    assert (config.stop.validate_every, config.stop.patience) == (100, 15)
    assert config.weights == "packaged"


def test_the_fair_settings_of_sop_with_proxies() -> None:
    config = resolve(TrainConfig(data="x", loss="panchor"), "sop")
    assert (config.gsp.prototypes, config.gsp.mu, config.gsp.eps) == (128, 0.3, 0.5)
    assert config.optimizer.lr == 5e-6
    assert (config.optimizer.proxy_lr_multiplier, config.optimizer.warmup_epochs) == (100, 1)
    assert config.images_per_class == 1
    assert (config.stop.validate_every, config.stop.patience) == (1000, 10)


def test_what_is_given_stays() -> None:
    given = TrainConfig(
        data="x",
        gsp=GspConfig(8, 1.0, 20.0),
        zero_shot=ZeroShotConfig(weight=0.0),
        optimizer=OptimizerConfig(lr=1.0, warmup_epochs=0.0),
        stop=StopConfig(7, 2),
        weights="none",
        images_per_class=8,
    )
    resolved = resolve(given, "sop")
    before, after = flat(given), flat(resolved)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"normalize", "optimizer.proxy_lr_multiplier"}


def test_nothing_is_left_open_but_what_means_something() -> None:
    open_still = {
        name for name, value in flat(resolve(TrainConfig("x"), "cub")).items() if value is None
    }
    meaningful = {
        "init",
        "out",
        "fold",
        "cache_dir",
        "resize",
        "crop",
        "augment",
        "train_crop",
        "crop_area",
        "flip",
    }
    assert open_still == meaningful | {
        *("recipe", "minutes"),
        "optimizer.plateau_patience",
        *("optimizer.ema", "optimizer.start_share"),
        "ccp.solution",
        "center.momentum",
        "stop.max_steps",
        "hardware.workers",
        "gsp.spread",
        "gsp.mix",
        "zero_shot.balance",
        "zero_shot.end",
        "center_reg",
        "center.lam",
        "center.subset",
        *(f"ccp.{name}" for name in ("proxies", "candidates", "problems", "beta", "alpha")),
    }


def test_average_pooling_goes_without_the_zero_shot_loss() -> None:
    assert resolve(TrainConfig(data="x", pool="gap"), "cub").zero_shot.weight == 0


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"loss": "c3"}, "loss must be one of c1, c2"),
        ({"pool": "max"}, "pool must be one of gap, gmp"),
        ({"pool": "gap", "zero_shot": ZeroShotConfig(weight=0.1)}, "gap has no attributes"),
        ({"zero_shot": ZeroShotConfig(balance=0.0)}, "balance must be positive, got 0"),
        ({"zero_shot": ZeroShotConfig(0.0, 1.0)}, "balance sets the weight, which is given as 0"),
        (
            {"pool": "gap", "zero_shot": ZeroShotConfig(balance=1.0)},
            "balance needs attributes, which pool gap lacks",
        ),
        (
            {"zero_shot": ZeroShotConfig(balance=1.0), "gsp": GspConfig(average_steps=3)},
            r"leave gsp\.average_steps at 0",
        ),
        ({"gsp": GspConfig(average_steps=-1)}, "average_steps must be at least 0, got -1"),
        ({"pool": "gap", "gsp": GspConfig(average_steps=1)}, "average_steps needs pool gsp"),
        (
            {"pool": "gsp-parts", "gsp": GspConfig(average_steps=1)},
            r"steps needs pool gsp or gmp\+gsp or gemean\+gsp, got gsp-parts",
        ),
        ({"pool": "gap", "gsp": GspConfig(init="image")}, r"gsp\.init needs a pool with GSP, got"),
        ({"pool": "gmp", "gsp": GspConfig(spread=0.3)}, r"gsp\.spread needs a pool with GSP, got"),
        ({"pool": "gap", "gsp": GspConfig(mix=0.3)}, r"gsp\.mix needs a pool with GSP, got gap"),
        ({"gsp": GspConfig(mix=1.5)}, r"gsp\.mix must lie in \[0, 1\], got 1.5"),
        (
            {"gsp": GspConfig(mix=1.0, learn_mix=True)},
            r"gsp\.mix must lie in \(0, 1\) with gsp\.learn_mix, which starts from it, got 1",
        ),
        ({"gsp": GspConfig(share="image", mu=1.0)}, r"gsp\.share image needs gsp\.mu below 1"),
        (
            {"gsp": GspConfig(cost="dot")},  # type: ignore[arg-type]
            r"gsp\.cost must be one of ball, cosine, norm, got 'dot'",
        ),
        (
            {"gsp": GspConfig(share="all")},  # type: ignore[arg-type]
            r"gsp\.share must be one of fixed, image, got 'all'",
        ),
        ({"gsp": GspConfig(spread=1.5)}, r"gsp\.spread must lie in \(0, 1\), got 1.5"),
        ({"gsp": GspConfig(spread=0.3, eps=5.0)}, r"sets gsp\.eps, but gsp\.eps is given as well"),
        ({"gsp": GspConfig(spread=0.3, mu=1.0)}, r"sets gsp\.eps, but gsp\.mu 1 makes"),
        (
            {"gsp": GspConfig(init="global")},  # type: ignore[arg-type]
            r"gsp\.init must be one of local, image, got 'global'",
        ),
        ({"gsp": GspConfig(lr_multiplier=0.0)}, r"gsp\.lr_multiplier must be positive, got 0"),
        ({"fold": 5}, r"fold must lie in 1\.\.4"),
        ({"fold": 0}, r"fold must lie in 1\.\.4"),
        ({"validation": 1.0}, "validation must lie in"),
        ({"batch_size": 30}, "multiple of images_per_class 4"),
        ({"images_per_class": 1}, "images_per_class must be at least 2 with loss c2"),
        ({"batch_size": 4}, "at least two classes per batch"),
        ({"batch_size": 0}, "batch_size must be positive"),
        ({"optimizer": OptimizerConfig(lr=-1.0)}, "lr must be positive"),
        ({"zero_shot": ZeroShotConfig(weight=2.0)}, r"zero_shot.weight must lie in \[0, 1\]"),
        ({"stop": StopConfig(max_steps=0)}, "stop.max_steps must be positive"),
        (
            {"optimizer": OptimizerConfig(schedule="cosine")},
            r"optimizer\.schedule cosine needs stop\.max_steps",
        ),
        ({"stop": StopConfig(keep="last")}, r"stop\.keep last needs stop\.max_steps"),
        (
            {"stop": StopConfig(keep="last", max_steps=9, patience=3)},
            r"stop\.patience is 3, but stop\.keep last trains to stop\.max_steps",
        ),
        (
            {
                "optimizer": OptimizerConfig(schedule="cosine", plateau_patience=3),
                "stop": StopConfig(max_steps=9),
            },
            r"so does optimizer\.plateau_patience",
        ),
        ({"optimizer": OptimizerConfig(ema=1.0)}, r"optimizer\.ema must lie in \(0, 1\), got 1"),
        (
            {"optimizer": OptimizerConfig(schedule="line")},  # type: ignore[arg-type]
            r"optimizer\.schedule must be one of constant, cosine, got 'line'",
        ),
        (
            {"optimizer": OptimizerConfig(ema=0.9), "ccp": CcpConfig(enabled=True)},
            r"optimizer\.ema and ccp exclude",
        ),
        (
            {"optimizer": OptimizerConfig(start_share=0.5), "ccp": CcpConfig(enabled=True)},
            r"optimizer\.start_share and ccp exclude",
        ),
        (
            {
                "optimizer": OptimizerConfig(start_share=0.5),
                "pool": "gsp",
                "gsp": GspConfig(average_steps=5),
            },
            r"optimizer\.start_share and gsp\.average_steps exclude",
        ),
        (
            {"optimizer": OptimizerConfig(start_share=1.0)},
            r"optimizer\.start_share must lie in \[0, 1\), got 1",
        ),
        ({"selection": "test", "test": False}, "which test false leaves closed"),
        ({"crop_area": [0.5, 0.2]}, r"crop_area must be two numbers in \(0, 1\], in order, got"),
        ({"crop_area": [0.5]}, "crop_area must be two numbers"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"folds": 1, "fold": 1}, "folds must be at least 2, got 1"),
        ({"hardware": HardwareConfig(devices=0)}, r"hardware\.devices must be at least 1, got 0"),
        ({"hardware": HardwareConfig(workers=-1)}, r"hardware\.workers must be at least 0, got -1"),
        ({"gsp": GspConfig(mu=-5.0)}, r"gsp\.mu must lie in \(0, 1\], got -5"),
        ({"gsp": GspConfig(eps=0.0)}, r"gsp\.eps must be positive, got 0"),
        ({"zero_shot": ZeroShotConfig(ridge=-1.0)}, r"zero_shot\.ridge must be positive, got -1"),
        ({"zero_shot": ZeroShotConfig(scale=0.0)}, r"zero_shot\.scale must be positive, got 0"),
        (
            {"zero_shot": ZeroShotConfig(begin=10, end=5)},
            r"zero_shot\.begin must be at least 0 and before zero_shot\.end, got 10 and 5",
        ),
        (
            {"optimizer": OptimizerConfig(warmup_epochs=-3.0)},
            r"optimizer\.warmup_epochs must be at least 0, got -3",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        resolve(TrainConfig(data="x", **changes), "cub")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"pool": "gap", "gsp": GspConfig(mu=0.5)}, r"gsp\.… with pool gap"),
        ({"pool": "gap", "zero_shot": ZeroShotConfig(scale=3.0)}, r"zero_shot\.… with pool gap"),
        ({"zero_shot": ZeroShotConfig(0.0, unit=True)}, r"with zero_shot\.weight 0"),
        (
            {"optimizer": OptimizerConfig(plateau_factor=0.1)},
            r"plateau_factor without optimizer\.plateau_patience",
        ),
        (
            {"optimizer": OptimizerConfig(proxy_lr_multiplier=10.0)},
            "proxy_lr_multiplier with loss c2, which has no proxies",
        ),
    ],
)
def test_options_without_effect_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=f"options without effect: .*{what}"):
        check_effects(TrainConfig(data="x", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pool": "gap"},
        {"pool": "gap", "zero_shot": ZeroShotConfig(0.0)},
        {"gsp": GspConfig(mu=0.5), "zero_shot": ZeroShotConfig(0.2, scale=3.0)},
        {"ccp": CcpConfig(enabled=True), "optimizer": OptimizerConfig(proxy_lr_multiplier=10.0)},
    ],
)
def test_options_with_an_effect_are_accepted(changes: dict[str, Any]) -> None:
    check_effects(TrainConfig(data="x", **changes))


@pytest.mark.parametrize("pool", ["gsp", "gmp+gsp", "gemean+gsp", "gsp-parts"])
def test_options_of_gsp_reach_the_pooling(pool: str) -> None:
    gsp = GspConfig(spread=0.3, cost="norm", share="image", mix=0.4, learn_mix=True)
    resolved = resolve(TrainConfig("x", pool=pool, gsp=gsp), "cub")
    assert resolved.gsp.prototypes == (16 if pool == "gsp-parts" else 64)
    pooling: Any = build_model(replace(resolved, backbone="small_cnn", weights="none")).pooling
    layer = getattr(pooling, "gsp", pooling)
    assert (layer.cost, layer.share, layer.spread) == ("norm", "image", 0.3)
    assert layer.mix.item() == pytest.approx(0.4)


def test_options_of_another_type_are_refused_by_the_model() -> None:
    config = TrainConfig(loss="c2", backbone="small_cnn", weights="none", pool="netvlad")
    config = replace(config, pool_options={"clusters": 2.5})
    with pytest.raises(ConfigError, match=r"clusters must be an integer of at least 1, got 2.5"):
        build_model(resolve(config, "cub"))


def test_a_spread_leaves_eps_open() -> None:
    resolved = resolve(TrainConfig("x", gsp=GspConfig(spread=0.3)), "cub")
    assert (resolved.gsp.eps, resolved.gsp.spread) == (None, 0.3)
    config = replace(resolved, backbone="small_cnn", weights="none")
    assert build_model(config).config.pooling_options["spread"] == 0.3


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"crop_area": [0.2, 1.0]}, "crop_area is for augment crop, but .* are none"),
        ({"train_crop": 16}, "train_crop must be None or crop, .* with augment 'none', got 16"),
        (
            {"backbone": "vit_tiny_patch16_224", "augment": "crop", "train_crop": 96},
            "does not take images of 96×96 pixels, set crop, or train_crop, to a size it takes",
        ),
        ({"freeze_batch_norm_affine": True}, "freeze_batch_norm_affine needs freeze_batch_norm"),
        ({"map_init": "glorot", "pool": "t-smk"}, "map_init glorot needs a single linear map"),
        (
            {"map_init": "zero"},
            r"map_init must be one of \('torch', 'glorot', 'orthogonal', 'principal'\), got 'zero'",
        ),
        (
            {"pool_defaults": "authors"},
            "pool_defaults authors is for the poolings cbam, otp, solar",
        ),
        ({"backbone_options": {"stride": 1}}, "options of the backbone 'small_cnn' must be among"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused(changes: dict[str, Any], complaint: str) -> None:
    config = TrainConfig("x", **{"backbone": "small_cnn", "weights": "none", **changes})
    with pytest.raises(ConfigError, match=complaint):
        build_model(resolve(config, "cub"))


def test_the_zero_shot_loss_is_that_of_the_authors_unless_set() -> None:
    for pool, given, expected in (
        ("gsp", ZeroShotConfig(), "mean"),
        ("gsp", ZeroShotConfig(reduction="sum"), "sum"),
        ("gsp", ZeroShotConfig(weight=0.0), None),
        ("gap", ZeroShotConfig(), None),
    ):
        config = TrainConfig("x", pool=pool, zero_shot=given)
        assert resolve(config, "cub").zero_shot.reduction == expected
    criterion: Any = build_criterion(resolve(TrainConfig("x", pool="gsp"), "cub"), 5, "cub")
    assert (criterion.zero_shot.reduction, criterion.zero_shot.scale) == ("mean", 9.5)


def test_runs_without_the_zero_shot_loss_may_have_stored_its_former_default() -> None:
    check_effects(TrainConfig("x", pool="gap", zero_shot=ZeroShotConfig(reduction="sum")))
    with pytest.raises(ConfigError, match=r"without effect: zero_shot\.… with pool gap"):
        check_effects(TrainConfig("x", pool="gap", zero_shot=ZeroShotConfig(reduction="mean")))


def test_options_of_the_model_are_passed_on() -> None:
    config = TrainConfig(
        "x",
        backbone="small_cnn",
        weights="none",
        augment="crop",
        crop_area=[0.2, 1.0],
        train_crop=24,
        map_init="glorot",
        zero_shot=ZeroShotConfig(0.1, reduction="sum"),
    )
    model = build_model(resolve(config, "cub"))
    assert model.preprocessing.area_share == (0.2, 1.0)
    assert model.preprocessing.train_side == 24
    assert model.config.map_init == "glorot"
    criterion: Any = build_criterion(resolve(config, "cub"), 5, "cub")
    assert criterion.zero_shot.reduction == "sum"


def test_the_defaults_of_the_authors_yield_to_options_that_are_given() -> None:
    config = TrainConfig(
        "x",
        backbone="small_cnn",
        weights="none",
        pool="otp",
        pool_defaults="authors",
        pool_options={"iterations": 3},
    )
    model = build_model(resolve(config, "cub"))
    assert model.config.pooling_options == {"eps": 2.0, "iterations": 3}


def test_a_resumed_run_keeps_its_options() -> None:
    stored = resolve(TrainConfig(data="x", seed=3, out="runs/a"), "cub")
    assert merge(TrainConfig(), stored) == stored
    assert merge(TrainConfig(data="x", seed=3), stored) == stored
    with pytest.raises(ConfigError, match=r"seed is 4, but the run was begun with 3"):
        merge(TrainConfig(seed=4), stored)
    with pytest.raises(ConfigError, match=r"gsp.mu is 0.5, but the run was begun with 0.3"):
        merge(TrainConfig(gsp=GspConfig(mu=0.5)), stored)
    with pytest.raises(ConfigError, match=r"seed is 0, but the run was begun with 3"):
        merge(TrainConfig(), stored, ["seed"])
    longer = merge(TrainConfig(stop=StopConfig(max_steps=9), cache="ram"), stored)
    assert (longer.stop.max_steps, longer.cache, longer.seed) == (9, "ram", 3)
    assert "stop.max_steps" in FREE_TO_CHANGE


def test_a_folder_for_the_cache_needs_a_cache() -> None:
    with pytest.raises(ConfigError, match=r"cache_dir needs cache ram or gpu, or freeze_backbone"):
        resolve(TrainConfig(data="x", cache_dir="d"), "cub")
    assert resolve(TrainConfig(data="x", cache_dir="d", cache="ram"), "cub").cache_dir == "d"


def test_a_cosine_schedule_cannot_be_extended() -> None:
    config = TrainConfig(
        data="x", optimizer=OptimizerConfig(schedule="cosine"), stop=StopConfig(max_steps=8)
    )
    stored = resolve(config, "cub")
    with pytest.raises(ConfigError, match=r"stop.max_steps is 9, but the run was begun with 8"):
        merge(TrainConfig(stop=StopConfig(max_steps=9)), stored)


def test_the_last_model_needs_no_patience() -> None:
    config = TrainConfig(data="x", stop=StopConfig(keep="last", max_steps=8))
    assert resolve(config, "cub").stop.patience is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hardware": HardwareConfig(cuda_graph=True, cuda_step=True)}, "exclude each other"),
        ({"hardware": HardwareConfig(cuda_step=True), "loss": "ms"}, "one of c1, c2, pnca; got ms"),
        (
            {"hardware": HardwareConfig(cuda_graph=True), "gsp": GspConfig(average_steps=5)},
            "gsp.average_steps 5 the pooling changes",
        ),
    ],
)
def test_recordings_that_would_go_wrong_are_refused(changes: dict[str, Any], message: str) -> None:
    gpu: Any = SimpleNamespace(device=torch.device("cuda"), world_size=1)
    check_devices(replace(TrainConfig(), hardware=HardwareConfig(cuda_graph=True)), gpu)
    with pytest.raises(ConfigError, match=message):
        check_devices(replace(TrainConfig(), **changes), gpu)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("optimizer.lr", value) for value in (math.nan, math.inf, 1e10, 1e38)),
        *(("optimizer.beta2", value) for value in (1.0, -0.1, math.nan)),
        *(("seed", value) for value in (2**63, 2**64, 10**30)),
        *((name, 10**9) for name in ("embedding_size", "batch_size", "gsp.prototypes", "folds")),
        *((name, 10**12) for name in ("crop", "resize", "images_per_class", "hardware.workers")),
        ("loss_options", {"margin": math.nan}),
        ("validation", math.nan),
        *((name, -1) for name in ("optimizer.plateau_patience", "checkpoint_seconds")),
    ],
)
def test_numbers_beyond_reason_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{option} must (be|lie) .*got"):
        check_options(with_options(TrainConfig(), {option: value}))


def test_every_limit_is_of_an_option_and_takes_its_default() -> None:
    check_limits(flat(TrainConfig()))
    assert {name for *_, names in LIMITS for name in names} <= set(flat(TrainConfig()))


def test_more_prototypes_than_local_features_are_refused_by_name() -> None:
    config = EmbedderConfig("small_cnn", "none", 16, pooling_options={"prototypes": 300})
    model = build_embedder(config)
    check_prototypes(model, TrainConfig(batch_size=32))
    with pytest.raises(ConfigError, match=r"300 prototypes .* lower gsp\.prototypes"):
        check_prototypes(model, TrainConfig(batch_size=1))
