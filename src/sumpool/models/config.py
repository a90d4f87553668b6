"""The configuration of an embedder, as a serializable value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sumpool.transport.validation import is_integer

#: Accepted normalizations of embeddings: onto the unit sphere, or into the unit ball.
NORMALIZATIONS = ("l2", "ball")

#: Accepted initializations of the linear map.
MAP_INITS = ("torch", "glorot", "orthogonal", "principal")
#: Largest accepted sizes.
LARGEST = {"embedding_size": 65_536, "resize": 4096, "crop": 2048}
#: Pooling options that the embedder sets itself.
RESERVED_OPTIONS = ("channels", "flatten", "input_fmt", "num_prefix_tokens", "device", "dtype")


@dataclass(frozen=True)
class EmbedderConfig:
    """Configuration of an :class:`Embedder`; all of its values can be written as JSON.

    Attributes:
        backbone: One of :data:`BACKBONES` or a timm model name.
        weights: Source of the backbone's weights: "packaged" (in an installed package, no network
            access needed), "none" (random, from the seed), "timm" (timm's pretrained weights,
            downloaded unless cached), or the path of a safetensors or torch file with the
            backbone's state dict.
        embedding_size: Embedding dimension D, the number of outputs of the linear map.
        pooling: One of :data:`sumpool.pooling.POOLINGS`.
        pooling_options: Options of the pooling, such as ``{"prototypes": 64, "mu": 0.3}``.
        normalize: "l2" for v/‖v‖, or "ball" for v/max(1, ‖v‖), as chance-constrained proxies
            assume [thesis, ch. 3].
        freeze_batch_norm: Keep the pretrained statistics of the backbone's batch normalization;
            scales and shifts are still trained. With weights "none" there are no statistics to
            keep, and the option has no effect.
        freeze_batch_norm_affine: Freeze scales and shifts too; requires frozen statistics.
        map_init: Initialization of the linear map: "torch", uniform in ±1/√C; "glorot", uniform in
            ±√(6/(C + D)); "orthogonal", a random subspace with angles in it preserved, in which
            pretrained features stay more distinct; or "principal", orthogonal at first and turned
            to the principal subspace of the training images' features when training begins.
        resize: Shorter side of images before cropping; None for the backbone's default, most often
            256.
        crop: Side of the square input image; None for the backbone's default, most often 227.
        backbone_options: Further arguments of the backbone, such as ``{"drop_path_rate": 0.1}``.

    Example:
        >>> config = EmbedderConfig(pooling_options={"mu": 0.5})
        >>> EmbedderConfig.from_dict(config.to_dict()) == config
        True
    """

    backbone: str = "tf_efficientnet_lite0"
    weights: str = "packaged"
    embedding_size: int = 128
    pooling: str = "gsp"
    pooling_options: dict[str, Any] = field(default_factory=dict)
    normalize: str = "l2"
    freeze_batch_norm: bool = True
    resize: int | None = None
    crop: int | None = None
    backbone_options: dict[str, Any] = field(default_factory=dict)
    freeze_batch_norm_affine: bool = False
    map_init: str = "torch"

    def __post_init__(self) -> None:
        for name in ("backbone", "weights", "pooling", "normalize"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} must be a non-empty text, got {value!r}")
        for name in ("embedding_size", "resize", "crop"):
            value = getattr(self, name)
            if value is None and name != "embedding_size":
                continue
            if not is_integer(value) or not 1 <= value <= LARGEST[name]:
                raise ValueError(
                    f"{name} must be a whole number from 1 to {LARGEST[name]:,}, got {value!r}"
                )
            object.__setattr__(self, name, int(value))
        if self.normalize not in NORMALIZATIONS:
            raise ValueError(f"normalize must be one of {NORMALIZATIONS}, got {self.normalize!r}")
        if self.map_init not in MAP_INITS:
            raise ValueError(f"map_init must be one of {MAP_INITS}, got {self.map_init!r}")
        for name in ("freeze_batch_norm", "freeze_batch_norm_affine"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.freeze_batch_norm_affine and not (
            self.freeze_batch_norm and self.weights != "none"
        ):
            raise ValueError(
                "freeze_batch_norm_affine needs freeze_batch_norm and weights that are not none"
            )
        for name in ("pooling_options", "backbone_options"):
            object.__setattr__(self, name, _plain(name, getattr(self, name)))
        reserved = [name for name in self.pooling_options if name in RESERVED_OPTIONS]
        if reserved:
            raise ValueError(f"pooling_options must leave {reserved} to the embedder")

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as a dictionary of plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EmbedderConfig:
        """Restore from :meth:`to_dict`; missing keys take their defaults, unknown ones raise."""
        known = [entry.name for entry in dataclasses.fields(cls)]
        unknown = [key for key in values if key not in known]
        if unknown:
            raise ValueError(f"keys of an embedder's configuration are {known}, got {unknown}")
        return cls(**values)


def _plain(name: str, options: Any) -> dict[str, Any]:
    """Copy ``options`` by a round trip through JSON."""
    if not isinstance(options, Mapping):
        raise ValueError(f"{name} must be a dictionary of options, got {options!r}")
    try:
        copy = json.loads(json.dumps(dict(options), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold plain values only, got {options!r}: {error}") from error
    assert isinstance(copy, dict)
    return copy
