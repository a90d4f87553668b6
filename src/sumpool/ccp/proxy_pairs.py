"""A pair loss between a batch and proxies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sumpool.transport import lipschitz_normalize


class ProxyPairs(nn.Module):
    r"""Any pair loss, its pairs being those of an image of the batch with a proxy [thesis, ch. 3].

    .. math:: L = \ell(z_{1..b}, ρ) + w\,\ell(z_{1..b}, z_{1..b})

    where ℓ is reduced over batch × proxies as the loss itself does, and w is 0 except in the
    authors' practice. Proxies stand for embeddings, so they are brought into the unit ball too:
    ρ / max(1, ‖ρ‖).

    Args:
        loss: A loss of pairs or triplets, called as those of pytorch-metric-learning are:
            ``loss(embeddings, labels, None, ref_emb, ref_labels)``. It should take vectors as they
            are (``build_loss(…, normalize=False)``).
        num_classes: Classes C; labels lie in 0..C − 1.
        embedding_size: Size D of the embeddings.
        proxies_per_class: Proxies P of a class.
        batch_weight: w, the weight of the pairs inside the batch.

    Attributes:
        proxies: What is learned, (C, P, D). They are 0 until they are drawn
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
        for name, value in (
            ("num_classes", num_classes),
            ("embedding_size", embedding_size),
            ("proxies_per_class", proxies_per_class),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if batch_weight < 0:
            raise ValueError(f"batch_weight must be at least 0, got {batch_weight}")
        self.loss = loss
        self.batch_weight = batch_weight
        self.proxies = nn.Parameter(torch.zeros(num_classes, proxies_per_class, embedding_size))
        classes = torch.arange(num_classes).repeat_interleave(proxies_per_class)
        self.register_buffer("classes", classes, persistent=False)
        self.classes: Tensor

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: Any = None) -> Tensor:
        """The loss of a batch, a scalar.

        Args:
            embeddings: Shape (b, D), inside the unit ball.
            labels: Integers of shape (b,).
            indices_tuple: Must be None: images are compared with proxies.
        """
        if indices_tuple is not None:
            raise ValueError("indices_tuple must be None: images are compared with proxies")
        proxies = self.centers().flatten(0, 1)
        total: Tensor = self.loss(embeddings, labels, None, proxies, self.classes)
        if self.batch_weight:
            total = total + self.batch_weight * self.loss(embeddings, labels)
        return total

    def centers(self) -> Tensor:
        """The proxies inside the unit ball, (C, P, D)."""
        return lipschitz_normalize(self.proxies)

    @torch.no_grad()
    def set(self, proxies: Tensor) -> None:
        """Replace the proxies by ``proxies`` (C, P, D)."""
        if proxies.shape != self.proxies.shape:
            raise ValueError(
                f"proxies must have shape {tuple(self.proxies.shape)}, got {tuple(proxies.shape)}"
            )
        self.proxies.copy_(proxies)

    def proxy_parameters(self) -> list[nn.Parameter]:
        """The proxies, to which no proximal pull applies."""
        return [self.proxies]

    def extra_repr(self) -> str:
        """What it is, for ``print``."""
        classes, count, _ = self.proxies.shape
        return f"classes={classes}, proxies_per_class={count}, batch_weight={self.batch_weight}"
