"""Generalized sum pooling (GSP), a learnable replacement for average pooling."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sumpool.pooling.affine import affine
from sumpool.pooling.base import (
    FORMATS_1D,
    FORMATS_2D,
    Pooled,
    equal_weights,
    flat_mask,
    zero_invalid,
)
from sumpool.pooling.prototypes import PrototypePool
from sumpool.transport import (
    Solver,
    TransportResult,
    cosine_costs,
    eps_for_spread,
    partial_transport,
    prototype_costs,
    relative_norms,
    sum_pool,
)
from sumpool.transport.exact import logit
from sumpool.transport.plain import weighted_sum
from sumpool.transport.solve import resolve_solver
from sumpool.transport.validation import (
    LEAST_SHARE,
    check_at_least_one,
    check_eps,
    check_mu,
    check_numbers,
    check_one_of,
)

#: Accepted costs.
COSTS = ("ball", "cosine", "norm")
#: Accepted ways to set the share μ.
SHARES = ("fixed", "image")
#: Initial weight of the norm in the cost "norm".
NORM_WEIGHT = 0.5


class _GeneralizedSumPool(PrototypePool):
    """Implementation shared by the 2d and 1d layers."""

    pool_type = "gsp"
    linear_map = "before"
    has_attributes = True

    found_eps: Tensor

    def __init__(
        self,
        channels: int,
        prototypes: int = 64,
        mu: float = 0.3,
        eps: float = 5.0,
        *,
        spread: float | None = None,
        learn_mu: bool = False,
        learn_eps: bool = False,
        cost: str = "ball",
        share: str = "fixed",
        mix: float | None = None,
        learn_mix: bool = False,
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
        check_at_least_one(prototypes=prototypes)
        check_mu(mu)
        check_eps(eps)
        check_numbers(mix=mix, spread=spread)
        check_one_of(COSTS, cost=cost)
        check_one_of(SHARES, share=share)
        if mu == 1 and (learn_mu or background):
            raise ValueError(f"mu must be below 1 with learn_mu or background, got {mu}")
        if share == "image" and (mu == 1 or learn_mu):
            raise ValueError(
                "with share='image', which learns μ, mu must be below 1 and learn_mu False, got "
                f"{mu} and {learn_mu}"
            )
        if mix is not None and not (0 < mix < 1 if learn_mix else 0 <= mix <= 1):
            raise ValueError(f"mix must lie in [0, 1], or (0, 1) where it is learned, got {mix}")
        if spread is not None and (not 0 < spread < 1 or mu == 1 or init == "random"):
            raise ValueError(
                "spread must lie in (0, 1), with mu below 1 and prototypes that are set from "
                f"features, got {spread}, {mu} and init {init!r}"
            )
        resolve_solver(solver)
        super().__init__(
            channels,
            prototypes,
            channels,
            init=init,
            seed=seed,
            flatten=flatten,
            input_fmt=input_fmt,
            num_prefix_tokens=num_prefix_tokens,
            device=device,
            dtype=dtype,
        )
        self.background, self.solver, self.fused = background, solver, fused
        self._mu, self._eps = float(mu), float(eps)
        self._mix = 0.5 if mix is None and learn_mix else mix
        self.cost, self.share, self.spread = cost, share, spread
        #: If True, the layer does average pooling and does not initialize its prototypes.
        self.averaging = False

        # Stored in unbounded form, so that no update leaves (0, 1) or (0, ∞).
        def scalar() -> nn.Parameter:
            return nn.Parameter(torch.empty((), device=device, dtype=dtype))

        self.mu_logit = scalar() if learn_mu else None
        self.log_eps = scalar() if learn_eps else None
        self.mix_logit = scalar() if learn_mix else None
        self.norm_weight = scalar() if cost == "norm" else None
        self.share_map = nn.Linear(channels, 1, True, device, dtype) if share == "image" else None
        if spread is not None and not learn_eps:
            # For checkpoints. The forward pass uses the number in ``_eps``: reading a tensor would
            # stall an accelerator.
            self.register_buffer("found_eps", torch.tensor(self._eps, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw random prototypes in the unit ball from the seed; reset all other parameters."""
        self.reset_prototypes()
        with torch.no_grad():
            if self.mu_logit is not None:
                self.mu_logit.fill_(logit(self._mu))
            if self.log_eps is not None:
                self.log_eps.fill_(math.log(self._eps))
            if self.mix_logit is not None:
                assert self._mix is not None
                self.mix_logit.fill_(logit(self._mix))
            if self.norm_weight is not None:
                self.norm_weight.fill_(NORM_WEIGHT)
            if self.share_map is not None:
                self.share_map.weight.zero_()
                self.share_map.bias.fill_(logit(self._mu))

    @property
    def mu(self) -> float | Tensor:
        """Share μ: a number, or a tensor if it is learned.

        With ``share="image"``, the share of an image whose mean feature is 0; see :meth:`shares`.
        """
        learned = self.mu_logit if self.share_map is None else self.share_map.bias.squeeze(0)
        return self._mu if learned is None else learned.sigmoid().clamp_min(LEAST_SHARE)

    @property
    def eps(self) -> float | Tensor:
        """Inverse smoothing ε: a number, or a tensor if it is learned."""
        return self._eps if self.log_eps is None else self.log_eps.exp()

    @property
    def mix(self) -> float | Tensor | None:
        """Fraction α of GSP in the weights: a number, a tensor if it is learned, or None."""
        return self._mix if self.mix_logit is None else self.mix_logit.sigmoid()

    def shares(self, features: Tensor, mask: Tensor | None) -> float | Tensor:
        """Share μ of each image of ``features`` (B, n, C): a scalar for all images, or (B,)."""
        if self.share_map is None:
            return self.mu
        mean = weighted_sum(equal_weights(features, mask), features)
        return affine(self.share_map, mean).squeeze(-1).sigmoid().clamp_min(LEAST_SHARE)

    def costs(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Costs (B, n, m) of ``features`` (B, n, C), which must be 0 at invalid positions."""
        if self.cost == "ball":
            return prototype_costs(features, self.prototypes)
        cost = cosine_costs(features, self.prototypes)
        if self.norm_weight is None:
            return cost
        gain = self.norm_weight.to(cost.dtype) * (relative_norms(features, mask) - 1)
        return cost - gain.unsqueeze(-1)

    def transport(self, features: Tensor, mask: Tensor | None) -> TransportResult:
        """Transport ``features`` (B, n, C), which must be 0 at invalid positions."""
        cost, mu = self.costs(features, mask), self.shares(features, mask)
        return partial_transport(cost, mu, self.eps, mask=mask, solver=self.solver)

    def mixed(self, weights: Tensor, features: Tensor, mask: Tensor | None) -> Tensor:
        """Mix the weights p (B, n) of the transport with equal weights: (1 − α)/n + α p."""
        if self.mix is None:
            return weights
        equal = equal_weights(features, mask)
        return equal + self.mix * (weights - equal)

    def initialize_prototypes(self, x: Tensor, mask: Tensor | None = None) -> None:
        """As in :class:`PrototypePool`; with :attr:`spread`, also set ε from ``x``."""
        super().initialize_prototypes(x, mask)
        if self.spread is not None:
            self.sharpen(x, mask)

    def sharpen(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Set ε so that the weights on ``x`` have the mean spread :attr:`spread`.

        The first training pass does this with its batch when it sets the prototypes; more images
        give a better estimate. In distributed training, all processes use the value of the first.
        Averages of the model that were made before keep the former ε.

        Args:
            x: Features in the layout of the layer.
            mask: True for valid positions, as in :meth:`pool`.
        """
        features, positions = self.to_tokens(x)
        self._sharpen(features, flat_mask(mask, x.shape[0], positions))

    @torch.no_grad()
    def _sharpen(self, features: Tensor, mask: Tensor | None) -> None:
        if self.spread is None:
            raise ValueError("spread is None: pass it to the constructor")
        features = zero_invalid(features, mask)
        eps = self.prototypes.new_tensor(self.eps_for(self.spread, features, mask))
        if dist.is_available() and dist.is_initialized():
            dist.broadcast(eps, src=0)
        if self.log_eps is not None:
            self.log_eps.copy_(eps.log())
        else:
            self.found_eps.copy_(eps)
            self._eps = float(eps)

    def eps_for(self, spread: float, features: Tensor, mask: Tensor | None) -> float:
        """Find the ε at which the weights of ``features`` (B, n, C) have the mean ``spread``."""
        cost, mu = self.costs(features, mask), self.shares(features, mask)
        return eps_for_spread(cost, mu, spread, mask)

    def prepare(self, features: Tensor, mask: Tensor | None) -> None:
        """As in :class:`PrototypePool`; with :attr:`spread`, set ε along with the prototypes."""
        ready = self.is_ready()
        super().prepare(features, mask)
        if self.spread is not None and self._ready and not ready:
            self._sharpen(features, mask)

    def _read_buffers(self) -> None:
        super()._read_buffers()
        if self.spread is not None and self.log_eps is None:
            self._eps = float(self.found_eps)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C) by their transport to the prototypes."""
        if self.averaging:
            self.check_channels(features)
        else:
            self.prepare(features, mask)
        features = zero_invalid(features, mask)
        out = sum_pool(
            features,
            self.prototypes,
            1.0 if self.averaging else self.shares(features, mask),
            self.eps,
            mask=mask,
            background=self.background and not self.averaging,
            solver=self.solver,
            attributes=details,
            fused=self.fused,
            cost=None if self.cost == "ball" else self.costs(features, mask),
        )
        if self.mix is None:
            return Pooled(*out)
        weights = self.mixed(out.weights, features, mask)
        return Pooled(weighted_sum(weights, features).to(features.dtype), weights, out.attributes)

    def assignments(self, local: Tensor, mask: Tensor | None) -> Tensor:
        """Pooled mass from each position to each prototype, π_ji/μ, of shape (B, n, m).

        Its sums over positions are the attributes z_i, its sums over prototypes the weights p_j
        (with ``background``, whose weights are the mass that stays, the transported shares; with
        ``mix``, the weights before mixing).
        """
        return self.transport(local, mask).pooled_plan()

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        mu = f"{self._mu}" + (" (learned)" if self.mu_logit is not None else "")
        eps = f"{self._eps}" + (" (learned)" if self.log_eps is not None else "")
        if self.spread is not None:
            eps += f", spread={self.spread}"
        return (
            f"{self.channels}, prototypes={self.prototypes.shape[0]}, mu={mu}, eps={eps}, "
            f"cost={self.cost!r}, share={self.share!r}, mix={self._mix}, "
            f"background={self.background}, solver={self.solver!r}, flatten={self.flatten}, "
            f"input_fmt={self.input_fmt!r}"
        )


class GeneralizedSumPool2d(_GeneralizedSumPool):
    r"""Generalized sum pooling of feature maps [gsp].

    Returns Σ_j p_j f_j with weights p that solve, per image, the transport of the share μ of the
    features to learned prototypes: features near a prototype are kept, the rest is dropped.
    μ = 1 is average pooling. The number of channels does not change; a 1×1 map to the embedding
    size belongs before this layer.

    Args:
        channels: Channels C of the input.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0; large selects sharply, small tends to average pooling.
        spread: Alternative to ``eps``: mean share 1/(n Σp²) of positions that the weights cover, in
            (0, 1); ε is set to reach it when the prototypes are initialized.
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        cost: Cost of a feature and a prototype: "ball", the distance in the unit ball [gsp];
            "cosine", 1 − cos; or "norm", 1 − cos − β (r − 1), where r is the norm of the feature
            over the mean norm in the image and β is learned, initially 0.5.
        share: "fixed", one μ for all images; or "image", a share σ(a·f̂ + b) for each from its mean
            feature f̂, where a and b are learned, initially a = 0 and σ(b) = ``mu``.
        mix: Fraction α in [0, 1] of p in the pooling weights (1 − α)/n + α p, with which features
            that are not selected keep a gradient. α = 0 is average pooling; None means 1.
        learn_mix: Learn α, through its logit, starting from ``mix`` or 0.5.
        background: Reverse the roles: the prototypes describe the features left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels; None runs them where supported.
        init: "k-center" sets the prototypes from the features of the first training batch, before
            the first step; "random" keeps random prototypes.
        seed: Seed of the prototype initialization.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> layer = GeneralizedSumPool2d(8, prototypes=4, mu=0.3)
        >>> out = layer.pool(torch.randn(2, 8, 7, 7))
        >>> out.embedding.shape, out.weights.shape, out.attributes.shape
        (torch.Size([2, 8]), torch.Size([2, 7, 7]), torch.Size([2, 4]))
    """

    _formats = FORMATS_2D


class GeneralizedSumPool1d(_GeneralizedSumPool):
    """GSP of token sequences; arguments as in :class:`GeneralizedSumPool2d`."""

    _formats = FORMATS_1D
