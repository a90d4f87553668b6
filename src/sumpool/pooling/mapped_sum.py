"""Base class of the combinations with GSP: a linear map, and GSP on the mapped features."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import mapped
from sumpool.pooling.base import GlobalPool, flat_mask
from sumpool.pooling.generalized_sum import GeneralizedSumPool1d
from sumpool.transport.validation import check_at_least_one

T = TypeVar("T")


def forwards_to(target: type) -> Callable[[type[T]], type[T]]:
    """Class decorator: show the arguments that ``**options`` forwards to ``target`` as its own."""

    def decorate(cls: type[T]) -> type[T]:
        own = inspect.signature(cls.__init__).parameters
        named = [p for p in own.values() if p.name != "self" and p.kind is not p.VAR_KEYWORD]
        further = [
            p.replace(kind=p.KEYWORD_ONLY)
            for p in inspect.signature(target).parameters.values()
            if p.name not in own
        ]
        cls.__signature__ = inspect.Signature([*named, *further])  # type: ignore[attr-defined]
        return cls

    return decorate


@forwards_to(GeneralizedSumPool1d)
class MappedSumPool(GlobalPool):
    """Base class of poolings with a linear map W without bias and GSP on the mapped features.

    A subclass defines ``pool_tokens`` with :attr:`map` and :attr:`gsp`. Weights, attributes and
    prototypes are those of GSP.

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.
        **gsp: Further arguments of :class:`GeneralizedSumPool2d`.
    """

    linear_map = "inside"
    has_attributes = True

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        prototypes: int = 64,
        mu: float = 0.3,
        eps: float = 5.0,
        *,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **gsp: Any,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels, embedding_size=embedding_size)
        self.channels = channels
        self.embedding_size = embedding_size
        self.map = nn.Linear(channels, embedding_size, bias=False, device=device, dtype=dtype)
        self.gsp = GeneralizedSumPool1d(
            embedding_size, prototypes, mu, eps, device=device, dtype=dtype, **gsp
        )

    @property
    def prototypes(self) -> Tensor:
        """The prototypes of GSP, (m, D)."""
        return self.gsp.prototypes

    @property
    def prototypes_ready(self) -> Tensor:
        """Whether the prototypes have been set from features, a boolean scalar."""
        return self.gsp.prototypes_ready

    @property
    def background(self) -> bool:
        """Whether the prototypes describe the features left out."""
        return self.gsp.background

    @property
    def averaging(self) -> bool:
        """Whether GSP does average pooling and does not initialize its prototypes."""
        return self.gsp.averaging

    @averaging.setter
    def averaging(self, value: bool) -> None:
        self.gsp.averaging = value

    @property
    def eps(self) -> float | Tensor:
        """The inverse smoothing ε of GSP."""
        return self.gsp.eps

    @torch.no_grad()
    def initialize_prototypes(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Set the prototypes, in place, from the mapped local features of ``x``.

        Args:
            x: Features in the layout of the layer, before the map.
            mask: True for valid positions, as in :meth:`pool`.
        """
        features, positions = self.to_tokens(x)
        mask = flat_mask(mask, x.shape[0], positions)
        self.gsp.initialize_prototypes(self.mapped(features), mask)

    def initialize_prototypes_among(self, vectors: Tensor) -> None:
        """As :meth:`PrototypePool.initialize_prototypes_among`, for mapped vectors (N, D)."""
        self.gsp.initialize_prototypes_among(vectors)

    @torch.no_grad()
    def sharpen(self, x: Tensor, mask: Tensor | None = None) -> None:
        """As :meth:`GeneralizedSumPool2d.sharpen`, for features before the map."""
        features, positions = self.to_tokens(x)
        self.gsp.sharpen(self.mapped(features), flat_mask(mask, x.shape[0], positions))

    @torch.no_grad()
    def averages(self, x: Tensor) -> Tensor:
        """Mean mapped feature of each image of ``x``, (B, D): candidates for prototypes."""
        return self.mapped(self.to_tokens(x)[0]).mean(1)

    def plan(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Transport plan of GSP, see :meth:`GeneralizedSumPool2d.plan`.

        Args:
            x: Features in the layout of the layer, before the map.
            mask: True for valid positions, as in :meth:`pool`.

        Returns:
            A tensor of shape (B, m, H, W), or (B, m, L) for sequences, that sums to 1 per image.
        """
        features, positions = self.to_tokens(x)
        mask = flat_mask(mask, x.shape[0], positions)
        plan: Tensor = self.gsp.plan(self.mapped(features), mask).unflatten(-1, positions)
        return plan

    def mapped(self, features: Tensor) -> Tensor:
        """Map ``features`` (B, n, C) to (B, n, D)."""
        self.check_channels(features)
        return mapped(self.map, features)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        return f"flatten={self.flatten}, input_fmt={self.input_fmt!r}"
