"""What all global poolings share: formats, masks, shapes, and one structured output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from sumpool.transport.validation import check_mask, check_one_of, solve_dtype

#: Accepted layouts by dimensionality: maps (2d) and token sequences (1d).
FORMATS_2D = ("NCHW", "NHWC")
FORMATS_1D = ("NLC", "NCL")


class Pooled(NamedTuple):
    """The output of a pooling, the same for all of them.

    Attributes:
        embedding: One vector per image, (B, C).
        weights: The share each position has in it, (B, H, W) for maps and (B, L) for sequences,
            without prefix tokens; None where a pooling has no such weights.
        attributes: Pseudo-attributes, (B, m); None where a pooling has none.
    """

    embedding: Tensor
    weights: Tensor | None
    attributes: Tensor | None


class GlobalPool(nn.Module, ABC):
    """Base of the poolings: reads any layout, gives one vector per image.

    A subclass defines :meth:`pool_tokens` on features of shape (B, n, C). Calling the module gives
    the embedding alone, as timm's poolings do, so that it can stand in their place; :meth:`pool`
    gives weights and attributes too.

    Args:
        flatten: Whether the embedding is (B, C) or keeps its pooled dimensions as 1.
        input_fmt: Layout of the input: "NCHW" (default) or "NHWC" for maps, "NLC" (default) or
            "NCL" for token sequences.
        num_prefix_tokens: Leading tokens of a sequence (class, register) that are dropped; 0 for
            maps.

    Poolings with parameters also take the ``device`` and the ``dtype`` of these.
    """

    #: Name, like timm's ``SelectAdaptivePool2d.pool_type``.
    pool_type: ClassVar[str]
    #: Where the linear map to the embedding size belongs: "before" the pooling, on every local
    #: feature; "after" it, on the pooled vector; or "inside", where the pooling has its own and
    #: takes the embedding size as an argument.
    linear_map: ClassVar[Literal["before", "after", "inside"]] = "after"
    #: Whether :meth:`pool` gives pseudo-attributes.
    has_attributes: ClassVar[bool] = False
    #: Channels the input must have; None for any number.
    channels: int | None = None
    _formats: ClassVar[tuple[str, ...]]

    def __init__(
        self, flatten: bool = True, input_fmt: str | None = None, num_prefix_tokens: int = 0
    ) -> None:
        super().__init__()
        input_fmt = input_fmt or self._formats[0]
        check_one_of(self._formats, input_fmt=input_fmt)
        if num_prefix_tokens < 0 or (num_prefix_tokens and "L" not in input_fmt):
            raise ValueError(
                "num_prefix_tokens must be at least 0 for sequences and 0 for maps, "
                f"got {num_prefix_tokens}"
            )
        self.flatten = flatten
        self.input_fmt = input_fmt
        self.num_prefix_tokens = num_prefix_tokens

    @abstractmethod
    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C), with weights of shape (B, n).

        ``details`` says whether weights and attributes are wanted; without it a pooling may leave
        out what it would have to compute for them alone.
        """

    def pool(self, x: Tensor, mask: Tensor | None = None) -> Pooled:
        """Pool ``x``, with weights and attributes.

        Args:
            x: Features in the layout ``input_fmt``.
            mask: True for valid positions: (B, H, W) for maps, (B, L) for sequences, where L
                counts the tokens left after the prefix.

        Returns:
            A :class:`Pooled`, its embedding always (B, C).
        """
        return self._pool(x, mask, details=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The embedding of ``x``, (B, C), or with the pooled dimensions kept as 1."""
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
        """``x`` as (B, n, C), a view where possible, and the shape of its positions."""
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
        """Raise unless ``features`` (B, n, C) have the channels the layer was built for."""
        if self.channels is not None and features.shape[-1] != self.channels:
            raise ValueError(
                f"x must have {self.channels} channels in the layout {self.input_fmt}, "
                f"got {features.shape[-1]}"
            )

    def out_channels(self, channels: int) -> int:
        """Length of the pooled vector for features with ``channels`` channels."""
        return channels

    def feat_mult(self) -> int:
        """Embedding channels per input channel, part of timm's pooling interface."""
        return 1

    def is_identity(self) -> bool:
        """False, since a pooling always pools; part of timm's pooling interface."""
        return False


class MapPool(GlobalPool):
    """Base of the poolings that look at neighboring positions: maps only, all of them valid.

    A subclass defines :meth:`pool_map` on maps of shape (B, C, H, W).
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_2D

    @abstractmethod
    def pool_map(self, x: Tensor, details: bool = True) -> Pooled:
        """Pool maps ``x`` (B, C, H, W), with weights of shape (B, H, W)."""

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Raise: local features without their positions are not enough."""
        raise TypeError(f"the pooling {self.pool_type!r} needs maps, not a set of local features")

    def _pool(self, x: Tensor, mask: Tensor | None, details: bool) -> Pooled:
        self.check_channels(self.to_tokens(x)[0])
        if mask is not None:
            raise ValueError(
                f"mask must be None for the pooling {self.pool_type!r}, which looks at neighbors"
            )
        return self.pool_map(x if self.input_fmt == "NCHW" else x.permute(0, 3, 1, 2), details)


def zero_invalid(features: Tensor, mask: Tensor | None) -> Tensor:
    """``features`` (..., n, C) with 0 at invalid positions, whatever stands there."""
    return features if mask is None else features.masked_fill(~mask.unsqueeze(-1), 0)


def equal_weights(features: Tensor, mask: Tensor | None) -> Tensor:
    """Weights of average pooling for ``features`` (B, n, C): 1/n at the n valid positions, (B, n).

    In the dtype of the solver: float32 or more.
    """
    dtype = solve_dtype(features)
    if mask is None:
        share = features.new_full((), 1 / features.shape[1], dtype=dtype)
        return share.expand(features.shape[:2])
    return mask.to(dtype) / mask.sum(-1, keepdim=True)


def flat_mask(mask: Tensor | None, batch: int, positions: tuple[int, ...]) -> Tensor | None:
    """``mask`` as (B, n), checked against the positions it is for."""
    if mask is None:
        return None
    if mask.shape != (batch, *positions):
        raise ValueError(f"mask must have shape {(batch, *positions)}, got {tuple(mask.shape)}")
    mask = mask.flatten(1)
    check_mask(mask, tuple(mask.shape))
    return mask
