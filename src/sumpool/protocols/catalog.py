"""Protocols by name, with the settings of each, from [gsp], [thesis], [libc] and [skew]."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from sumpool.protocols.protocol import Protocol
from sumpool.training.config import ConfigError, TrainConfig

#: Large data sets, which are validated ten times less often.
LARGE = ("sop", "inshop")
#: Steps of every run of the steady protocols, and their learning rate for losses without proxies,
#: chosen on validation classes (docs/results/photographs-tuning-h200).
STEADY_STEPS, STEADY_RATE = 3000, 3e-5
#: Number of training images per data set, for protocols that count epochs.
TRAIN_IMAGES = {"cub": 5864, "cars196": 8054, "inshop": 25882, "sop": 59551}
#: Classes per batch, images per class and weight decay of intra-batch connections.
LIBC_BATCHES = {
    "cub": (6, 9, 6.06e-6),
    "cars196": (10, 7, 2.55e-9),
    "inshop": (14, 4, 1.06e-7),
    "sop": (15, 6, 2.8e-13),
}
#: Poolings of the conventional protocol, which adds max pooling to the pooling of the method.
HEADS = {"gap": "gap+gmp", "gsp": "gmp+gsp"}


def _fair(config: TrainConfig, data_set: str) -> dict[str, Any]:
    # `resolve` fills in learning rate, images per class, validation interval and patience.
    return {
        "embedding_size": 128,
        "batch_size": 32,
        "optimizer.weight_decay": 1e-4,
        "optimizer.beta1": 0.9,
        "optimizer.beta2": 0.99,
        "optimizer.plateau_patience": None,
    }


def _conventional(config: TrainConfig, data_set: str) -> dict[str, Any]:
    resnet50 = re.fullmatch(r"(.*_)?resnet50(\..*)?", config.backbone) is not None
    return {
        **_fair(config, data_set),
        "embedding_size": 512,
        "batch_size": 112 if resnet50 else 128,
        "images_per_class": 4,
        "optimizer.lr": 1e-5 if data_set in ("cub", "cub-clutter") else 1e-4,
        "optimizer.weight_decay": 4e-4 if resnet50 else 1e-4,
        "optimizer.plateau_patience": 4,
        "stop.validate_every": 250 if data_set in LARGE else 25,
        "stop.patience": 10 if data_set in LARGE else 15,
    }


def _tuning(config: TrainConfig, data_set: str) -> dict[str, Any]:
    settings = _fair(config, data_set)
    if not config.ccp.enabled:
        settings["stop.patience"] = 7 if data_set in LARGE else 10
    return settings


def _tuning_ccp(config: TrainConfig, data_set: str) -> dict[str, Any]:
    return {
        **_fair(config, data_set),
        "stop.validate_every": 250 if data_set in LARGE else 25,
        "stop.patience": 40,
    }


def _steady(config: TrainConfig, data_set: str) -> dict[str, Any]:
    # Imported here because it needs torch.
    from sumpool.losses import LOSSES

    rate = {} if LOSSES[config.loss].proxy else {"optimizer.lr": STEADY_RATE}
    return {
        **_fair(config, data_set),
        **rate,
        "optimizer.schedule": "cosine",
        "optimizer.ema": 0.999,
        "stop.max_steps": STEADY_STEPS,
        "stop.validate_every": 1000,
        "stop.keep": "last",
    }


def _epochs(count: int, data_set: str, batch_size: int) -> dict[str, Any]:
    # `count` epochs with a validation after each; this patience never stops a run early.
    steps = -(-TRAIN_IMAGES[data_set] // batch_size)
    return {"stop.max_steps": count * steps, "stop.validate_every": steps, "stop.patience": count}


def _check_epochs(protocol: str, data_set: str) -> None:
    if data_set not in TRAIN_IMAGES:
        raise ConfigError(
            f"protocol {protocol} counts epochs of {', '.join(TRAIN_IMAGES)}, got data {data_set}: "
            "choose another protocol, such as fair"
        )


def _libc(config: TrainConfig, data_set: str) -> dict[str, Any]:
    # The learning rate is left to the loss.
    _check_epochs("libc", data_set)
    classes, images, decay = LIBC_BATCHES[data_set]
    epochs = _epochs(70, data_set, classes * images)
    return {
        **_fair(config, data_set),
        "embedding_size": 512,
        "batch_size": classes * images,
        "images_per_class": images,
        "erasing": 0.5,
        "optimizer.name": "radam",
        "optimizer.weight_decay": decay,
        "optimizer.beta2": 0.999,
        "optimizer.restarts": [
            30 * epochs["stop.validate_every"],
            50 * epochs["stop.validate_every"],
        ],
        **epochs,
    }


def _skewed_means(config: TrainConfig, data_set: str) -> dict[str, Any]:
    from sumpool.losses import LOSSES

    # The paper gives neither batch size nor weight decay: both are those of the fair protocol.
    # Batches are random, except for pair losses on thousands of classes, where a random batch
    # hardly ever holds a pair.
    _check_epochs("skewed-means", data_set)
    fair, large = _fair(config, data_set), data_set in LARGE
    pairs = not LOSSES[config.loss].proxy
    return {
        **fair,
        "embedding_size": 512,
        "crop": 224,
        "optimizer.name": "adamw",
        "optimizer.lr": 6e-4 if large else 1e-4,
        **({} if large and pairs else {"images_per_class": 0}),
        **_epochs(60 if large else 40, data_set, fair["batch_size"]),
    }


#: Models of four folds, whose validation classes select the best step.
_folds = partial(Protocol, folds=4, models_folds=(1, 2, 3, 4), selection="validation")
#: One model, evaluated on its validation classes.
_tuned = partial(
    Protocol,
    models_folds=(1,),
    seeds=3,
    selection="validation",
    evaluated_on="validation",
    summary="mean",
)
#: Models trained on all training classes and selected on the test set by P@1.
_on_test = partial(
    Protocol,
    folds=None,
    models_folds=(),
    seeds=3,
    selection="test",
    evaluated_on="test",
    monitor="precision_at_1",
)
_ALL = (
    _folds(
        "fair",
        "Four models, each trained on three quarters of the training classes and selected on the "
        "last one, with three seeds; evaluated one by one and with concatenated embeddings.",
        seeds=3,
        evaluated_on="test",
        summary="combinations",
        prescribe=_fair,
    ),
    _on_test(
        "conventional",
        "One model of 512 dimensions, trained on all training classes and selected on the test "
        "set by P@1; the best of three seeds.",
        summary="best",
        prescribe=_conventional,
        heads=HEADS,
    ),
    _tuned(
        "tuning",
        "One model, trained on four fifths of the training classes and evaluated on the first "
        "fifth, with three seeds: for choosing constants. The test set is not opened.",
        folds=5,
        prescribe=_tuning,
    ),
    _tuned(
        "tuning-ccp",
        "One model, trained on two thirds of the training classes and evaluated on the first "
        "third, with three seeds: the ablations of chance-constrained proxies.",
        folds=3,
        prescribe=_tuning_ccp,
    ),
    _folds(
        "steady",
        "The fair protocol without selection of the best step: all models train for the same "
        "number of steps with rates that fall to zero, and the last average of the weights is "
        "evaluated.",
        seeds=3,
        evaluated_on="test",
        summary="combinations",
        prescribe=_steady,
    ),
    _folds(
        "steady-tuning",
        "The runs of the steady protocol with one seed, each evaluated on its validation classes: "
        "for choosing constants. The test set is not opened.",
        seeds=1,
        evaluated_on="validation",
        summary="mean",
        prescribe=_steady,
    ),
    _on_test(
        "libc",
        "The setting of intra-batch connections: one model of 512 dimensions, trained on all "
        "training classes for 70 epochs of RAdam and selected on the test set by P@1; the mean of "
        "three seeds.",
        summary="mean",
        prescribe=_libc,
    ),
    _on_test(
        "skewed-means",
        "The setting of the center regularizers: one model of 512 dimensions, trained on all "
        "training classes for 40 epochs of AdamW (60 on SOP and In-shop) and selected on the test "
        "set by P@1; the mean of three seeds.",
        summary="mean",
        prescribe=_skewed_means,
    ),
)

#: The protocols by name.
PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in _ALL}


def get_protocol(name: str) -> Protocol:
    """Return the protocol named ``name``.

    Raises:
        ConfigError: If ``name`` is unknown; lists the choices.

    Example:
        >>> get_protocol("fair").folds
        4
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {name!r}")
    return PROTOCOLS[name]
