"""Class centers for losses without proxies: running means of embeddings."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.losses.batch_checks import check_counts, check_labels, check_rows
from sumpool.losses.initial import CENTERS, initial_vectors
from sumpool.losses.metric_loss import proxies_of
from sumpool.transport.validation import check_label_range, is_number


class RunningCenters(nn.Module):
    r"""Wrap a loss and track the running mean of the unit embeddings of each class.

    A batch updates the centers of its classes, :math:`c \leftarrow κ c + (1 - κ)\,\bar z_c` with
    :math:`\bar z_c` the mean of the class in the batch; its first batch sets the center. Gradients
    flow to the batch, so that a regularizer of centers affects the network. The center of an unseen
    class is a random direction. Embeddings that are not finite move no center. Evaluation mode
    updates nothing.

    Args:
        loss: Called as ``loss(embeddings, labels, …)``.
        num_classes: Number of classes C; labels lie in 0..C − 1.
        embedding_size: Length D of the embeddings.
        momentum: κ in [0, 1).
        seed: Seed of the centers of unseen classes.

    Example:
        >>> from sumpool.losses import build_loss
        >>> loss = build_loss("ms", num_classes=2, embedding_size=2)
        >>> centered = RunningCenters(loss, num_classes=2, embedding_size=2)
        >>> _ = centered(2 * torch.eye(2), torch.tensor([0, 1]))
        >>> centered.centers().shape, centered.means
        (torch.Size([2, 1, 2]), tensor([[1., 0.],
                [0., 1.]]))
    """

    means: Tensor
    seen: Tensor

    def __init__(
        self,
        loss: nn.Module,
        num_classes: int,
        embedding_size: int,
        momentum: float = 0.9,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_counts(num_classes=num_classes, embedding_size=embedding_size)
        if not (is_number(momentum) and 0 <= momentum < 1):
            raise ValueError(f"momentum must lie in [0, 1), got {momentum!r}")
        self.loss = loss
        self.momentum = momentum
        start = initial_vectors(num_classes, embedding_size, seed=seed, kind=CENTERS)
        self.register_buffer("means", F.normalize(start, dim=-1))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))
        self._moved: Tensor | None = None

    def forward(
        self, embeddings: Tensor, labels: Tensor, *arguments: Any, **keywords: Any
    ) -> Tensor:
        """Update the centers in training mode, then return ``loss(embeddings, labels, ...)``."""
        check_rows("embeddings", embeddings, self.means.shape[1])
        labels = check_labels(labels, "labels", len(embeddings))
        check_label_range(labels, len(self.means))
        if self.training:
            with torch.autocast(embeddings.device.type, enabled=False):
                self._move(embeddings, labels.to(embeddings.device))
        value: Tensor = self.loss(embeddings, labels, *arguments, **keywords)
        return value

    def __getstate__(self) -> dict[str, Any]:
        # What belongs to the graph of a batch cannot be copied.
        return {**self.__dict__, "_moved": None}

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._moved = None

    def _move(self, embeddings: Tensor, labels: Tensor) -> None:
        # A matrix product over all classes needs no device synchronization and is deterministic.
        vectors = F.normalize(embeddings.to(self.means.dtype), dim=-1)
        numbers = torch.arange(len(self.means), device=labels.device)
        sound = torch.linalg.vector_norm(embeddings.detach().to(vectors.dtype), dim=-1).isfinite()
        vectors = torch.where(sound[:, None], vectors, 0)
        own = ((numbers[:, None] == labels) & sound).to(vectors.dtype)  # (C, b)
        counts = own.sum(1)
        batch = own @ vectors / counts.clamp(min=1)[:, None]
        kept = torch.where(self.seen, self.momentum, 0.0)[:, None]
        moved = torch.where(counts[:, None] > 0, kept * self.means + (1 - kept) * batch, self.means)
        with torch.no_grad():
            self.means.copy_(moved)
            self.seen.logical_or_(counts > 0)
        self._moved = moved

    def centers(self) -> Tensor:
        """Return the means as (C, 1, D), differentiable once after each training batch."""
        moved, self._moved = self._moved, None
        return (self.means if moved is None else moved).unsqueeze(1)

    def proxy_parameters(self) -> list[nn.Parameter]:
        """Return the proxies of the wrapped loss; running means are not learned."""
        return proxies_of(self.loss)
