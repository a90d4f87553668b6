"""The configuration is a plain value that refuses what it does not know."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from models.tiny import config
from sumpool.models import EmbedderConfig


def test_the_default_needs_no_network() -> None:
    default = EmbedderConfig()
    assert (default.backbone, default.weights) == ("tf_efficientnet_lite0", "packaged")
    assert (default.embedding_size, default.pooling, default.normalize) == (128, "gsp", "l2")
    assert default.freeze_batch_norm


def test_a_configuration_survives_json() -> None:
    full = config(crop=40, resize=48, normalize="ball", backbone_options={"blocks": 1})
    assert EmbedderConfig.from_dict(json.loads(json.dumps(full.to_dict()))) == full


def test_sizes_may_be_numbers_of_numpy() -> None:
    sizes = {"embedding_size": 8, "resize": 48, "crop": 40}
    numpy = config(**{name: np.int64(size) for name, size in sizes.items()})
    assert numpy == config(**sizes)
    assert json.loads(json.dumps(numpy.to_dict())) == numpy.to_dict()


def test_a_configuration_does_not_change() -> None:
    options = {"mu": 0.5}
    frozen = config(pooling_options=options)
    options["mu"] = 0.1
    assert frozen.pooling_options == {"mu": 0.5}
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.backbone = "resnet18"  # type: ignore[misc]


def test_unknown_keys_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'backbone', .*got \['bakbone'\]"):
        EmbedderConfig.from_dict({"bakbone": "resnet20"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"embedding_size": 0}, "embedding_size must be a whole number from 1 to 65,536, got 0"),
        ({"embedding_size": None}, "embedding_size must be a whole number"),
        ({"embedding_size": True}, "embedding_size must be a whole number"),
        ({"crop": -1}, "crop must be a whole number from 1 to 2,048, got -1"),
        ({"resize": 2.5}, "resize must be a whole number"),
        ({"normalize": "l1"}, r"normalize must be one of \('l2', 'ball'\), got 'l1'"),
        ({"backbone": ""}, "backbone must be a non-empty text"),
        ({"weights": None}, "weights must be a non-empty text, got None"),
        ({"freeze_batch_norm": "yes"}, "freeze_batch_norm must be True or False, got 'yes'"),
        ({"pooling_options": [1]}, r"pooling_options must be a dictionary of options, got \[1\]"),
        ({"pooling_options": {"solver": print}}, "pooling_options must hold plain values only"),
        ({"pooling_options": {"mu": float("nan")}}, "pooling_options must hold plain values only"),
        ({"pooling_options": {"input_fmt": "NHWC"}}, r"leave \['input_fmt'\] to the embedder"),
        ({"backbone_options": {"x": {1, 2}}}, "backbone_options must hold plain values only"),
    ],
)
def test_bad_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**values)


@pytest.mark.parametrize("size", [10**9, 10**12])
@pytest.mark.parametrize("name", ["embedding_size", "resize", "crop"])
def test_sizes_beyond_reason_are_refused_by_name(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .* from 1 to"):
        config(**{name: size})
