"""The head of an embedder: its linear map and pooling."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.models.config import EmbedderConfig
from sumpool.models.layout import FeatureLayout
from sumpool.pooling import GlobalPool, build_pooling, pooling_class, pooling_options

#: Norm of the rows of an orthogonal map, about that of torch's uniform initialization.
ORTHOGONAL_GAIN = 3**-0.5


def build_head_pooling(config: EmbedderConfig, layout: FeatureLayout, seed: int) -> GlobalPool:
    """Build the pooling of ``config`` for features of the given layout."""
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


def build_map(
    config: EmbedderConfig, layout: FeatureLayout, pooling: GlobalPool, seed: int
) -> nn.Module:
    """Build the linear map to the embedding size; the identity if ``pooling`` has its own map.

    The map depends on the seed alone, not on what ``pooling`` has drawn, so that poolings compared
    seed by seed start from the same map.

    Raises:
        ValueError: If the initialization needs a single linear map and the pooling has others.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        mapped = _map(config, layout, pooling)
        if config.map_init == "torch":
            return mapped
        single = single_map(mapped, pooling)
        if single is None:
            raise ValueError(
                f"map_init {config.map_init} needs a single linear map; {config.pooling} has others"
            )
        if config.map_init == "glorot":
            nn.init.xavier_uniform_(single.weight)
        else:
            nn.init.orthogonal_(single.weight, ORTHOGONAL_GAIN)
    return mapped


def single_map(mapped: nn.Module, pooling: GlobalPool) -> nn.Linear | nn.Conv2d | None:
    """Return the linear map of an embedder or inside its pooling; None unless there is just one."""
    # Poolings with a single map inside store it as ``map``.
    single = getattr(pooling, "map", None) if pooling.linear_map == "inside" else mapped
    return single if isinstance(single, nn.Linear | nn.Conv2d) else None


@torch.no_grad()
def keep_principal_axes(layer: nn.Linear | nn.Conv2d, vectors: Tensor) -> None:
    """Turn an orthogonal map, in place, to the principal subspace of ``vectors``.

    Its rows become the first principal axes of the normalized vectors, which are not centered. If
    there are fewer vectors than rows, the remaining rows come from the previous map.

    Args:
        layer: Maps C to D dimensions; left unchanged if D ≥ C, where nothing is lost.
        vectors: Inputs of the map, (N, C).

    Example:
        >>> layer = nn.Linear(3, 1, bias=False)
        >>> keep_principal_axes(layer, torch.tensor([[0.0, 2.0, 0.0], [0.0, -1.0, 0.0]]))
        >>> layer.weight.abs().div(ORTHOGONAL_GAIN).round(decimals=4).tolist()
        [[0.0, 1.0, 0.0]]
    """
    weight = layer.weight.flatten(1)
    size, channels = weight.shape
    if size >= channels:
        return
    # On the CPU and in double precision, so that every process finds the same axes.
    unit = F.normalize(vectors.double().cpu(), dim=-1)
    axes = torch.linalg.eigh(unit.T @ unit).eigenvectors.flip(-1)[:, : min(size, len(unit))]
    both = torch.cat([axes, weight.T.double().cpu()], dim=1)
    basis = torch.linalg.qr(both).Q[:, :size]
    layer.weight.copy_((basis.T * ORTHOGONAL_GAIN).view_as(layer.weight))


def _map(config: EmbedderConfig, layout: FeatureLayout, pooling: GlobalPool) -> nn.Module:
    size = config.embedding_size
    if pooling.linear_map == "inside":
        return nn.Identity()
    if pooling.linear_map == "after":
        return nn.Linear(pooling.out_channels(layout.channels), size, bias=False)
    if layout.format == "NCHW":
        return nn.Conv2d(layout.channels, size, 1, bias=False)
    return nn.Linear(layout.channels, size, bias=False)
