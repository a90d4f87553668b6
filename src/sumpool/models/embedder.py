"""From images to embeddings: backbone, linear map, pooling, normalization."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from sumpool.data.sets.decoding import read_image
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.backbones import Backbone, build_backbone
from sumpool.models.config import EmbedderConfig
from sumpool.models.errors import ModelError
from sumpool.models.folding import fold_batch_norm
from sumpool.models.layout import FeatureLayout
from sumpool.pooling import GlobalPool, Pooled, build_pooling, pooling_class, pooling_options
from sumpool.transport import lipschitz_normalize
from sumpool.transport.validation import check_at_least_one, solve_dtype

#: What :meth:`Embedder.embed` takes as an image.
ImageLike = str | os.PathLike[str] | Image.Image
_IMAGES = (str, os.PathLike, Image.Image)


class Embedder(nn.Module):
    r"""Backbone → linear map without bias and pooling → normalization [gsp, sec. 5].

    The map stands where the pooling wants it: on every local feature (average and generalized sum
    pooling), or on the pooled vector.

    Made by :func:`build_embedder` or :func:`load_embedder`. Where batch normalization is frozen,
    its layers stay in evaluation mode whatever mode the model is in: they normalize by the
    statistics they were pretrained with, while their scales and shifts learn.

    Under autocast the backbone and the map run in the lower precision; pooling and normalization
    run in float32.

    Attributes:
        config: What it is made of.
        preprocessing: What images go through before they are given to it.
        seed: Seed it was built from.
        layout: How local features lie in the backbone's output.
        backbone: Images (B, 3, H, W) to local features.
        map: Linear map to the embedding size, before or after the pooling; the identity where the
            pooling has a map of its own.
        pooling: Local features to one vector.
        batch_norm_frozen: Whether statistics of batch normalization are kept.

    Example:
        >>> config = EmbedderConfig("resnet20", "none", 16, pooling_options={"prototypes": 4})
        >>> model = build_embedder(config).eval()
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 16])
        >>> out = model(torch.zeros(2, 3, 32, 32), details=True)
        >>> out.weights.shape, out.attributes.shape
        (torch.Size([2, 8, 8]), torch.Size([2, 4]))
    """

    def __init__(self, config: EmbedderConfig, backbone: Backbone, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.preprocessing: Preprocessing = backbone.preprocessing
        self.seed = seed
        self.layout = layout = backbone.layout
        self.backbone = backbone.network
        self.pooling: GlobalPool = _build_pooling(config, layout, seed)
        self.map = _build_map(config, layout, self.pooling)
        if config.map_init == "glorot":
            # Poolings with a map inside have it under the same name, if it is a single one.
            inside = self.pooling.linear_map == "inside"
            mapped = getattr(self.pooling if inside else self, "map", None)
            if not isinstance(mapped, nn.Linear | nn.Conv2d):
                raise ValueError(
                    f"map_init glorot needs a single linear map; {config.pooling} has others"
                )
            nn.init.xavier_uniform_(mapped.weight)
        self.batch_norm_frozen = config.freeze_batch_norm and config.weights != "none"
        if config.freeze_batch_norm_affine:
            for layer in self._batch_norms():
                layer.requires_grad_(False)
        self._run_backbone: Callable[[nn.Module, Tensor], Tensor] = _run
        self._evaluation_size: int | None = None
        self.train(self.training)

    def compile_backbone(self) -> None:
        """Run the backbone compiled with ``torch.compile``, for training and for evaluation.

        Frozen batch normalization becomes a part of the convolutions, see
        :func:`~sumpool.models.folding.fold_batch_norm`. All models of the process with this
        backbone and image size share the code. It is compiled for one batch size in training and
        for one in evaluation, the first; batches of other sizes run uncompiled there.
        """
        if self.batch_norm_frozen:
            side, device = self.preprocessing.crop, next(self.parameters()).device
            fold_batch_norm(self.backbone, torch.zeros(1, 3, side, side, device=device))
        self._run_backbone = _compiled_run()

    def forward(self, images: Tensor, details: bool = False) -> Tensor | Pooled:
        """Embed ``images``.

        Args:
            images: Preprocessed images (B, 3, H, W).
            details: Whether to return the pooling weights and the attributes too.

        Returns:
            Embeddings (B, D), or with ``details`` a :class:`sumpool.Pooled` that holds them.
        """
        features = self.feature_map(images)
        with torch.autocast(features.device.type, enabled=False):
            if not details:
                return self.embedding(self.pooling(features))
            out = self.pooling.pool(features)
            return Pooled(self.embedding(out.embedding), out.weights, out.attributes)

    def feature_map(self, images: Tensor) -> Tensor:
        """What the pooling receives: local features in the layout of the backbone.

        A tensor (B, D, h, w), (B, h, w, D) or, prefix tokens included, (B, L, D) in the dtype of
        the parameters, under autocast as well. D is the embedding size where the map comes before
        the pooling, and otherwise the channels of the backbone.
        """
        run = self._run_backbone if self._is_compiled_for(images) else _run
        features = run(self.backbone, images)
        if self.pooling.linear_map == "before":
            features = self.map(features)
        return features.to(next(self.parameters()).dtype)

    def _is_compiled_for(self, images: Tensor) -> bool:
        # Each further size, and training mode without gradients, would be compiled once more.
        if self._run_backbone is _run or torch.is_grad_enabled():
            return True
        if self.training:
            return False
        if self._evaluation_size is None:
            self._evaluation_size = len(images)
        return len(images) == self._evaluation_size

    @property
    def frozen_batch_norms(self) -> int:
        """How many layers of batch normalization keep their statistics."""
        return len(self._batch_norms()) if self.batch_norm_frozen else 0

    def train(self, mode: bool = True) -> Embedder:
        """Training or evaluation mode; frozen batch normalization stays in the latter."""
        super().train(mode)
        if mode and self.batch_norm_frozen:
            for layer in self._batch_norms():
                layer.eval()
        return self

    @torch.no_grad()
    def embed(self, images: ImageLike | Iterable[ImageLike], *, batch_size: int = 32) -> Tensor:
        """Embed images as they come from files, in evaluation mode and without gradients.

        Images are read as `sumpool embed` reads them: turned upright, over white where they are
        transparent.

        Args:
            images: Paths or PIL images of any size and mode, one or many.
            batch_size: Images that go through the network together.

        Returns:
            Embeddings (N, D) on the device of the model, in the order of ``images``; (1, D) for one
            image.

        Raises:
            sumpool.data.BrokenImageError: If an image cannot be read; names it.
            ModelError: If an embedding is not finite; names the image.

        Example:
            >>> model = build_embedder(EmbedderConfig("resnet20", "none", 16, "gap"))
            >>> model.embed([Image.new("RGB", (50, 40)), Image.new("L", (32, 32))]).shape
            torch.Size([2, 16])
        """
        sources = [images] if isinstance(images, _IMAGES) else list(images)
        others = [type(it).__name__ for it in sources if not isinstance(it, _IMAGES)]
        if others or not sources:
            got = f"{others[0]} among them" if others else "none"
            raise ValueError(f"images must be paths or PIL images, at least one, got {got}")
        check_at_least_one(batch_size=batch_size)
        view, device = self.preprocessing.test_view(), next(self.parameters()).device
        training = self.training
        self.eval()
        try:
            embeddings = []
            for start in range(0, len(sources), batch_size):
                batch = [view(read_image(it)) for it in sources[start : start + batch_size]]
                embeddings.append(self(self.preprocessing.normalize(torch.stack(batch).to(device))))
            vectors = torch.cat(embeddings)
        finally:
            self.train(training)
        bad = (~vectors.isfinite().all(1)).nonzero().flatten().tolist()
        if bad:
            given = sources[bad[0]]
            name = f"number {bad[0]}" if isinstance(given, Image.Image) else os.fspath(given)
            raise ModelError(
                f"the embedding of image {name} is not finite: the weights of the model are "
                "damaged, or its training diverged"
            )
        return vectors

    def extra_repr(self) -> str:
        """What the layers below do not say, for ``print``."""
        return f"normalize={self.config.normalize!r}, frozen_batch_norms={self.frozen_batch_norms}"

    def embedding(self, pooled: Tensor) -> Tensor:
        """From what the pooling gives to the embedding: mapped, where the map comes after, to D."""
        v = self.map(pooled) if self.pooling.linear_map == "after" else pooled
        v = v.to(solve_dtype(v))
        return F.normalize(v, dim=-1) if self.config.normalize == "l2" else lipschitz_normalize(v)

    def _batch_norms(self) -> list[nn.Module]:
        return [layer for layer in self.backbone.modules() if isinstance(layer, _BatchNorm)]


def _run(network: nn.Module, images: Tensor) -> Tensor:
    features: Tensor = network(images)
    return features


@functools.cache
def _compiled_run() -> Callable[[nn.Module, Tensor], Tensor]:
    # One compiled function for all models: their weights are arguments of it, not part of it.
    return torch.compile(_run, dynamic=False)


def build_embedder(
    config: EmbedderConfig, *, seed: int = 0, weights: str | None = None
) -> Embedder:
    """Build an embedder, with the weights that ``config`` names in its backbone.

    All that is random comes from the seed; torch's global generators are left as they were.

    Args:
        config: What it is made of.
        seed: Seed of the map, of the prototypes' initialization and of a backbone without weights.
        weights: Read in place of those in ``config``: "none" for a model to load a state into.

    Raises:
        ValueError: If a name or an option is not accepted; the message says what is.
        ModelError: If the weights cannot be loaded.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed accelerators too.
        torch.default_generator.manual_seed(seed)
        backbone = build_backbone(
            config.backbone,
            weights=config.weights if weights is None else weights,
            resize=config.resize,
            crop=config.crop,
            options=config.backbone_options,
        )
        # Drawn anew, so that it does not depend on where the backbone's weights come from.
        torch.default_generator.manual_seed(seed)
        return Embedder(config, backbone, seed=seed)


def _build_pooling(config: EmbedderConfig, layout: FeatureLayout, seed: int) -> GlobalPool:
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


def _build_map(config: EmbedderConfig, layout: FeatureLayout, pooling: GlobalPool) -> nn.Module:
    size = config.embedding_size
    if pooling.linear_map == "inside":
        return nn.Identity()
    if pooling.linear_map == "after":
        return nn.Linear(pooling.out_channels(layout.channels), size, bias=False)
    if layout.format == "NCHW":
        return nn.Conv2d(layout.channels, size, 1, bias=False)
    return nn.Linear(layout.channels, size, bias=False)
