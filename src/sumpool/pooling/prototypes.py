"""Base class of poolings with prototypes, which are set from the first training batch."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sumpool.pooling.base import GlobalPool, flat_mask, zero_invalid
from sumpool.transport import greedy_k_center, lipschitz_normalize
from sumpool.transport.validation import (
    check_at_least_one,
    check_one_of,
    check_seed,
    is_integer,
    readable,
    solve_dtype,
)

#: Accepted ways to initialize the prototypes.
INITS = ("k-center", "random")


def split_embedding(embedding_size: int, option: str, parts: int) -> int:
    """Return the channels per part; ``option`` names the argument that sets the number of parts.

    Example:
        >>> split_embedding(128, "prototypes", 8)
        16
    """
    check_at_least_one(**{option: parts})
    if not is_integer(embedding_size) or embedding_size < 1 or embedding_size % parts:
        raise ValueError(
            f"embedding_size must be a positive multiple of {option}={parts}, "
            f"got {embedding_size!r}"
        )
    return embedding_size // parts


def residual_sums(plan: Tensor, features: Tensor, prototypes: Tensor) -> Tensor:
    """Sum residuals per prototype, Σ_j q_ji (f_j − ω_i), to (..., m, d) in the dtype of ``plan``.

    Args:
        plan: Shares q of shape (..., n, m).
        features: Local features f of shape (..., n, d).
        prototypes: Prototypes ω of shape (m, d).
    """
    dtype = plan.dtype
    with torch.autocast(features.device.type, enabled=False):
        # Σ q (f − ω) = Σ q f − ω Σ q avoids a tensor of size (n, m, d).
        received = plan.sum(-2).unsqueeze(-1)  # (..., m, 1)
        return plan.mT @ features.to(dtype) - received * prototypes.to(dtype)


class PrototypePool(GlobalPool):
    """Base class of poolings with prototypes in the space of local features.

    The prototypes are a parameter (m, d), drawn at random from the seed. With a data-dependent
    ``init``, the first training pass or an earlier call of :meth:`initialize_prototypes` replaces
    them, in place, by picks among local features. The buffer ``prototypes_ready``, which is part of
    checkpoints, tells whether this has happened.

    A subclass defines :meth:`assignments`, calls :meth:`reset_prototypes` in its constructor and
    starts ``pool_tokens`` with :meth:`prepare`. It may override :meth:`local_features` if
    prototypes live in another space than the input, :meth:`pick_prototypes` to pick them
    differently, and :meth:`spread_prototypes` if other parameters depend on them.

    Args:
        channels: Channels C of the input.
        prototypes: Number m of prototypes.
        dim: Channels d of the prototypes.
        init: How to initialize the prototypes, one of :attr:`inits`.
        seed: Seed of the prototype initialization.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.
    """

    #: Accepted values of ``init``.
    inits: ClassVar[tuple[str, ...]] = INITS
    #: Maximum number of local features that prototypes are picked from.
    max_init_features: ClassVar[int] = 16384

    prototypes_ready: Tensor
    _warned = False  # about random prototypes, once per layer

    def __init__(
        self,
        channels: int,
        prototypes: int,
        dim: int,
        *,
        init: str,
        seed: int,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        check_at_least_one(channels=channels)
        check_one_of(self.inits, init=init)
        self.channels = channels
        self.init = init
        self.seed = check_seed(seed)
        self.prototypes = nn.Parameter(torch.empty(prototypes, dim, device=device, dtype=dtype))
        self.register_buffer("prototypes_ready", torch.zeros((), dtype=torch.bool, device=device))
        # A copy of the buffer's value: reading a tensor in every forward pass would stall an
        # accelerator.
        self._ready = False

    @torch.no_grad()
    def reset_prototypes(self) -> None:
        """Draw random prototypes inside the unit ball from the seed."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(self.prototypes.shape, generator=generator)
        self.prototypes.copy_(lipschitz_normalize(drawn / math.sqrt(drawn.shape[-1])))
        self._mark_ready(self.init == "random")

    def initialize_prototypes(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Set the prototypes, in place, from local features of ``x``, by default greedy k-center.

        The first training pass does this with its batch. The picks depend only on ``x`` and the
        seed; in distributed training, all processes use those of the first.

        Args:
            x: Features in the layout of the layer, with at least as many valid local features as
                there are prototypes.
            mask: True for valid positions, as in :meth:`pool`.
        """
        features, positions = self.to_tokens(x)
        self._initialize(features, flat_mask(mask, x.shape[0], positions))

    def initialize_prototypes_among(self, vectors: Tensor) -> None:
        """Set the prototypes, in place, to picks among ``vectors`` (N, C), such as embeddings.

        Args:
            vectors: At least as many vectors as there are prototypes.
        """
        if vectors.ndim != 2:
            raise ValueError(f"vectors must have shape (N, C), got {tuple(vectors.shape)}")
        self._initialize(vectors.unsqueeze(0), None)

    @torch.no_grad()
    def averages(self, x: Tensor) -> Tensor:
        """Mean local feature of each image of ``x``, (B, d): candidates for prototypes."""
        return self.local_features(self.to_tokens(x)[0]).mean(1)

    def plan(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the share of each image that each position sends to each prototype.

        For figures and analysis; does not initialize the prototypes.

        Args:
            x: Features in the layout of the layer.
            mask: True for valid positions, as in :meth:`pool`; invalid ones hold no mass.

        Returns:
            A tensor of shape (B, m, H, W), or (B, m, L) for sequences, that sums to 1 per image.
        """
        features, positions = self.to_tokens(x)
        self.check_channels(features)
        mask = flat_mask(mask, x.shape[0], positions)
        features = zero_invalid(features, mask)
        shares = self.assignments(self.local_features(features), mask)  # (B, n, m)
        plan: Tensor = shares.mT.unflatten(-1, positions)
        return plan

    @abstractmethod
    def assignments(self, local: Tensor, mask: Tensor | None) -> Tensor:
        """Return the shares (B, n, m) of :meth:`plan` from local features (B, n, d)."""

    def local_features(self, features: Tensor) -> Tensor:
        """Map ``features`` (..., C) to the space of the prototypes, (..., d); here the identity."""
        return features

    def pick_prototypes(self, local: Tensor) -> Tensor:
        """Pick prototypes (m, d) from local features (N, d); greedy k-center [gonzalez85] here."""
        local = lipschitz_normalize(local)
        return local[greedy_k_center(local, self.prototypes.shape[0])]

    def spread_prototypes(self, local: Tensor) -> None:
        """Set parameters that depend on the prototypes just picked from ``local`` (N, d)."""

    def prepare(self, features: Tensor, mask: Tensor | None) -> None:
        """Check ``features`` (B, n, C); set the prototypes in the first training pass."""
        self.check_channels(features)
        if self.is_ready():
            return
        if self.training:
            if torch.compiler.is_compiling():
                raise RuntimeError(
                    "prototypes are not initialized: call initialize_prototypes with the features "
                    "of a first batch before the compiled training step"
                )
            self._initialize(features, mask)
        elif not (self._warned or torch.compiler.is_compiling()):
            self._warned = True
            warnings.warn(
                "prototypes are not set yet, and random ones are used: train the layer, load its "
                "weights, or call initialize_prototypes with features of a batch",
                stacklevel=2,
            )

    def is_ready(self) -> bool:
        """Whether the prototypes are set, here or by whoever wrote the buffer, as averages do."""
        if not self._ready and readable() and not self.prototypes_ready.is_meta:
            self._read_buffers()
        return self._ready

    @torch.no_grad()
    def _initialize(self, features: Tensor, mask: Tensor | None) -> None:
        self.check_channels(features)
        local = features.flatten(0, 1) if mask is None else features[mask]  # (N, C)
        count = self.prototypes.shape[0]
        if local.shape[0] < count:
            raise ValueError(
                f"initializing {count} prototypes needs at least as many local features, got "
                f"{local.shape[0]}: call initialize_prototypes with a larger batch, or build the "
                "layer with init='random'"
            )
        if not bool(local.isfinite().all()):
            raise ValueError(
                "initializing prototypes needs finite features, but the batch holds NaN or infinity"
            )
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(local.shape[0], generator=generator)[: self.max_init_features]
        local = self.local_features(local[order.to(local.device)])  # (N, d)
        local = local.to(solve_dtype(local))
        self.prototypes.copy_(self.pick_prototypes(local))
        self.spread_prototypes(local)
        if dist.is_available() and dist.is_initialized():
            # Each process has its own batch; all continue with the picks of the first.
            for parameter in self.prototype_parameters():
                dist.broadcast(parameter, src=0)
        self._mark_ready(True)

    def prototype_parameters(self) -> tuple[nn.Parameter, ...]:
        """Return the parameters set by the initialization."""
        return (self.prototypes,)

    def _mark_ready(self, ready: bool) -> None:
        self._ready = ready
        self.prototypes_ready.fill_(ready)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._read_buffers()

    def _read_buffers(self) -> None:
        self._ready = bool(self.prototypes_ready)
