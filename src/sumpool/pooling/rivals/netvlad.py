"""NetVLAD: sums of residuals to learned cluster centers."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sumpool.pooling.affine import mapped
from sumpool.pooling.base import FORMATS_1D, FORMATS_2D, Pooled, zero_invalid
from sumpool.pooling.prototypes import PrototypePool, residual_sums, split_embedding
from sumpool.transport import greedy_k_center
from sumpool.transport.validation import solve_dtype

#: Ratio of the two largest assignments at initialization, as in the authors' code.
RATIO = 100.0


def netvlad_vector(
    features: Tensor, assignments: Tensor, centers: Tensor, mask: Tensor | None = None
) -> Tensor:
    r"""NetVLAD vector of soft-assigned features [netvlad, eq. 4 and sec. 3.1].

    .. math::
        V_k = \sum_j a_k(f_j) (f_j - c_k), \qquad v = \big[V_1/‖V_1‖, …, V_K/‖V_K‖\big] / ‖·‖

    10⁻¹² is added to squared norms, so that a cluster without features gives zeros.

    Args:
        features: Features f of shape (..., n, d); invalid ones must be finite.
        assignments: Soft assignments a of shape (..., n, K).
        centers: Cluster centers c of shape (K, d).
        mask: True for valid features, of shape (..., n).

    Returns:
        Vectors v of norm 1, of shape (..., K · d).

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
        >>> netvlad_vector(features, torch.eye(2), torch.zeros(2, 2))
        tensor([0.7071, 0.0000, 0.0000, 0.7071])
    """
    sums = residual_sums(zero_invalid(assignments, mask), features, centers)  # (..., K, d)
    return _unit(_unit(sums).flatten(-2))


def _unit(x: Tensor) -> Tensor:
    """x / ‖x‖ along the last dimension, smooth at 0."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-12).rsqrt()


class _NetVladPool(PrototypePool):
    """Implementation shared by the 2d and 1d layers."""

    pool_type = "netvlad"
    linear_map = "inside"
    inits: ClassVar[tuple[str, ...]] = ("k-means", "random")

    #: Number of Lloyd iterations after the greedy k-center picks.
    lloyd_steps: ClassVar[int] = 10

    def __init__(
        self,
        channels: int,
        embedding_size: int = 128,
        clusters: int = 8,
        alpha: float | None = None,
        *,
        init: str = "k-means",
        seed: int = 0,
        flatten: bool = True,
        input_fmt: str | None = None,
        num_prefix_tokens: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        dim = split_embedding(embedding_size, "clusters", clusters)
        if alpha is not None and not 0 < alpha < math.inf:
            raise ValueError(f"alpha must be None or a positive finite number, got {alpha}")
        super().__init__(
            channels,
            clusters,
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
        self.alpha = alpha
        self.map = nn.Linear(channels, dim, bias=False, device=device, dtype=dtype)
        self.assign_weight = nn.Parameter(torch.empty_like(self.prototypes))
        self.assign_bias = nn.Parameter(torch.empty_like(self.prototypes[:, 0]))
        self._reset_clusters()

    def reset_parameters(self) -> None:
        """Reset the map; draw random centers from the seed and set their assignments."""
        self.map.reset_parameters()
        self._reset_clusters()

    def _reset_clusters(self) -> None:
        self.reset_prototypes()
        # No features are known yet: use the sharpness for random directions.
        generator = torch.Generator().manual_seed(self.seed + 1)
        drawn = torch.randn(1024, self.prototypes.shape[1], generator=generator)
        self.spread_prototypes(_unit(drawn).to(self.prototypes))

    def pool_tokens(self, features: Tensor, mask: Tensor | None, details: bool = True) -> Pooled:
        """Pool ``features`` (B, n, C) by their residuals to the centers."""
        self.prepare(features, mask)
        features = zero_invalid(features, mask)
        local = self.local_features(features)  # (B, n, d)
        with torch.autocast(features.device.type, enabled=False):
            embedding = netvlad_vector(local, self._soft_assignments(local), self.prototypes, mask)
        return Pooled(embedding.to(features.dtype), None, None)

    def local_features(self, features: Tensor) -> Tensor:
        """Map ``features`` (..., C) to unit vectors (..., d)."""
        local = mapped(self.map, features)
        return _unit(local.to(solve_dtype(local)))

    def assignments(self, local: Tensor, mask: Tensor | None) -> Tensor:
        """Soft assignments divided by n, (B, n, K)."""
        with torch.autocast(local.device.type, enabled=False):
            shares = self._soft_assignments(local)
        count = shares.shape[-2] if mask is None else mask.sum(-1)[:, None, None]
        return zero_invalid(shares, mask) / count

    def _soft_assignments(self, local: Tensor) -> Tensor:
        """Softmax over clusters of w_kᵀ f_j + b_k, (B, n, K)."""
        weight, bias = self.assign_weight.to(local.dtype), self.assign_bias.to(local.dtype)
        return nn.functional.linear(local, weight, bias).softmax(-1)

    def pick_prototypes(self, local: Tensor) -> Tensor:
        """Pick centers (K, d) from features (N, d): k-means, initialized by greedy k-center."""
        count = self.prototypes.shape[0]
        centers = local[greedy_k_center(local, count)]
        for _ in range(self.lloyd_steps):
            nearest = torch.cdist(local, centers).argmin(-1)
            member = nn.functional.one_hot(nearest, count).to(local.dtype)  # (N, K)
            size = member.sum(0).unsqueeze(-1)
            centers = torch.where(size > 0, member.mT @ local / size.clamp_min(1), centers)
        return centers

    @torch.no_grad()
    def spread_prototypes(self, local: Tensor) -> None:
        """Set w_k = 2α c_k and b_k = −α‖c_k‖², for assignments ∝ exp(−α‖f − c_k‖²)."""
        centers = self.prototypes.to(local.dtype)
        alpha: float | Tensor = 1.0 if self.alpha is None else self.alpha
        if self.alpha is None and centers.shape[0] > 1:
            square = torch.cdist(local, centers).square()  # (N, K)
            nearest, second = square.topk(2, largest=False).values.unbind(-1)
            # At least 10⁻³, in case features are equidistant from all centers.
            alpha = math.log(RATIO) / (second - nearest).mean().clamp_min(1e-3)
        self.assign_weight.copy_(2 * alpha * centers)
        self.assign_bias.copy_(-alpha * centers.square().sum(-1))

    def prototype_parameters(self) -> tuple[nn.Parameter, ...]:
        """Return the centers and the parameters of the assignments."""
        return self.prototypes, self.assign_weight, self.assign_bias

    def extra_repr(self) -> str:
        """Extra line of the module's repr."""
        clusters, dim = self.prototypes.shape
        return (
            f"{self.channels}, {self.embedding_size}, clusters={clusters}×{dim}, "
            f"alpha={self.alpha}, flatten={self.flatten}, input_fmt={self.input_fmt!r}"
        )


class NetVladPool2d(_NetVladPool):
    r"""NetVLAD of feature maps [netvlad].

    Local features are mapped to d = embedding_size/K channels and scaled to norm 1, f_j; they are
    softly assigned to K clusters, and their residuals to the centers c_k are summed:

    .. math::
        a_k(f) = \frac{\exp(w_k^\top f + b_k)}{\sum_l \exp(w_l^\top f + b_l)}, \qquad
        V_k = \sum_j a_k(f_j) (f_j - c_k) .

    Each V_k is scaled to norm 1 (intra-normalization), and so is the embedding [V_1, …, V_K]. At
    initialization w_k = 2α c_k and b_k = −α‖c_k‖², so that a_k ∝ exp(−α‖f − c_k‖²); then w, b and
    c are learned independently. There are no position weights, since the assignments of each
    position sum to 1; :meth:`plan` returns the assignments. The centers are the parameter
    ``prototypes``. Common sizes are 8 × 16 = 128 and 64 × 128 = 8192.

    Args:
        channels: Channels C of the input.
        embedding_size: Length K · d of the embedding, a multiple of ``clusters``.
        clusters: Number K of clusters.
        alpha: Initial sharpness α > 0 of the assignments; None sets it so that the logarithm of the
            ratio of the two largest is log 100 on average, as in the authors' code.
        init: "k-means" sets the centers from the mapped features of the first training batch,
            before the first step; "random" keeps random centers.
        seed: Seed of the center initialization.
        flatten, input_fmt, num_prefix_tokens, device, dtype: As in :class:`GlobalPool`.

    Example:
        >>> layer = NetVladPool2d(32, embedding_size=128, clusters=8)
        >>> layer(torch.randn(2, 32, 7, 7)).norm(dim=-1).detach()
        tensor([1.0000, 1.0000])
        >>> layer.plan(torch.randn(2, 32, 7, 7)).shape
        torch.Size([2, 8, 7, 7])
    """

    _formats = FORMATS_2D


class NetVladPool1d(_NetVladPool):
    """NetVLAD of token sequences; arguments as in :class:`NetVladPool2d`."""

    _formats = FORMATS_1D
