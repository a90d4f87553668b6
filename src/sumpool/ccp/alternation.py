"""A sequence of proxy problems, each pulled to the solution of the last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn

from sumpool.ccp.drawing import redraw_proxies
from sumpool.ccp.proximal import ProximalPull
from sumpool.ccp.proxy_pairs import ProxyPairs
from sumpool.transport import lipschitz_normalize

#: What the next problem starts from and is pulled to: the last weights and proxies, those of the
#: best validation of the problem, or, as the authors' code does, it starts from the last weights,
#: is pulled to the best, and picks its proxies away from the best.
Solution = Literal["last", "best", "authors"]


@dataclass
class Problem:
    """The progress of a problem.

    Attributes:
        number: 1 for the first.
        first_step: Steps that were done before it.
        best_value: Best validation in it.
        best_step: Step of that; 0 before its first validation.
        stale: Validations since then.
    """

    number: int = 1
    first_step: int = 0
    best_value: float = -math.inf
    best_step: int = 0
    stale: int = 0


class Alternation:
    r"""Chance-constrained proxies (CCP) [thesis, alg. 1], as a part of any training loop.

    Problem k minimizes :math:`\frac{λ}{2}\lVert θ - θ^{(k-1)}\rVert^2 + L(θ, ρ)` over the weights θ
    and the proxies ρ. It ends after ``patience`` validations without a better one; then θ⁽ᵏ⁾ are
    its last weights, and the proxies are drawn again among embeddings of images
    (:func:`redraw_proxies`). The first problem is not pulled, and proxies never are.

    The loop calls :meth:`begin` before its first step, :meth:`add_pull` between the backward pass
    and the optimizer, :meth:`validated` after each validation and, when that returns True,
    :meth:`settle` and :meth:`renew`. The loop decides when training ends.

    Args:
        model: The network.
        criterion: The loss: ``pairs`` itself, or a module that holds it.
        pairs: The pair loss with its proxies.
        weight: λ of the pull.
        patience: Validations without a better one that end a problem.
        problems: Most problems; the last has no end. None is no limit.
        solution: "last" continues from the last weights, as printed; "best" goes back to the best
            validation of the problem; "authors" continues from the last weights, pulled to the
            best ones, and draws proxies away from the best ones, as the authors' code does.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: nn.Module,
        pairs: ProxyPairs,
        *,
        weight: float = 2e-4,
        patience: int = 3,
        problems: int | None = None,
        solution: Solution = "last",
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1, got {patience}")
        if problems is not None and problems < 1:
            raise ValueError(f"problems must be at least 1, got {problems}")
        if solution not in get_args(Solution):
            choices = ", ".join(get_args(Solution))
            raise ValueError(f"solution must be one of {choices}, got {solution!r}")
        self._model, self._criterion, self._pairs = model, criterion, pairs
        self._patience, self._problems, self._solution = patience, problems, solution
        self.pull = ProximalPull(pulled_parameters(model, criterion, pairs), weight)
        self.problem = Problem()
        self._best: dict[str, dict[str, Any]] | None = None
        named = criterion.named_parameters()
        self._proxies = next(name for name, it in named if it is pairs.proxies)
        self._drawn = pairs.centers().detach().clone()

    def begin(self, chosen: Tensor, pool: Tensor, mask: Tensor | None = None) -> None:
        """Draw the proxies of the first problem.

        Args:
            chosen: Embeddings of random images that stand for the proxies of a problem before it,
                (C, P, D).
            pool: Embeddings to pick among, (C, b, D).
            mask: True where the pool holds one, (C, b).
        """
        self._draw(redraw_proxies(chosen, pool, mask))
        self.pull.set_anchor()

    def add_pull(self) -> None:
        """Add λ(θ − θ⁽ᵏ⁻¹⁾) to the gradients, from the second problem on."""
        if self.problem.number > 1:
            self.pull.add()

    def validated(self, value: float, step: int) -> bool:
        """Note a validation; returns whether the problem ends with it.

        Args:
            value: What it gave; more is better.
            step: Steps done.
        """
        problem = self.problem
        if value > problem.best_value:
            problem.best_value, problem.best_step, problem.stale = value, step, 0
            if self._solution != "last":
                self._best = {
                    "model": state_copy(self._model),
                    "criterion": state_copy(self._criterion),
                }
        else:
            problem.stale += 1
        last = self._problems is not None and problem.number >= self._problems
        return problem.stale >= self._patience and not last

    def settle(self) -> bool:
        """Bring weights and proxies to where the problem ends; False before a validation."""
        if self._best is not None and self._solution == "best":
            self._model.load_state_dict(self._best["model"])
            self._criterion.load_state_dict(self._best["criterion"])
        return self.problem.best_step > 0

    def renew(self, step: int, pool: Tensor, mask: Tensor | None = None) -> None:
        """Begin the next problem at the weights as they are now, with new proxies.

        Args:
            step: Steps done.
            pool: Embeddings, by these weights, to pick the proxies among, (C, b, D).
            mask: True where the pool holds one, (C, b).
        """
        anchor, proxies = None, self._pairs.centers().detach()
        if self._best is not None and self._solution == "authors":
            anchor = {
                f"{owner}.{name}": value
                for owner, state in self._best.items()
                for name, value in state.items()
            }
            proxies = lipschitz_normalize(self._best["criterion"][self._proxies])
        self.pull.set_anchor(anchor)
        self._draw(redraw_proxies(proxies.to(pool), pool, mask))
        self.problem = Problem(self.problem.number + 1, first_step=step)
        self._best = None

    def travel(self) -> float:
        """Mean distance that proxies have moved since they were drawn.

        Adam moves a number by about its learning rate per step: with a small rate and few steps,
        proxies stay where they were drawn.
        """
        moved = self._pairs.centers().detach() - self._drawn
        return float(moved.norm(dim=-1).mean())

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, besides model and criterion."""
        return {
            "problem": asdict(self.problem),
            "best": self._best,
            "anchor": self.pull.anchor,
            "drawn": self._drawn,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what :meth:`state_dict` gave."""
        self.problem = Problem(**state["problem"])
        self._best = state["best"]
        self.pull.set_anchor(state["anchor"])
        self._drawn = state["drawn"].to(self._pairs.proxies.device)

    def _draw(self, proxies: Tensor) -> None:
        self._pairs.set(proxies)
        self._drawn = self._pairs.centers().detach().clone()


def pulled_parameters(
    model: nn.Module, criterion: nn.Module, pairs: ProxyPairs
) -> dict[str, nn.Parameter]:
    """What the pull touches, by name: all that is learned but the proxies."""
    named = [
        (f"{owner}.{name}", parameter)
        for owner, module in (("model", model), ("criterion", criterion))
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]
    proxies = {id(parameter) for parameter in pairs.proxy_parameters()}
    return {name: parameter for name, parameter in named if id(parameter) not in proxies}


def state_copy(module: nn.Module) -> dict[str, Any]:
    """A copy of the state of ``module``."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value
        for name, value in module.state_dict().items()
    }
