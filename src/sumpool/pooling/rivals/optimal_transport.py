"""Optimal-transport pooling (OTP): an ensemble of sums, one per prototype."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import mapped
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled, zero_invalid
from sumpool.pooling.prototypes import PrototypePool, split_embedding
from sumpool.transport import prototype_costs
from sumpool.transport.sinkhorn import sinkhorn
from sumpool.transport.validation import (
    check_at_least_one,
    check_eps,
    check_floating,
    check_mask,
    solve_dtype,
)


def uniform_transport(
    cost: Tensor,
    eps: float,
    iterations: int = 100,
    mask: Tensor | None = None,
    *,
    fused: bool | None = None,
) -> Tensor:
    r"""Entropic optimal transport between uniform marginals [gsp, P4] [cuturi13].

    .. math::
        π = \arg\min_{π ≥ 0} \sum_{ji} c_{ji} π_{ji} + \frac1ε \sum_{ji} π_{ji} \log π_{ji}
        \quad \text{such that} \quad \sum_i π_{ji} = 1/n, \; \sum_j π_{ji} = 1/m

    by Sinkhorn's alternating scalings in the log domain: π_ji = exp(φ_j + ψ_i − ε c_ji). The first
    marginal holds exactly, the second in the limit of many iterations.

    Gradients go through the iterations: they are exact for the returned plan, converged or not. On
    CUDA, forward and backward pass are one fused kernel each, without second derivatives.

    Args:
        cost: Costs of shape (..., n, m), floating point.
        eps: Inverse smoothing ε > 0, large = sharp. The entropy weight, elsewhere named ε or reg,
            is 1/ε.
        iterations: Number of scalings of each side.
        mask: True for valid features, of shape (..., n); invalid ones have no mass, and n counts
            only valid ones.
        fused: Whether to run the fused Triton kernels, as in :func:`~sumpool.transport.sum_pool`.

    Returns:
        Plan π of shape (..., n, m), which sums to 1.

    Example:
        >>> uniform_transport(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), eps=math.log(3))
        tensor([[0.3750, 0.1250],
                [0.1250, 0.3750]])
    """
    check_floating("cost", cost)
    check_eps(eps)
    check_at_least_one(iterations=iterations)
    if mask is not None:
        check_mask(mask, tuple(cost.shape[:-1]))
        mask = mask.expand(cost.shape[:-1])
    with torch.autocast(cost.device.type, enabled=False):
        return sinkhorn(-eps * cost.to(solve_dtype(cost)), iterations, mask, fused=fused)


class _OptimalTransportPool(PrototypePool):
    """Implementation shared by the 2d and 1d layers."""

    pool_type = "otp"
    linear_map = "inside"

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        prototypes: int = 8,
        eps: float = 10.0,
        *,
        iterations: int = 100,
        init: str = "k-center",
        seed: int = 0,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        dim = split_embedding(embedding_size, "prototypes", prototypes)
        check_eps(eps)
        check_at_least_one(iterations=iterations)
        super().__init__(
            channels,
            prototypes,
            dim,
            init=init,
            seed=seed,
            flatten=flatten,
            input_fmt=input_fmt,
            num_prefix_tokens=num_prefix_tokens,
            device=device,
            dtype=dtype,
        )
        self.embedding_size = embedding_size
        self.eps = float(eps)
        self.iterations = iterations
        self.map = nn.Linear(channels, dim, bias=False, device=device, dtype=dtype)
        self.reset_prototypes()

    def reset_parameters(self) -> None:
        """Reset the map; draw random prototypes from the seed."""
        self.map.reset_parameters()
        self.reset_prototypes()

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C) by transporting all of them to the prototypes."""
        self.prepare(features, mask)
        features = zero_invalid(features, mask)
        local = self.local_features(features)  # (B, n, d)
        plan = self.assignments(local, mask)  # (B, n, m)
        with torch.autocast(features.device.type, enabled=False):
            sums = plan.mT @ local.to(plan.dtype)  # (B, m, d)
        embedding = math.sqrt(plan.shape[-1]) * sums.flatten(1)
        weights = plan.detach().sum(-1) if details else None
        return Pooled(embedding.to(features.dtype), weights, None)

    def assignments(self, local: Tensor, mask: Tensor | None) -> Tensor:
        """Transport plan (B, n, m) from local features (B, n, d) to the prototypes."""
        cost = prototype_costs(local, self.prototypes)
        with torch.autocast(local.device.type, enabled=False):
            return uniform_transport(cost, self.eps, self.iterations, mask)

    def local_features(self, features: Tensor) -> Tensor:
        """Map ``features`` (..., C) to (..., d)."""
        return mapped(self.map, features)

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        m, dim = self.prototypes.shape
        return (
            f"{self.channels}, {self.embedding_size}, prototypes={m}×{dim}, eps={self.eps}, "
            f"iterations={self.iterations}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"
        )


class OptimalTransportPool2d(_OptimalTransportPool):
    r"""Optimal-transport pooling (OTP) of feature maps [otp] [gsp, app. B].

    Local features are mapped to d = embedding_size/m channels, f_j, and all of them are transported
    to m prototypes, each of which receives the same mass: π solves :func:`uniform_transport` for
    the costs c_ji = ‖ω̄_i − f̄_j‖₂. The embedding is

    .. math::
        g = [g_1, …, g_m], \qquad g_i = \sqrt m \sum_j π_{ji} f_j .

    Every position sends the same mass 1/n, so the weights are uniform: nothing is left out. The
    defaults are those of the code of [otp]: an entropy weight of 0.1, here ε = 1/0.1, and 100
    iterations. Common sizes are 8 × 16 = 128 and 64 × 128 = 8192.

    Args:
        channels: Channels C of the input.
        embedding_size: Length m · d of the embedding, a multiple of ``prototypes``.
        prototypes: Number m of prototypes.
        eps: Inverse smoothing ε > 0, the inverse of the entropy weight.
        iterations: Number of Sinkhorn iterations.
        init: "k-center" sets the prototypes from the mapped features of the first training batch,
            before the first step; "random" keeps random prototypes.
        seed: Seed of the prototype initialization.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> layer = OptimalTransportPool2d(32, embedding_size=128, prototypes=8)
        >>> out = layer.pool(torch.randn(2, 32, 7, 7))
        >>> out.embedding.shape, layer.plan(torch.randn(2, 32, 7, 7)).shape
        (torch.Size([2, 128]), torch.Size([2, 8, 7, 7]))
    """

    _formats = FORMATS_2D


class OptimalTransportPool1d(_OptimalTransportPool):
    """OTP of token sequences; arguments as in :class:`OptimalTransportPool2d`."""

    _formats = FORMATS_1D
