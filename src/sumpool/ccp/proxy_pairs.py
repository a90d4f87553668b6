"""A pair loss between a batch and proxies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.transport import lipschitz_normalize
from sumpool.transport.validation import check_at_least_one, check_label_range


class ProxyPairs(nn.Module):
    r"""A pair loss between the images of a batch and proxies [thesis, ch. 3].

    .. math:: L = \ell(z_{1..b}, ρ) + w\,\ell(z_{1..b}, z_{1..b})

    where the loss applies its own reduction over batch × proxies, and w is 0 except in the authors'
    practice. Like embeddings, proxies are mapped into the unit ball: ρ / max(1, ‖ρ‖).

    Args:
        loss: A loss of pairs or triplets with the interface of pytorch-metric-learning:
            ``loss(embeddings, labels, None, ref_emb, ref_labels)``. It should not normalize vectors
            (``build_loss(…, normalize=False)``).
        num_classes: Number of classes C; labels lie in 0..C − 1.
        embedding_size: Length D of the embeddings.
        proxies_per_class: Number of proxies P per class.
        batch_weight: Weight w of the pairs within the batch.

    Attributes:
        proxies: Learned proxies, (C, P, D); 0 until they are drawn
            (:func:`sumpool.ccp.redraw_proxies`).

    Example:
        >>> from pytorch_metric_learning.losses import ContrastiveLoss
        >>> pairs = ProxyPairs(
        ...     ContrastiveLoss(), num_classes=2, embedding_size=2, proxies_per_class=1
        ... )
        >>> pairs.set(torch.eye(2)[:, None])
        >>> pairs(torch.eye(2), torch.tensor([0, 1])).item()
        0.0
    """

    def __init__(
        self,
        loss: nn.Module,
        num_classes: int,
        embedding_size: int,
        proxies_per_class: int = 8,
        batch_weight: float = 0.0,
    ) -> None:
        super().__init__()
        check_at_least_one(
            num_classes=num_classes,
            embedding_size=embedding_size,
            proxies_per_class=proxies_per_class,
        )
        if not batch_weight >= 0:
            raise ValueError(f"batch_weight must be at least 0, got {batch_weight}")
        self.loss = loss
        self.batch_weight = batch_weight
        self.proxies = nn.Parameter(torch.zeros(num_classes, proxies_per_class, embedding_size))
        classes = torch.arange(num_classes).repeat_interleave(proxies_per_class)
        self.register_buffer("classes", classes, persistent=False)
        self.classes: Tensor

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: Any = None) -> Tensor:
        """Return the loss of a batch, a scalar.

        Args:
            embeddings: Shape (b, D), inside the unit ball.
            labels: Integers 0..C − 1 of shape (b,).
            indices_tuple: Must be None, since images are compared with proxies.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple must be None: images are compared with proxies")
        proxies = self.centers().flatten(0, 1)
        total: Tensor = self.loss(embeddings, labels, None, proxies, self.classes)
        check_label_range(labels, len(self.proxies))  # the loss has checked the rest
        if self.batch_weight:
            total = total + self.batch_weight * self.loss(embeddings, labels)
        return total

    def centers(self) -> Tensor:
        """Return the proxies, mapped into the unit ball, (C, P, D)."""
        return lipschitz_normalize(self.proxies)

    @torch.no_grad()
    def set(self, proxies: Tensor) -> None:
        """Replace the proxies with ``proxies`` (C, P, D)."""
        if proxies.shape != self.proxies.shape:
            raise ValueError(
                f"proxies must have shape {tuple(self.proxies.shape)}, got {tuple(proxies.shape)}"
            )
        self.proxies.copy_(proxies)

    def proxy_parameters(self) -> list[nn.Parameter]:
        """Return the proxies, which the proximal pull excludes."""
        return [self.proxies]

    def extra_repr(self) -> str:
        """Return the sizes and the batch weight for the module's repr."""
        classes, count, _ = self.proxies.shape
        return f"classes={classes}, proxies_per_class={count}, batch_weight={self.batch_weight}"
