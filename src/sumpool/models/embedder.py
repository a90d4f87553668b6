"""From images to embeddings: backbone, linear map, pooling, normalization."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.backbones import Backbone, build_backbone, run_backbone
from sumpool.models.card import write_card
from sumpool.models.config import EmbedderConfig
from sumpool.models.encoding import ImageLike, encode_images
from sumpool.models.folding import fold_batch_norm
from sumpool.models.head import build_head_pooling, build_map
from sumpool.models.hub import download, is_hub_address, upload
from sumpool.models.storage import model_folder, read_model, write_model
from sumpool.pooling import GlobalPool, Pooled
from sumpool.transport import lipschitz_normalize
from sumpool.transport.validation import solve_dtype


class Embedder(nn.Module):
    r"""Backbone → linear map without bias and pooling → normalization [gsp, sec. 5].

    The pooling determines whether the map is applied to every local feature (average and
    generalized sum pooling) or to the pooled vector.

    Created by :func:`build_embedder` or :func:`load_embedder`. Frozen batch normalization stays in
    evaluation mode whatever the mode of the model: it normalizes by its pretrained statistics,
    while scales and shifts are trained.

    Under autocast, the backbone and a map before the pooling run in lower precision, the rest in
    float32.

    Attributes:
        config: Configuration of the model.
        preprocessing: Preprocessing of its input images.
        seed: Seed it was built with.
        layout: Layout of the local features in the backbone's output.
        backbone: Maps images (B, 3, H, W) to local features.
        map: Linear map to the embedding size, before or after the pooling; the identity if the
            pooling has its own map.
        pooling: Pools local features into one vector.
        batch_norm_frozen: Whether the statistics of batch normalization are kept.

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
        self.pooling: GlobalPool = build_head_pooling(config, layout, seed)
        self.map = build_map(config, layout, self.pooling, seed)
        self.batch_norm_frozen = config.freeze_batch_norm and config.weights != "none"
        if config.freeze_batch_norm_affine:
            for layer in self._batch_norms():
                layer.requires_grad_(False)
        self._run_backbone: Callable[[nn.Module, Tensor], Tensor] = run_backbone
        self._evaluation_size: int | None = None
        self.train(self.training)

    def compile_backbone(self) -> None:
        """Compile the backbone with ``torch.compile``, for training and evaluation.

        Frozen batch normalization is folded into the convolutions, see
        :func:`~sumpool.models.folding.fold_batch_norm`. All models in the process with this
        backbone and image size share the compiled code, which is specialized to the batch size: in
        evaluation, batches that differ in size from the first one run uncompiled.
        """
        if self.batch_norm_frozen:
            side, device = self.preprocessing.crop, next(self.parameters()).device
            fold_batch_norm(self.backbone, torch.zeros(1, 3, side, side, device=device))
        self._run_backbone = _compiled_run()

    def forward(
        self, images: Tensor, details: bool = False, *, normalize: bool = True
    ) -> Tensor | Pooled:
        """Embed ``images``.

        Args:
            images: Preprocessed images (B, 3, H, W).
            details: Whether to also return the pooling weights and the attributes.
            normalize: Whether to normalize the embeddings; some losses expect them unnormalized.

        Returns:
            Embeddings (B, D), or with ``details`` a :class:`sumpool.Pooled` that contains them.
        """
        features = self.feature_map(images)
        with torch.autocast(features.device.type, enabled=False):
            if not details:
                return self.embedding(self.pooling(features), normalize=normalize)
            out = self.pooling.pool(features)
            embedding = self.embedding(out.embedding, normalize=normalize)
            return Pooled(embedding, out.weights, out.attributes)

    def feature_map(self, images: Tensor) -> Tensor:
        """Return the input of the pooling: local features in the backbone's layout.

        The shape is (B, D, h, w), (B, h, w, D) or, including prefix tokens, (B, L, D), where D is
        the embedding size if the map precedes the pooling, and otherwise the backbone's number of
        channels. The dtype is that of the parameters, also under autocast.
        """
        features = self.backbone_map(images)
        if self.pooling.linear_map == "before":
            features = self.map(features)
        return features.to(next(self.parameters()).dtype)

    def backbone_map(self, images: Tensor) -> Tensor:
        """Return the backbone's output, before any map, in its own layout."""
        run = self._run_backbone if self._is_compiled_for(images) else run_backbone
        return run(self.backbone, images)

    def _is_compiled_for(self, images: Tensor) -> bool:
        # Every other size, and training mode without gradients, would trigger a recompilation.
        if self._run_backbone is run_backbone or torch.is_grad_enabled():
            return True
        if self.training:
            return False
        if self._evaluation_size is None:
            self._evaluation_size = len(images)
        return len(images) == self._evaluation_size

    @property
    def frozen_batch_norms(self) -> int:
        """Number of batch normalization layers that keep their statistics."""
        return len(self._batch_norms()) if self.batch_norm_frozen else 0

    def train(self, mode: bool = True) -> Embedder:
        """Set training or evaluation mode; frozen batch normalization stays in the latter."""
        super().train(mode)
        if mode and self.batch_norm_frozen:
            for layer in self._batch_norms():
                layer.eval()
        return self

    def encode(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int = 32,
        progress: bool = False,
    ) -> Tensor:
        """Embed image files or images in memory, in evaluation mode and without gradients.

        Images are read as by `sumpool embed`: turned upright, with transparent areas on white.

        Args:
            images: Paths, PIL images or uint8 arrays (H, W) or (H, W, 3) of any size, one or many.
            batch_size: Images per forward pass.
            progress: Whether to show a progress bar.

        Returns:
            Embeddings (N, D) on the model's device, in the order of ``images``; (1, D) for one
            image.

        Raises:
            sumpool.data.BrokenImageError: If an image cannot be read; the message names it.
            ModelError: If an embedding is not finite; the message names the image.

        Example:
            >>> from PIL import Image
            >>> model = build_embedder(EmbedderConfig("resnet20", "none", 16, "gap"))
            >>> vectors = model.encode([Image.new("RGB", (50, 40)), Image.new("L", (32, 32))])
            >>> vectors.shape, model.similarity(vectors).shape
            (torch.Size([2, 16]), torch.Size([2, 2]))
        """
        return encode_images(
            self, self.preprocessing, images, batch_size=batch_size, progress=progress
        )

    #: Former name of :meth:`encode`.
    embed = encode

    @staticmethod
    def similarity(first: Tensor, second: Tensor | None = None) -> Tensor:
        """Compute the cosine similarities of all pairs of embeddings.

        Args:
            first: Embeddings (N, D).
            second: Embeddings (M, D); None compares ``first`` with itself.

        Returns:
            Similarities (N, M) in [−1, 1].
        """
        others = first if second is None else second
        return F.normalize(first, dim=-1) @ F.normalize(others, dim=-1).T

    @classmethod
    def from_pretrained(cls, source: str | Path, device: torch.device | str = "cpu") -> Embedder:
        """Load a model from a folder or the Hugging Face Hub, in evaluation mode.

        Args:
            source: Folder of a run or of a saved model, or "hf://organization/name", with
                "@revision" appended for other revisions than the newest.
            device: Device of the model.

        Raises:
            ModelError: If there is no model, or it cannot be loaded; the message names the file and
                the defect.
        """
        folder = download(str(source)) if is_hub_address(source) else source
        return read_embedder(model_folder(folder)).to(device)

    def save_pretrained(self, folder: str | Path, *, run: str | Path | None = None) -> None:
        """Write the model to ``folder`` with a model card, ready to be shared.

        The files are model.safetensors, model.json, README.md and, if the run has a gallery with
        pooling weights, weights.jpg.

        Args:
            folder: Created if missing; a model in it is replaced.
            run: Folder of the run that trained it; adds data, protocol and scores to the card.

        Raises:
            ModelError: If a file of the model cannot be written.
            StoreError: If ``run`` holds no run, a file in it is damaged, or the card cannot be
                written.
        """
        config = replace(self.config, weights=Path(self.config.weights).name)  # no local path
        write_card(Path(folder), config, self.preprocessing, run=run)
        write_model(folder, config, self.preprocessing, self.seed, self.state_dict())

    def push_to_hub(
        self,
        name: str,
        *,
        run: str | Path | None = None,
        private: bool = False,
        token: str | None = None,
    ) -> str:
        """Upload the files of :meth:`save_pretrained` to the Hugging Face Hub.

        Args:
            name: Repository, "organization/name"; created if missing.
            run: As in :meth:`save_pretrained`.
            private: Whether a new repository is private.
            token: Access token; None uses the one stored by ``hf auth login``.

        Returns:
            The URL of the repository.

        Raises:
            ModelError: If huggingface_hub is not installed, or the upload fails.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, run=run)
            return upload(Path(folder), name, private=private, token=token)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"normalize={self.config.normalize!r}, frozen_batch_norms={self.frozen_batch_norms}"

    def embedding(self, pooled: Tensor, *, normalize: bool = True) -> Tensor:
        """Turn pooled vectors into embeddings: apply a map after the pooling, and normalize."""
        v = self.map(pooled) if self.pooling.linear_map == "after" else pooled
        v = v.to(solve_dtype(v))
        if not normalize:
            return v
        return F.normalize(v, dim=-1) if self.config.normalize == "l2" else lipschitz_normalize(v)

    def _batch_norms(self) -> list[nn.Module]:
        return [layer for layer in self.backbone.modules() if isinstance(layer, _BatchNorm)]


@functools.cache
def _compiled_run() -> Callable[[nn.Module, Tensor], Tensor]:
    # One compiled function serves all models: their weights are arguments, not part of the code.
    return torch.compile(run_backbone, dynamic=False)


def build_embedder(
    config: EmbedderConfig, *, seed: int = 0, weights: str | None = None
) -> Embedder:
    """Build an embedder, with the backbone weights that ``config`` names.

    All randomness comes from the seed; torch's global generators are left unchanged.

    Args:
        config: Configuration of the model.
        seed: Seed that initializes the map, the prototypes and a backbone without weights.
        weights: Overrides ``config.weights``; "none" for a model whose state is loaded afterwards.

    Raises:
        TypeError, ValueError: If a name or an option is not accepted; the message says which ones
            are.
        ModelError: If the weights cannot be loaded.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would also seed accelerators.
        torch.default_generator.manual_seed(seed)
        backbone = build_backbone(
            config.backbone,
            weights=config.weights if weights is None else weights,
            resize=config.resize,
            crop=config.crop,
            options=config.backbone_options,
        )
        # Seeded again, so that the head does not depend on the source of the backbone's weights.
        torch.default_generator.manual_seed(seed)
        return Embedder(config, backbone, seed=seed)


def read_embedder(folder: str | Path) -> Embedder:
    """Load a model from its own folder, in evaluation mode; see :func:`load_embedder`."""
    return read_model(
        folder, lambda config, seed: build_embedder(config, seed=seed, weights="none")
    )
