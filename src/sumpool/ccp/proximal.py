"""The proximal term that pulls a problem to the previous solution."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class ProximalPull:
    r"""The gradient λ(θ − θ_prev) of :math:`\frac{λ}{2}\lVert θ - θ_{prev}\rVert^2`.

    The printed algorithm [thesis, alg. 1] has the opposite sign, which would push θ away.

    Args:
        parameters: θ by name: all parameters except the proxies.
        weight: λ ≥ 0.

    Attributes:
        anchor: θ_prev by name; None until it is set.

    Example:
        >>> weight = nn.Parameter(torch.tensor([1.0]))
        >>> pull = ProximalPull({"weight": weight}, 0.5)
        >>> pull.set_anchor()
        >>> weight.data += 2
        >>> weight.grad = torch.zeros(1)
        >>> pull.add()
        >>> weight.grad
        tensor([1.])
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight: float) -> None:
        if not weight >= 0:
            raise ValueError(f"weight must be at least 0, got {weight}")
        self._parameters = dict(parameters)
        self.weight = weight
        self.anchor: dict[str, Tensor] | None = None

    @torch.no_grad()
    def set_anchor(self, values: Mapping[str, Tensor] | None = None) -> None:
        """Set the anchor to ``values``, or to the current parameters if None.

        The anchor is updated in place, since a captured CUDA graph reads its memory.
        """
        values = self._parameters if values is None else values
        if self.anchor is None:
            self.anchor = {name: torch.empty_like(it) for name, it in self._parameters.items()}
        for name, kept in self.anchor.items():
            kept.copy_(values[name])

    @torch.no_grad()
    def add(self) -> None:
        """Add the pull to the gradients, skipping parameters without a gradient."""
        if self.anchor is None or not self.weight:
            return
        pulled = [name for name, it in self._parameters.items() if it.grad is not None]
        if not pulled:
            return
        apart = torch._foreach_sub(
            [self._parameters[name] for name in pulled], [self.anchor[name] for name in pulled]
        )
        gradients = [self._parameters[name].grad for name in pulled]
        torch._foreach_add_(gradients, apart, alpha=self.weight)  # type: ignore[arg-type]

    @torch.no_grad()
    def drift(self) -> float:
        """Return ‖θ − θ_prev‖₂, or 0 without an anchor."""
        if self.anchor is None:
            return 0.0
        squares = [
            (it.double() - self.anchor[name].double()).square().sum()
            for name, it in self._parameters.items()
        ]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
