"""Wrapper of the base losses that adds input checks, a fixed precision and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_metric_learning.losses import LiftedStructureLoss, ProxyAnchorLoss
from torch import Tensor, nn

from sumpool.losses.batch_checks import check_labels, check_rows
from sumpool.losses.margin import MarginLoss
from sumpool.transport.validation import check_label_range


class MetricLoss(nn.Module):
    """A base loss of the catalog, with the interface of pytorch-metric-learning's losses.

    Computes in float32 whatever the dtype of the embeddings and autocast, or in float64 if the
    embeddings of a pair loss, or the proxies, are float64. :func:`build_loss` builds it.

    Args:
        loss: The wrapped loss, from or compatible with pytorch-metric-learning.
        embedding_size: Length D of the embeddings.
        num_classes: Require labels in 0..num_classes − 1; None for any labels.
        settings: The arguments and constants it was built with, for the record of a run.
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
        """Return the loss of a batch, a scalar.

        Terms of pairs (or triplets) are 0 for a batch without any, and so are their gradients.

        Args:
            embeddings: Shape (b, D); losses normalize them if their formula requires it.
            labels: Integers of shape (b,).
            indices_tuple: Pairs or triplets from a miner of pytorch-metric-learning; None for all.
            ref_emb: Embeddings (r, D) to compare the batch with instead of itself; only for pair
                losses other than lifted structure.
            ref_labels: Labels (r,) of ``ref_emb``.
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
            if isinstance(self.loss, LiftedStructureLoss):
                raise ValueError("ref_emb must be None: lifted structure needs pairs of the batch")
            ref_labels = check_labels(ref_labels, "ref_labels", ref_emb.shape[0])
            # With the very object of the labels, pairs of equal place would be left out.
            ref_labels = ref_labels.clone()
            ref_emb = ref_emb.to(dtype)
        with torch.autocast(embeddings.device.type, enabled=False):
            loss: Tensor = self.loss(
                embeddings.to(dtype), labels, indices_tuple, ref_emb, ref_labels
            )
        # Some losses would leave out terms that are NaN, whose gradients are NaN all the same.
        for vectors in (embeddings, ref_emb):
            if vectors is not None:
                loss = loss + 0 * vectors.detach().to(dtype).sum()
        return loss

    def proxy_parameters(self) -> list[nn.Parameter]:
        """Return the parameters with their own learning rate: proxies or boundaries, if any."""
        return proxies_of(self.loss)

    def centers(self) -> Tensor:
        """Return the differentiable proxies as (C, K, D), K per class.

        Raises:
            ValueError: If the loss has no proxies.
        """
        proxies = self.proxy_parameters()
        if not proxies or isinstance(self.loss, MarginLoss) or self.num_classes is None:
            raise ValueError(f"the loss {self.settings.get('name')} has no proxies")
        (weights,) = proxies
        rows = proxy_rows(self.loss, weights)
        return rows.reshape(self.num_classes, -1, self.embedding_size)

    def _dtype(self, embeddings: Tensor) -> torch.dtype:
        """Return the dtype to compute in: that of the parameters, else by the embeddings."""
        learned = next(self.loss.parameters(), None)
        if learned is None:
            return torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        dtype = learned.dtype
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"proxies must be float32 or float64, got {dtype}")
        return dtype

    def extra_repr(self) -> str:
        """Return the settings for the module's repr."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


def proxy_rows(loss: nn.Module, weights: Tensor) -> Tensor:
    """Return the proxies in ``weights`` of ``loss`` as rows, those of a class adjacent.

    ProxyAnchor stores proxies as rows, the softmax losses as columns.
    """
    return weights if isinstance(loss, ProxyAnchorLoss) else weights.T


def proxies_of(loss: nn.Module) -> list[nn.Parameter]:
    """Return ``loss.proxy_parameters()``, or all parameters if ``loss`` has no such method.

    Losses of pytorch-metric-learning have no such method; all their parameters are proxies.
    """
    own = getattr(loss, "proxy_parameters", None)
    return list(loss.parameters()) if own is None else list(own())
