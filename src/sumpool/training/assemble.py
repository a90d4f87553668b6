"""Construction of a run's parts from its configuration."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import nn

from sumpool.ccp import ProxyPairs
from sumpool.centers import build_regularizer
from sumpool.data import ImageFeed, contiguous_labels
from sumpool.evaluation import evaluate_retrieval
from sumpool.evaluation.evaluate import measurable_ks
from sumpool.losses import Mixture, RunningCenters, ZeroShotLoss, build_loss
from sumpool.models import Embedder, EmbedderConfig, build_embedder
from sumpool.models.layout import find_layout
from sumpool.models.timm_networks import with_sizes
from sumpool.pooling import pooling_class
from sumpool.pooling.catalog import AUTHORS_OPTIONS
from sumpool.system.modes import evaluating
from sumpool.system.wording import counted
from sumpool.training.batches import build_sampler
from sumpool.training.config import ConfigError, TrainConfig
from sumpool.training.options import GspConfig
from sumpool.training.task import Task, Validate
from sumpool.training.values.combinations import has_running_centers
from sumpool.training.values.gsp import GSP_OPTIONS

#: Losses with which a whole step can be recorded as a CUDA graph.
RECORDABLE = ("c1", "c2", "pnca")


def build_fabric(config: TrainConfig) -> Fabric:
    """Build the Fabric with the devices, processes and precision of ``config``, not launched.

    Raises:
        ConfigError: If a requested device is not available.
    """
    hardware = config.hardware
    if hardware.accelerator == "cuda" and torch.cuda.device_count() < hardware.devices:
        raise ConfigError(
            f"hardware.accelerator cuda needs hardware.devices = {hardware.devices} CUDA devices, "
            f"but there are {torch.cuda.device_count()}"
        )
    several = hardware.devices * hardware.nodes > 1
    return Fabric(
        accelerator=hardware.accelerator,
        devices=hardware.devices,
        num_nodes=hardware.nodes,
        strategy="ddp" if several else "auto",
        precision=hardware.precision,
    )


def check_devices(config: TrainConfig, fabric: Fabric) -> None:
    """Refuse options that the available devices do not support.

    Raises:
        ConfigError: If there is one; names it.
    """
    hardware, steps = config.hardware, config.gsp.average_steps
    kind, processes = fabric.device.type, fabric.world_size
    one_gpu = f"needs one CUDA device, got {processes} of type {kind}"
    not_one_gpu = kind != "cuda" or processes > 1
    for wrong, why in (
        (hardware.cuda_graph and not_one_gpu, f"hardware.cuda_graph {one_gpu}"),
        (hardware.cuda_step and not_one_gpu, f"hardware.cuda_step {one_gpu}"),
        (
            hardware.cuda_graph and hardware.cuda_step,
            "hardware.cuda_graph and hardware.cuda_step exclude each other",
        ),
        (
            hardware.cuda_step and config.loss not in RECORDABLE,
            "hardware.cuda_step needs a loss that does not wait for the device, one of "
            f"{', '.join(RECORDABLE)}; got {config.loss}",
        ),
        (
            hardware.cuda_graph and steps,
            f"hardware.cuda_graph records one pass, but with gsp.average_steps {steps} the pooling "
            "changes on the way: take hardware.cuda_step",
        ),
        (config.cache == "gpu" and kind != "cuda", f"cache gpu needs a CUDA device, got {kind}"),
        (
            config.batch_size % processes,
            f"batch_size {config.batch_size} must be a multiple of the {processes} processes",
        ),
    ):
        if wrong:
            raise ConfigError(why)


def check_batch_norm(model: nn.Module, fabric: Fabric) -> None:
    """Refuse batch normalization that would see only a part of the batch.

    Raises:
        ConfigError: If a layer is not frozen and there are several processes.
    """
    live = any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training
        for module in model.train().modules()
    )
    if live and fabric.world_size > 1:
        raise ConfigError(
            "freeze_batch_norm must be true, and the weights pretrained, with several devices: "
            "statistics of a part of the batch are not those of the batch"
        )


def check_prototypes(model: Embedder, config: TrainConfig) -> None:
    """Refuse more prototypes than the first batch has local features to choose from.

    Raises:
        ConfigError: If there are more prototypes than local features.
    """
    pooling: Any = model.pooling
    if not hasattr(pooling, "initialize_prototypes") or config.gsp.average_steps:
        return
    side = model.preprocessing.train_side
    with evaluating(model), torch.no_grad():
        features = model.feature_map(torch.zeros(1, 3, side, side))
    count, there = len(pooling.prototypes), pooling.to_tokens(features)[0].shape[1]
    if count > there * config.batch_size:
        raise ConfigError(
            f"{counted(count, 'prototype')} are more than the {there * config.batch_size:,} local "
            f"features of a batch of {counted(config.batch_size, 'image')}: lower gsp.prototypes, "
            "or raise batch_size or crop"
        )


def build_model(config: TrainConfig, source: Embedder | None = None) -> Embedder:
    """Build the embedder of a resolved ``config``, without weights if it starts from ``source``.

    Raises:
        ConfigError: If a part does not exist, or parts do not fit together.
    """
    assert config.weights is not None
    gsp = config.gsp
    options: dict[str, Any] = dict(config.pool_options)
    if config.pool_defaults == "authors":
        if config.pool not in AUTHORS_OPTIONS:
            raise ConfigError(
                f"pool_defaults authors is for the poolings {', '.join(AUTHORS_OPTIONS)}, got "
                f"{config.pool}"
            )
        options = {**AUTHORS_OPTIONS[config.pool], **options}
    if pooling_class(config.pool).has_attributes:
        both = sorted({"prototypes", "mu", "eps", "spread", *GSP_OPTIONS} & options.keys())
        if both:
            raise ConfigError(f"pool_options must leave {both} to the options gsp.{both[0]} …")
        options |= {"prototypes": gsp.prototypes, "mu": gsp.mu}
        options |= {"eps": gsp.eps} if gsp.spread is None else {"spread": gsp.spread}
        defaults = GspConfig()
        for name in GSP_OPTIONS:
            if getattr(gsp, name) != getattr(defaults, name):
                options[name] = getattr(gsp, name)
    try:
        described = EmbedderConfig(
            backbone=config.backbone,
            weights=config.weights,
            embedding_size=config.embedding_size,
            pooling=config.pool,
            pooling_options=options,
            normalize=config.normalize or "l2",
            map_init=config.map_init,
            freeze_batch_norm=config.freeze_batch_norm,
            freeze_batch_norm_affine=config.freeze_batch_norm_affine,
            backbone_options=config.backbone_options,
            resize=config.resize,
            crop=config.crop,
        )
        weights = None if source is None else "none"
        model = build_embedder(described, seed=config.seed, weights=weights)
        view = model.preprocessing
        if source is not None:
            view = with_sizes(source.preprocessing, config.resize, config.crop)
        model.preprocessing = replace(
            view,
            augment=view.augment if config.augment is None else config.augment,
            flip=view.flip if config.flip is None else config.flip,
            area_share=config.crop_area,  # type: ignore[arg-type]  # made a tuple there
            train_crop=config.train_crop,
        )
        if config.train_crop is not None:
            # Raises if the backbone does not accept images of this size.
            find_layout(model.backbone, config.backbone, config.train_crop)
        if config.crop_area is not None and model.preprocessing.augment != "crop":
            raise ConfigError(
                "crop_area is for augment crop, but views in training are "
                f"{model.preprocessing.augment}"
            )
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error
    return model


def build_criterion(config: TrainConfig, num_classes: int, data_set: str) -> nn.Module:
    """Build the loss of a resolved ``config``, mixed with the zero-shot loss if it has weight."""
    base: nn.Module
    try:
        base = build_loss(
            config.loss,
            dataset=data_set,
            num_classes=num_classes,
            embedding_size=config.embedding_size,
            batch_size=config.batch_size,
            seed=config.seed,
            normalize=config.normalize != "ball",
            **config.loss_options,
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"loss {config.loss} cannot be built: {error}") from error
    if has_running_centers(config):
        base = RunningCenters(
            base,
            num_classes,
            config.embedding_size,
            0.9 if config.center.momentum is None else config.center.momentum,
            config.seed,
        )
    if config.ccp.enabled:
        assert config.ccp.proxies is not None
        base = ProxyPairs(
            base,
            num_classes,
            config.embedding_size,
            config.ccp.proxies,
            batch_weight=config.ccp.batch_weight,
        )
    weight = config.zero_shot.weight
    if not weight:
        return base
    zero_shot = ZeroShotLoss(
        num_classes,
        config.embedding_size,
        ridge=config.zero_shot.ridge,
        scale=config.zero_shot.scale,
        seed=config.seed,
        unit=config.zero_shot.unit,
        standardize=config.zero_shot.standardize,
        halves=config.zero_shot.halves,
        reduction=config.zero_shot.reduction or "mean",
    )
    return Mixture(base, zero_shot, weight)


def build_task(
    config: TrainConfig,
    model: Embedder,
    feed: ImageFeed,
    validate: Validate,
    fabric: Fabric,
    *,
    data_set: str,
) -> Task:
    """Build loss, batches and labels for training ``model`` on the images of ``feed``.

    ``data_set`` selects the column of the loss catalog.

    Raises:
        DataError: If a class has a single image and the loss compares images of a class.
        ConfigError: If there are fewer classes than a batch needs.
    """
    dataset = feed.dataset
    _, classes = contiguous_labels(dataset.labels)
    sampler = build_sampler(config, dataset, len(classes), fabric)
    # Labels of other classes stay −1, which no loss accepts.
    class_of = torch.full((int(classes.max()) + 1,), -1, dtype=torch.int64)
    class_of[classes] = torch.arange(len(classes))
    criterion = build_criterion(config, len(classes), data_set)
    regularizer = _build_regularizer(config, criterion)
    return Task(model, criterion, feed, sampler, class_of, validate, regularizer)


def _build_regularizer(config: TrainConfig, criterion: Any) -> nn.Module | None:
    if config.center_reg is None:
        return None
    center = config.center
    try:
        regularizer = build_regularizer(config.center_reg, center.lam, center.subset, config.seed)
        # Fails before training if it does not fit the number of classes. A copy is called, since
        # a call advances the random draws.
        copy.deepcopy(regularizer)(criterion.centers().detach())
        return regularizer
    except (TypeError, ValueError) as error:
        raise ConfigError(f"center_reg {config.center_reg} cannot be built: {error}") from error


def build_validation(feed: ImageFeed, gallery: ImageFeed | None, fabric: Fabric) -> Validate:
    """Return a function that computes the retrieval metrics of a model.

    It searches for the images of ``feed`` among those of ``gallery``, or among themselves.

    Raises:
        DataError: If no image has another one of its class to find.
    """
    measurable_ks(feed.dataset, None if gallery is None else gallery.dataset)

    def validate(model: nn.Module) -> dict[str, float]:
        return evaluate_retrieval(model, feed, gallery, device=fabric.device).metrics

    return validate
