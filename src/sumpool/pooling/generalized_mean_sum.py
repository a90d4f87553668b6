"""GeMean+GSP: the generalized mean of features weighed by what the prototypes select."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled
from sumpool.pooling.generalized_mean import generalized_mean
from sumpool.pooling.mapped_sum import MappedSumPool
from sumpool.transport import Solver

#: What GSP's weights may weigh.
WEIGHED = ("features", "powers")


class _GeneralizedMeanSumPool(MappedSumPool):
    pool_type: ClassVar[str] = "gemean+gsp"

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        prototypes: int = 64,
        mu: float = 0.3,
        eps: float = 5.0,
        p: float = 3.0,
        *,
        learn_p: bool = True,
        floor: float = 1e-6,
        weigh: str = "features",
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
        if not 0 < p < math.inf:
            raise ValueError(f"p must be a positive finite number, got {p}")
        if not 0 < floor < math.inf:
            raise ValueError(f"floor must be a positive finite number, got {floor}")
        if weigh not in WEIGHED:
            raise ValueError(f"weigh must be one of {WEIGHED}, got {weigh!r}")
        super().__init__(
            channels,
            embedding_size,
            prototypes,
            mu,
            eps,
            learn_mu=learn_mu,
            learn_eps=learn_eps,
            background=background,
            solver=solver,
            fused=fused,
            init=init,
            seed=seed,
            flatten=flatten,
            input_fmt=input_fmt,
            num_prefix_tokens=num_prefix_tokens,
            device=device,
            dtype=dtype,
        )
        self.floor = float(floor)
        self.weigh = weigh
        self._p = float(p)
        self.p = nn.Parameter(
            torch.full((), self._p, device=device, dtype=dtype), requires_grad=learn_p
        )

    def reset_parameters(self) -> None:
        """The map as torch draws its own; GSP as new; the exponent as given."""
        super().reset_parameters()
        with torch.no_grad():
            self.p.fill_(self._p)

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """The mapped generalized mean of ``features`` (B, n, C), weighed by GSP."""
        if mask is not None:
            features = features.masked_fill(~mask.unsqueeze(-1), 0)  # whatever stands there
        out = self.gsp.pool_tokens(self.mapped(features), mask, details)
        assert out.weights is not None  # GSP has them always
        local = features.to(out.weights.dtype)
        if self.weigh == "powers":
            mean = generalized_mean(local, self.p, mask, self.floor, out.weights)  # (B, C)
        else:
            count = features.shape[1] if mask is None else mask.sum(-1, keepdim=True)
            weighed = (count * out.weights).unsqueeze(-1) * local
            mean = generalized_mean(weighed, self.p, mask, self.floor)  # (B, C)
        embedding = self.map(mean.to(features.dtype))
        return Pooled(embedding.to(features.dtype), out.weights, out.attributes)

    def extra_repr(self) -> str:
        """What the layers below do not say, for ``print``."""
        learned = " (learned)" if self.p.requires_grad else ""
        own = f"p={self._p}{learned}, floor={self.floor}, weigh={self.weigh!r}"
        return f"{own}, {super().extra_repr()}"


class GeneralizedMeanSumPool2d(_GeneralizedMeanSumPool):
    r"""Generalized mean of features weighed by GSP (GeMean+GSP), of feature maps [gsp] [gem].

    With the weights p of :class:`GeneralizedSumPool2d` on the mapped features W f_j and one
    exponent q,

    .. math::
        g = W h, \qquad h_c = \Big(\frac1n \sum_j \max(n p_j f_{jc}, δ)^q\Big)^{1/q} .

    W is a linear map without bias, the same in both places. Weights and attributes are those of
    GSP. At μ = 1 all weights are 1/n and it is the mapped generalized mean. Meant for features
    that are not negative.

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each image that is pooled.
        eps: Inverse smoothing ε > 0.
        p: Exponent q of the generalized mean at the start, positive.
        learn_p: Whether the exponent is learned.
        floor: Smallest value δ > 0 a weighed feature counts as.
        weigh: What is weighed: "features", as above, or "powers", the power mean under the
            weights, h_c = (Σ_j p_j max(f_jc, δ)^q)^(1/q).
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        background: Reverse the roles: the prototypes describe what is left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels: None where they apply, True or False.
        init: "k-center" sets the prototypes from the mapped features of the first training batch,
            before the first step; "random" leaves them as drawn.
        seed: Seed of the prototypes' initialisation.
        flatten: Whether the embedding is (B, D) or keeps the pooled dimensions as 1.
        input_fmt: "NCHW" (default) or "NHWC".
        num_prefix_tokens: Must be 0 for maps.
        device: Where the parameters are put.
        dtype: Dtype of the parameters.

    Example:
        >>> layer = GeneralizedMeanSumPool2d(32, embedding_size=16, prototypes=4)
        >>> out = layer.pool(torch.rand(2, 32, 7, 7))
        >>> out.embedding.shape, out.weights.shape, layer.p.item()
        (torch.Size([2, 16]), torch.Size([2, 7, 7]), 3.0)
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_2D


class GeneralizedMeanSumPool1d(_GeneralizedMeanSumPool):
    """Generalized mean weighed by GSP, of sequences; see :class:`GeneralizedMeanSumPool2d`.

    Args:
        channels: Channels C of the input.
        embedding_size: Length D of the embedding.
        prototypes: Number m of prototypes.
        mu: Share μ in (0, 1] of each sequence that is pooled.
        eps: Inverse smoothing ε > 0.
        p: Exponent of the generalized mean at the start, positive.
        learn_p: Whether the exponent is learned.
        floor: Smallest value δ > 0 a weighed feature counts as.
        weigh: What is weighed: "features", as above, or "powers", the power mean under the
            weights, h_c = (Σ_j p_j max(f_jc, δ)^q)^(1/q).
        learn_mu: Learn μ, through its logit.
        learn_eps: Learn ε, through its logarithm.
        background: Reverse the roles: the prototypes describe what is left out.
        solver: "exact", "iterative", "hard" or a configured solver (``sumpool.transport``).
        fused: Whether to run the fused CUDA kernels: None where they apply, True or False.
        init: "k-center" or "random".
        seed: Seed of the prototypes' initialisation.
        flatten: Whether the embedding is (B, D) or keeps the pooled dimension as 1.
        input_fmt: "NLC" (default) or "NCL".
        num_prefix_tokens: Leading tokens that are dropped.
        device: Where the parameters are put.
        dtype: Dtype of the parameters.

    Example:
        >>> layer = GeneralizedMeanSumPool1d(32, prototypes=4, num_prefix_tokens=1)
        >>> layer(torch.rand(2, 50, 32)).shape
        torch.Size([2, 128])
    """

    _formats: ClassVar[tuple[str, ...]] = FORMATS_1D
