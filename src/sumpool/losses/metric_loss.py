"""A loss of pytorch-metric-learning, with its settings, checks and precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_metric_learning.losses import ProxyAnchorLoss
from torch import Tensor, nn

from sumpool.losses.batch_checks import check_label_range, check_labels, check_rows
from sumpool.losses.intra_batch import IntraBatchLoss
from sumpool.losses.margin import MarginLoss


class MetricLoss(nn.Module):
    """A base loss of the catalog, called like those of pytorch-metric-learning.

    Computed in float32 whatever the embeddings and autocast (float64 where the embeddings of a pair
    loss, or the proxies, are float64). :func:`build_loss` makes one.

    Args:
        loss: The loss of pytorch-metric-learning, a :class:`torch.nn.Module`.
        embedding_size: Size D of the embeddings.
        num_classes: Labels are checked to lie in 0..num_classes − 1; None for any labels.
        settings: What it was built from, as plain values, for a record of the run.
    """

    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        num_classes: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.embedding_size = embedding_size
        self.num_classes = num_classes
        self.settings = dict(settings or {})

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a scalar.

        A batch without a pair (or triplet) to compare gives 0, with a gradient of 0.

        Args:
            embeddings: Shape (b, D); losses normalize them where their formula asks for it.
            labels: Integers of shape (b,).
            indices_tuple: Pairs or triplets from a miner of pytorch-metric-learning; None for all.
            ref_emb: Embeddings (r, D) that the batch is compared with instead of itself; pair
                losses alone accept them.
            ref_labels: Their labels (r,).
        """
        check_rows("embeddings", embeddings, self.embedding_size)
        labels = check_labels(labels, "labels", embeddings.shape[0]).to(embeddings.device)
        if (ref_emb is None) != (ref_labels is None):
            raise ValueError("ref_emb and ref_labels must be given together, got one of them")
        if self.num_classes is not None:
            check_label_range(labels, self.num_classes)
        dtype = self._dtype(embeddings)
        if ref_emb is not None and ref_labels is not None:
            check_rows("ref_emb", ref_emb, self.embedding_size)
            ref_labels = check_labels(ref_labels, "ref_labels", ref_emb.shape[0])
            ref_emb = ref_emb.to(dtype)
        with torch.autocast(embeddings.device.type, enabled=False):
            loss: Tensor = self.loss(
                embeddings.to(dtype), labels, indices_tuple, ref_emb, ref_labels
            )
        return loss

    def proxy_parameters(self) -> list[nn.Parameter]:
        """The proxies, or boundaries, which train at a rate of their own; empty for pair losses."""
        return [] if isinstance(self.loss, IntraBatchLoss) else list(self.loss.parameters())

    def centers(self) -> Tensor:
        """The proxies as rows (C, K, D), K of each class; gradients flow to them.

        Raises:
            ValueError: If the loss has none.
        """
        proxies = self.proxy_parameters()
        if not proxies or isinstance(self.loss, MarginLoss) or self.num_classes is None:
            raise ValueError(f"the loss {self.settings.get('name')} has no proxies")
        (weights,) = proxies
        rows = proxy_rows(self.loss, weights)
        return rows.reshape(self.num_classes, -1, self.embedding_size)

    def _dtype(self, embeddings: Tensor) -> torch.dtype:
        """The dtype to compute in: that of the proxies, which must not change."""
        learned = next(self.loss.parameters(), None)
        if learned is None:
            return torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        dtype = learned.dtype
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"proxies must be float32 or float64, got {dtype}")
        return dtype

    def extra_repr(self) -> str:
        """What it was built from, for ``print``."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


def proxy_rows(loss: nn.Module, weights: Tensor) -> Tensor:
    """The proxies in ``weights`` of ``loss``, one per row, those of a class next to each other.

    ProxyAnchor keeps a proxy in a row, the softmax losses keep it in a column.
    """
    return weights if isinstance(loss, ProxyAnchorLoss) else weights.T


def proxies_of(loss: nn.Module) -> list[nn.Parameter]:
    """The proxies of ``loss``: what it says they are, else all that it learns.

    Losses of pytorch-metric-learning say nothing; all that they learn are proxies.
    """
    own = getattr(loss, "proxy_parameters", None)
    return list(loss.parameters()) if own is None else list(own())
