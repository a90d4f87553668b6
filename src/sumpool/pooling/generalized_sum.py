"""Generalized sum pooling (GSP): the learnable layer in place of average pooling."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, GlobalPool, Pooled, flat_mask
from sumpool.transport import (
    Solver,
    greedy_k_center,
    lipschitz_normalize,
    partial_transport,
    prototype_costs,
    sum_pool,
)
from sumpool.transport.checks import check_eps, check_mu, solve_dtype
from sumpool.transport.solve import resolve_solver

#: Accepted ways to set the prototypes at the start.
INITS = ("k-center", "random")


class _GeneralizedSumPool(GlobalPool):
    """Parameters, their initialisation and the one call; the twins below name the layouts."""

    pool_type: ClassVar[str] = "gsp"
    linear_map: ClassVar[Literal["before", "after", "inside"]] = "before"
    has_attributes: ClassVar[bool] = True

    #: Most local features that the prototypes are picked from.
    max_init_features: ClassVar[int] = 16384

    prototypes_ready: Tensor

    def __init__(
        self,
        channels: int,
        prototypes: int = 64,
        mu: float = 0.3,
        eps: float = 5.0,
        *,
        learn_mu: bool = False,
        learn_eps: bool = False,
        background: bool = False,
        solver: str | Solver = "exact",
        fused: bool | None = None,
        init: str = "k-center",
        seed: int = 0,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(flatten, input_fmt, num_prefix_tokens)
        if channels < 1:
            raise ValueError(f"channels must be at least 1, got {channels}")
        if prototypes < 1:
            raise ValueError(f"prototypes must be at least 1, got {prototypes}")
        if init not in INITS:
            raise ValueError(f"init must be one of {INITS}, got {init!r}")
        check_mu(mu)
        check_eps(eps)
        if mu == 1 and (learn_mu or background):
            raise ValueError(f"mu must be below 1 with learn_mu or background, got {mu}")
        resolve_solver(solver)
        self.channels = channels
        self.background = background
        self.solver = solver
        self.fused = fused
        self.init = init
        self.seed = seed
        self._mu, self._eps = float(mu), float(eps)
        self.prototypes = nn.Parameter(
            torch.empty(prototypes, channels, device=device, dtype=dtype)
        )

        # Kept in an unbounded form, so that a step never leaves (0, 1) and (0, ∞).
        def scalar() -> nn.Parameter:
            return nn.Parameter(torch.empty((), device=device, dtype=dtype))

        self.mu_logit = scalar() if learn_mu else None
        self.log_eps = scalar() if learn_eps else None
        self.register_buffer("prototypes_ready", torch.zeros((), dtype=torch.bool, device=device))
        # The buffer goes into checkpoints. Its value is kept here too, since reading a tensor in
        # every forward pass would stall an accelerator.
        self._ready = False
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random prototypes inside the unit ball, from the seed; μ and ε as given."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(self.prototypes.shape, generator=generator) / math.sqrt(self.channels)
        with torch.no_grad():
            self.prototypes.copy_(lipschitz_normalize(drawn))
            if self.mu_logit is not None:
                self.mu_logit.fill_(math.log(self._mu) - math.log1p(-self._mu))
            if self.log_eps is not None:
                self.log_eps.fill_(math.log(self._eps))
        self._mark_ready(self.init == "random")

    @property
    def mu(self) -> float | Tensor:
        """The share μ: a number, or a tensor where it is learned."""
        return self._mu if self.mu_logit is None else self.mu_logit.sigmoid()

    @property
    def eps(self) -> float | Tensor:
        """The inverse smoothing ε: a number, or a tensor where it is learned."""
        return self._eps if self.log_eps is None else self.log_eps.exp()

    def initialize_prototypes(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Set the prototypes, in place, to local features of ``x`` picked by greedy k-centre.

        The first training pass does this with its batch. The pick depends on ``x`` and the seed
        alone; of several processes that train together, all take the pick of the first.

        Args:
            x: Features in the layout of the layer; they must hold at least as many valid local
                features as there are prototypes.
            mask: True for valid positions, as in :meth:`pool`.
        """
        features, positions = self.to_tokens(x)
        self._initialize(features, flat_mask(mask, x.shape[0], positions))

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C) by the transport to the prototypes."""
        self._check_channels(features)
        if self.training and not self._ready:
            if torch.compiler.is_compiling():
                raise RuntimeError(
                    "prototypes are not initialised: call initialize_prototypes with the features "
                    "of a first batch before the compiled training step"
                )
            self._initialize(features, mask)
        out = sum_pool(
            features,
            self.prototypes,
            self.mu,
            self.eps,
            mask=mask,
            background=self.background,
            solver=self.solver,
            attributes=details,
            fused=self.fused,
        )
        return Pooled(*out)

    def plan(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Where the pooled mass comes from and goes to: π_ij/μ, for figures and analysis.

        Over the positions it sums to the attributes z_i; over the prototypes to the weights p_j
        (with ``background``, where the weights are what stays behind, to the share that leaves).

        Args:
            x: Features in the layout of the layer.
            mask: True for valid positions, as in :meth:`pool`; others hold no mass.

        Returns:
            A tensor of shape (B, m, H, W), or (B, m, L) for sequences, that sums to 1 per image.
        """
        features, positions = self.to_tokens(x)
        self._check_channels(features)
        mask = flat_mask(mask, x.shape[0], positions)
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), 0)  # whatever stands there
        cost = prototype_costs(features, self.prototypes)  # (B, n, m)
        result = partial_transport(cost, self.mu, self.eps, mask=mask, solver=self.solver)
        plan: Tensor = (result.plan() / self.mu).mT.unflatten(-1, positions)
        return plan

    @torch.no_grad()
    def _initialize(self, features: Tensor, mask: Tensor | None) -> None:
        self._check_channels(features)
        local = features.flatten(0, 1) if mask is None else features[mask]  # (N, C)
        count = self.prototypes.shape[0]
        if local.shape[0] < count:
            raise ValueError(
                f"initialising {count} prototypes needs at least as many local features, got "
                f"{local.shape[0]}: call initialize_prototypes with a larger batch, or build the "
                "layer with init='random'"
            )
        if not bool(local.isfinite().all()):
            raise ValueError(
                "initialising prototypes needs finite features, but the batch holds NaN or infinity"
            )
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(local.shape[0], generator=generator)[: self.max_init_features]
        local = lipschitz_normalize(local[order.to(local.device)].to(solve_dtype(local)))
        self.prototypes.copy_(local[greedy_k_center(local, count)])
        if dist.is_available() and dist.is_initialized():
            # Each process has seen a batch of its own; all go on with what the first one picked.
            dist.broadcast(self.prototypes, src=0)
        self._mark_ready(True)

    def _mark_ready(self, ready: bool) -> None:
        self._ready = ready
        self.prototypes_ready.fill_(ready)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._ready = bool(self.prototypes_ready)

    def _check_channels(self, features: Tensor) -> None:
        if features.shape[-1] != self.channels:
            raise ValueError(
                f"x must have {self.channels} channels in the layout {self.input_fmt}, "
                f"got {features.shape[-1]}"
            )

    def extra_repr(self) -> str:
        """What the layer is, for ``print``."""
        mu = f"{self._mu}" + (" (learned)" if self.mu_logit is not None else "")
        eps = f"{self._eps}" + (" (learned)" if self.log_eps is not None else "")
        return (
            f"{self.channels}, prototypes={self.prototypes.shape[0]}, mu={mu}, eps={eps}, "
            f"background={self.background}, solver={self.solver!r}, flatten={self.flatten}, "
            f"input_fmt={self.input_fmt!r}"
        )


class GeneralizedSumPool2d(_GeneralizedSumPool):
    r"""Generalized sum pooling of feature maps [gsp].

    Pools Σ_j p_j f_j with weights p that solve, per image, the transport of the share μ of the
    features to learned prototypes: features near a prototype are kept, the rest is dropped.
    μ = 1 is average pooling. Channels in, channels out; a 1×1 map to the embedding size belongs
    before it.

    Args:
        channels: Channels C of the input.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0; large selects sharply, small tends to average pooling.
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        background: Reverse the roles: the prototypes describe what is left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels: None where they apply, True or False.
        init: "k-center" sets the prototypes from the features of the first training batch, before
            the first step; "random" leaves them as drawn.
        seed: Seed of the prototypes' initialisation.
        flatten: Whether the embedding is (B, C) or keeps the pooled dimensions as 1.
        input_fmt: "NCHW" (default) or "NHWC".
        num_prefix_tokens: Must be 0 for maps.
        device: Where the parameters are put.
        dtype: Dtype of the parameters.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> layer = GeneralizedSumPool2d(8, prototypes=4, mu=0.3)
        >>> out = layer.pool(torch.randn(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]), torch.Size([2, 4]))
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_2D


class GeneralizedSumPool1d(_GeneralizedSumPool):
    """Generalized sum pooling of token sequences; see :class:`GeneralizedSumPool2d`.

    Args:
        channels: Channels C of the input.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each sequence that is pooled.
        eps: Inverse smoothing ε > 0.
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        background: Reverse the roles: the prototypes describe what is left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels: None where they apply, True or False.
        init: "k-center" or "random".
        seed: Seed of the prototypes' initialisation.
        flatten: Whether the embedding is (B, C) or keeps the pooled dimension as 1.
        input_fmt: "NLC" (default) or "NCL".
        num_prefix_tokens: Leading tokens that are dropped: the class and register tokens of a ViT.
        device: Where the parameters are put.
        dtype: Dtype of the parameters.

    Example:
        >>> layer = GeneralizedSumPool1d(8, prototypes=4, num_prefix_tokens=1)
        >>> layer(torch.randn(2, 50, 8)).shape
        torch.Size([2, 8])
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_1D
