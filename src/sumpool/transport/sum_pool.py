"""Generalized sum pooling of features as a pure function, plain or fused."""

from __future__ import annotations

from torch import Tensor

from sumpool.transport.fused.limits import fused_support, use_fused
from sumpool.transport.plain import SumPooled, plain_sum_pool
from sumpool.transport.solve import Solver
from sumpool.transport.validation import check_eps, check_features, check_mask, check_mu


def sum_pool(
    features: Tensor,
    prototypes: Tensor,
    mu: float | Tensor,
    eps: float | Tensor,
    *,
    mask: Tensor | None = None,
    background: bool = False,
    solver: str | Solver = "exact",
    attributes: bool = True,
    fused: bool | None = None,
    cost: Tensor | None = None,
) -> SumPooled:
    r"""Pool n features by the transport of the share μ of their mass to m prototypes.

    The weights p solve :func:`partial_transport` for the costs of :func:`prototype_costs`; the
    embedding is Σ_j p_j f_j with features that are not normalized [gsp, eq. 4.1].

    Args:
        features: Local features of shape (..., n, d).
        prototypes: Prototypes of shape (m, d).
        mu: Share μ in (0, 1] of the mass that is pooled; a number, or a tensor of shape () or
            (...), one share per image.
        eps: Inverse smoothing ε > 0, large = sharp; a number, or a tensor like ``mu``.
        mask: True for valid features, broadcastable to (..., n).
        background: Reverse the roles: pool by ρ/(1 − μ), so that the prototypes describe the
            features left out [gsp, app. B]. Requires μ < 1.
        solver: A solver of :func:`partial_transport`.
        attributes: Whether to return attributes; they cost the plain path an extra pass.
        fused: Whether to run the fused Triton kernels: None runs them on CUDA tensors they support
            (:func:`fused_support`) unless the environment sets ``SUMPOOL_FUSED=0``, True requires
            them, False never runs them. The results are the same.
        cost: Costs of shape (..., n, m) instead of those of :func:`prototype_costs`, such as
            :func:`cosine_costs`; not supported by the fused kernels.

    Returns:
        A :class:`SumPooled`. The embedding has the dtype of the features; weights and attributes
        are in float32, or float64 for float64 features.

    Example:
        >>> import torch
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
        >>> prototypes = torch.tensor([[0.0, 1.0]])
        >>> sum_pool(features, prototypes, mu=2 / 3, eps=50.0).weights
        tensor([0.0000, 0.5000, 0.5000])
        >>> sum_pool(features, prototypes, mu=1.0, eps=50.0).embedding
        tensor([0.5333, 0.6000])
    """
    if background:
        check_mu(mu, below_one=True)
    check_features(features, prototypes)
    if mask is not None:
        check_mask(mask, tuple(features.shape[:-1]))
        # Invalid features may be NaN, which must not be multiplied by 0.
        features = features.masked_fill(~mask.unsqueeze(-1), 0)
    inputs = features, prototypes, mu, eps
    given = None if cost is None else "the costs are given"
    if use_fused(fused, features, lambda: given or fused_support(*inputs, solver)):
        return _fused_sum_pool(*inputs, mask, background, attributes)
    return plain_sum_pool(*inputs, mask, background, attributes, solver, cost)


def _fused_sum_pool(
    features: Tensor,
    prototypes: Tensor,
    mu: float | Tensor,
    eps: float | Tensor,
    mask: Tensor | None,
    background: bool,
    attributes: bool,
) -> SumPooled:
    """Run the fused operator, which takes features (B, n, d) and scalars."""
    from sumpool.transport.fused.ops import sum_pool_op

    check_mu(mu)
    check_eps(eps)
    batch = features.shape[:-2]
    if mask is not None:
        mask = mask.expand(features.shape[:-1]).reshape(-1, features.shape[-2]).contiguous()
    embedding, weights, z, _ = sum_pool_op(
        features.reshape(-1, *features.shape[-2:]) if features.ndim != 3 else features,
        prototypes,
        0.0 if isinstance(mu, Tensor) else float(mu),
        0.0 if isinstance(eps, Tensor) else float(eps),
        mu.reshape(()) if isinstance(mu, Tensor) else None,
        eps.reshape(()) if isinstance(eps, Tensor) else None,
        mask,
        background,
    )
    if len(batch) != 1:
        embedding, weights, z = (it.reshape(*batch, -1) for it in (embedding, weights, z))
    return SumPooled(embedding, weights, z if attributes else None)
