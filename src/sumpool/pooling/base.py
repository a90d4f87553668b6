"""Base classes of the pooling layers: input layouts, masks and the common output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from sumpool.transport.k_center import zero_invalid as zero_invalid
from sumpool.transport.validation import (
    check_floating,
    check_mask,
    check_one_of,
    is_integer,
    solve_dtype,
)

#: Accepted input layouts of maps (2d) and token sequences (1d).
FORMATS_2D = ("NCHW", "NHWC")
FORMATS_1D = ("NLC", "NCL")


class Pooled(NamedTuple):
    """Output of :meth:`GlobalPool.pool`.

    Attributes:
        embedding: One vector per image, (B, C).
        weights: Share of each position in the embedding, (B, H, W) for maps and (B, L) for
            sequences, without prefix tokens; None if the pooling has no such weights.
        attributes: Pseudo-attributes, (B, m); None if the pooling has none.
    """

    embedding: Tensor
    weights: Tensor | None
    attributes: Tensor | None


class GlobalPool(nn.Module, ABC):
    """Base class of the pooling layers: features in any layout to one vector per image.

    A subclass defines :meth:`pool_tokens` on features of shape (B, n, C). Calling the module
    returns the embedding alone, as timm's pooling layers do, so that it can replace them;
    :meth:`pool` also returns weights and attributes.

    Args:
        flatten: Whether the embedding has shape (B, C) or keeps the pooled dimensions with size 1.
        input_fmt: Layout of the input: "NCHW" (default) or "NHWC" for maps, "NLC" (default) or
            "NCL" for token sequences.
        num_prefix_tokens: Number of leading tokens (class, register) of a sequence to drop; 0 for
            maps.

    Layers with parameters also accept their ``device`` and ``dtype``.
    """

    #: Name, as in timm's ``SelectAdaptivePool2d.pool_type``.
    pool_type: ClassVar[str]
    #: Where the linear map to the embedding size belongs: "before" the pooling, on every local
    #: feature; "after" it, on the pooled vector; or "inside", if the pooling has its own map and
    #: takes the embedding size as an argument.
    linear_map: ClassVar[Literal["before", "after", "inside"]] = "after"
    #: Whether :meth:`pool` returns pseudo-attributes.
    has_attributes: ClassVar[bool] = False
    #: Required number of input channels; None for any number.
    channels: int | None = None
    #: Length of the pooled vector; None for the number of input channels.
    embedding_size: int | None = None
    _formats: ClassVar[tuple[str, ...]]

    def __init__(
        self, flatten: bool = True, input_fmt: str | None = None, num_prefix_tokens: int = 0
    ) -> None:
        super().__init__()
        input_fmt = input_fmt or self._formats[0]
        check_one_of(self._formats, input_fmt=input_fmt)
        if (
            not is_integer(num_prefix_tokens)
            or num_prefix_tokens < 0
            or (num_prefix_tokens and "L" not in input_fmt)
        ):
            raise ValueError(
                "num_prefix_tokens must be an integer of at least 0 for sequences and 0 for maps, "
                f"got {num_prefix_tokens!r}"
            )
        self.flatten = flatten
        self.input_fmt = input_fmt
        self.num_prefix_tokens = num_prefix_tokens

    @abstractmethod
    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C), with weights of shape (B, n).

        If ``details`` is False, weights and attributes may be omitted where they need extra
        computation.
        """

    def pool(self, x: Tensor, mask: Tensor | None = None) -> Pooled:
        """Pool ``x``; also return weights and attributes.

        Args:
            x: Features in the layout ``input_fmt``.
            mask: True for valid positions: (B, H, W) for maps, (B, L) for sequences, where L
                excludes the prefix tokens.

        Returns:
            A :class:`Pooled`, whose embedding is always (B, C).
        """
        return self._pool(x, mask, details=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the embedding of ``x``: (B, C), or with pooled dimensions of size 1."""
        embedding = self._pool(x, mask, details=False).embedding
        if self.flatten:
            return embedding
        shape = [x.shape[0]] + [1] * (x.ndim - 1)
        shape[self.input_fmt.index("C")] = embedding.shape[-1]
        return embedding.reshape(shape)

    def _pool(self, x: Tensor, mask: Tensor | None, details: bool) -> Pooled:
        features, positions = self.to_tokens(x)
        self.check_channels(features)
        out = self.pool_tokens(features, flat_mask(mask, x.shape[0], positions), details)
        weights = None if out.weights is None else out.weights.unflatten(-1, positions)
        return Pooled(out.embedding, weights, out.attributes)

    def to_tokens(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Return ``x`` as (B, n, C), a view where possible, and the shape of its positions."""
        check_floating("x", x)
        if x.ndim != len(self.input_fmt):
            raise ValueError(
                f"x must have {len(self.input_fmt)} dimensions ({self.input_fmt}), "
                f"got shape {tuple(x.shape)}"
            )
        channels = self.input_fmt.index("C")
        if channels == 1:
            positions = tuple(x.shape[2:])
            features = x.flatten(2).transpose(1, 2)
        else:
            positions = tuple(x.shape[1:-1])
            features = x.flatten(1, -2)
        if self.num_prefix_tokens:
            if features.shape[1] <= self.num_prefix_tokens:
                raise ValueError(
                    f"x has {features.shape[1]} tokens, which leaves none behind "
                    f"num_prefix_tokens={self.num_prefix_tokens}"
                )
            features = features[:, self.num_prefix_tokens :]
            positions = (features.shape[1],)
        if features.shape[1] < 1:
            raise ValueError(f"x must have at least one position, got shape {tuple(x.shape)}")
        return features, positions

    def check_channels(self, features: Tensor) -> None:
        """Raise a ValueError unless ``features`` (B, n, C) have :attr:`channels` channels."""
        if self.channels is not None and features.shape[-1] != self.channels:
            raise ValueError(
                f"x must have {self.channels} channels in the layout {self.input_fmt}, "
                f"got {features.shape[-1]}"
            )

    def reset_parameters(self) -> None:
        """Reinitialize all parameters."""
        # Inner layers first: those around them may initialize them differently.
        for layer in reversed([*self.modules()][1:]):
            if reset := getattr(layer, "reset_parameters", None):
                reset()

    def out_channels(self, channels: int) -> int:
        """Length of the pooled vector for features with ``channels`` channels."""
        return channels if self.embedding_size is None else self.embedding_size

    def feat_mult(self) -> int:
        """Embedding channels per input channel, rounded down; part of timm's pooling interface."""
        return 1 if self.channels is None else self.out_channels(self.channels) // self.channels

    def is_identity(self) -> bool:
        """Return False; part of timm's pooling interface."""
        return False


class MapPool(GlobalPool):
    """Base class of pooling layers that use neighboring positions: maps only, without a mask.

    A subclass defines :meth:`pool_map` on maps of shape (B, C, H, W).
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_2D

    @abstractmethod
    def pool_map(self, x: Tensor, details: bool = True) -> Pooled:
        """Pool maps ``x`` (B, C, H, W), with weights of shape (B, H·W)."""

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Raise a TypeError: the layer needs the positions of local features."""
        raise TypeError(f"the pooling {self.pool_type!r} needs maps, not a set of local features")

    def _pool(self, x: Tensor, mask: Tensor | None, details: bool) -> Pooled:
        features, positions = self.to_tokens(x)
        self.check_channels(features)
        if mask is not None:
            raise ValueError(
                f"mask must be None for the pooling {self.pool_type!r}, which looks at neighbors"
            )
        out = self.pool_map(x if self.input_fmt == "NCHW" else x.permute(0, 3, 1, 2), details)
        weights = None if out.weights is None else out.weights.unflatten(-1, positions)
        return Pooled(out.embedding, weights, out.attributes)


def masked_mean(features: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of the valid ``features`` (..., n, C), of shape (..., C) in their dtype."""
    if mask is None:
        return features.mean(-2)
    total = zero_invalid(features, mask).sum(-2, dtype=solve_dtype(features))
    return (total / mask.sum(-1, keepdim=True)).to(features.dtype)


def equal_weights(features: Tensor, mask: Tensor | None) -> Tensor:
    """Weights of average pooling for ``features`` (B, n, C): 1/n at the n valid positions, (B, n).

    In the dtype of the solver: float32, or float64 for float64 features.
    """
    dtype = solve_dtype(features)
    if mask is None:
        share = features.new_full((), 1 / features.shape[1], dtype=dtype)
        return share.expand(features.shape[:2])
    return mask.to(dtype) / mask.sum(-1, keepdim=True)


def flat_mask(mask: Tensor | None, batch: int, positions: tuple[int, ...]) -> Tensor | None:
    """Check ``mask`` against the shape of the positions and flatten it to (B, n)."""
    if mask is None:
        return None
    if mask.shape != (batch, *positions):
        raise ValueError(f"mask must have shape {(batch, *positions)}, got {tuple(mask.shape)}")
    mask = mask.flatten(1)
    check_mask(mask, tuple(mask.shape))
    return mask
