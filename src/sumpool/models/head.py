"""What follows the backbone of an embedder: the linear map and the pooling."""

from __future__ import annotations

from typing import Any

from torch import nn

from sumpool.models.config import EmbedderConfig
from sumpool.models.layout import FeatureLayout
from sumpool.pooling import GlobalPool, build_pooling, pooling_class, pooling_options

#: Length of the rows of an orthogonal map: that of the uniform one of torch.
ORTHOGONAL_GAIN = 3**-0.5


def build_head_pooling(config: EmbedderConfig, layout: FeatureLayout, seed: int) -> GlobalPool:
    """The pooling of ``config`` for features that lie as ``layout`` says."""
    sequence = layout.format == "NLC"
    options: dict[str, Any] = {**config.pooling_options, "input_fmt": layout.format}
    if sequence:
        options["num_prefix_tokens"] = layout.num_prefix_tokens
    if "seed" in pooling_options(config.pooling, sequence=sequence):
        options.setdefault("seed", seed)
    place = pooling_class(config.pooling, sequence=sequence).linear_map
    size = config.embedding_size
    return build_pooling(
        config.pooling,
        size if place == "before" else layout.channels,
        embedding_size=size if place == "inside" else None,
        sequence=sequence,
        **options,
    )


def build_map(config: EmbedderConfig, layout: FeatureLayout, pooling: GlobalPool) -> nn.Module:
    """The linear map to the embedding size, where ``pooling`` wants it, initialized.

    Raises:
        ValueError: If the initialization needs a single map and the pooling has others.
    """
    mapped = _map(config, layout, pooling)
    if config.map_init != "torch":
        # Poolings with a map inside have it under the same name, if it is a single one.
        single = getattr(pooling, "map", None) if pooling.linear_map == "inside" else mapped
        if not isinstance(single, nn.Linear | nn.Conv2d):
            raise ValueError(
                f"map_init {config.map_init} needs a single linear map; {config.pooling} has others"
            )
        if config.map_init == "glorot":
            nn.init.xavier_uniform_(single.weight)
        else:
            nn.init.orthogonal_(single.weight, ORTHOGONAL_GAIN)
    return mapped


def _map(config: EmbedderConfig, layout: FeatureLayout, pooling: GlobalPool) -> nn.Module:
    size = config.embedding_size
    if pooling.linear_map == "inside":
        return nn.Identity()
    if pooling.linear_map == "after":
        return nn.Linear(pooling.out_channels(layout.channels), size, bias=False)
    if layout.format == "NCHW":
        return nn.Conv2d(layout.channels, size, 1, bias=False)
    return nn.Linear(layout.channels, size, bias=False)
