"""Alternation between proxy problems, each pulled to the solution of the previous one."""

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
from sumpool.transport.validation import check_at_least_one

#: Weights and proxies that the next problem starts from and is pulled to; see :class:`Alternation`.
Solution = Literal["last", "best", "authors"]


@dataclass
class Problem:
    """Progress of a problem.

    Attributes:
        number: Number of the problem, from 1.
        first_step: Number of steps before the problem.
        best_value: Best validation score of the problem.
        best_step: Step of the best validation; 0 before the first.
        stale: Number of validations since the best.
    """

    number: int = 1
    first_step: int = 0
    best_value: float = -math.inf
    best_step: int = 0
    stale: int = 0


class Alternation:
    r"""Chance-constrained proxies (CCP) [thesis, alg. 1] for any training loop.

    Problem k minimizes :math:`\frac{λ}{2}\lVert θ - θ^{(k-1)}\rVert^2 + L(θ, ρ)` over the weights θ
    and the proxies ρ. It ends after ``patience`` validations without improvement; then θ⁽ᵏ⁾ are
    its last weights, and the proxies are redrawn from embeddings of images
    (:func:`redraw_proxies`). The pull applies from the second problem on and never to proxies.

    The loop calls :meth:`begin` before its first step, :meth:`add_pull` between the backward pass
    and the optimizer step, :meth:`validated` after each validation and, if that returns True,
    :meth:`settle` and :meth:`renew`, after which it resets the optimizer's state for the proxies.
    The loop decides when training ends.

    Args:
        model: The network.
        criterion: The loss: ``pairs`` itself, or a module that contains it.
        pairs: The pair loss with its proxies.
        weight: Weight λ of the pull.
        patience: Number of validations without improvement that end a problem.
        problems: Maximum number of problems, the last of which never ends; None for no limit.
        solution: "last" continues from the last weights, as in the printed algorithm; "best"
            returns to the best validation of the problem; "authors" continues from the last
            weights, pulled to the best ones, and draws proxies away from the best ones, as in the
            authors' code.
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
        check_at_least_one(patience=patience, problems=1 if problems is None else problems)
        if solution not in get_args(Solution):
            choices = ", ".join(get_args(Solution))
            raise ValueError(f"solution must be one of {choices}, got {solution!r}")
        self._model, self._criterion, self._pairs = model, criterion, pairs
        self._patience, self._problems, self._solution = patience, problems, solution
        self.pull = ProximalPull(pulled_parameters(model, criterion, pairs), weight)
        self.problem = Problem()
        self._best: dict[str, dict[str, Any]] | None = None
        own = [name for name, it in criterion.named_parameters() if it is pairs.proxies]
        if not own:
            raise ValueError("criterion must be or contain pairs, whose proxies it lacks")
        (self._proxies,) = own
        self._drawn = pairs.centers().detach().clone()

    def begin(self, chosen: Tensor, pool: Tensor, mask: Tensor | None = None) -> None:
        """Draw the proxies of the first problem.

        Args:
            chosen: Embeddings of random images in place of the proxies of a previous problem,
                (C, P, D).
            pool: Candidate embeddings, (C, b, D).
            mask: True for valid candidates, (C, b).
        """
        self._draw(redraw_proxies(chosen, pool, mask))
        self.pull.set_anchor()

    def add_pull(self) -> None:
        """Add λ(θ − θ⁽ᵏ⁻¹⁾) to the gradients, from the second problem on."""
        if self.problem.number > 1:
            self.pull.add()

    def validated(self, value: float, step: int) -> bool:
        """Record a validation and return whether it ends the problem.

        Args:
            value: Validation score; higher is better.
            step: Number of steps so far.
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
        return self.due

    @property
    def due(self) -> bool:
        """Whether the problem has ended and the next has not begun."""
        last = self._problems is not None and self.problem.number >= self._problems
        return self.problem.stale >= self._patience and not last

    def settle(self) -> bool:
        """Load the best state if ``solution`` is "best"; return False before any validation."""
        if self._best is not None and self._solution == "best":
            self._model.load_state_dict(self._best["model"])
            self._criterion.load_state_dict(self._best["criterion"])
        return self.problem.best_step > 0

    def renew(self, step: int, pool: Tensor, mask: Tensor | None = None) -> None:
        """Begin the next problem from the current weights, with new proxies.

        Args:
            step: Number of steps so far.
            pool: Candidate embeddings under the current weights, (C, b, D).
            mask: True for valid candidates, (C, b).
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
        """Return the mean distance that proxies have moved since they were drawn.

        Adam moves each element by about the learning rate per step, so with a small rate and few
        steps, proxies hardly move.
        """
        moved = self._pairs.centers().detach() - self._drawn
        return float(moved.norm(dim=-1).mean())

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume, besides the model and the criterion."""
        return {
            "problem": asdict(self.problem),
            "best": self._best,
            "anchor": self.pull.anchor,
            "drawn": self._drawn,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by :meth:`state_dict`."""
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
    """Return the parameters that the pull applies to, by name: all except the proxies."""
    named = [
        (f"{owner}.{name}", parameter)
        for owner, module in (("model", model), ("criterion", criterion))
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]
    proxies = {id(parameter) for parameter in pairs.proxy_parameters()}
    return {name: parameter for name, parameter in named if id(parameter) not in proxies}


def state_copy(module: nn.Module) -> dict[str, Any]:
    """Return a detached copy of the state of ``module``."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value
        for name, value in module.state_dict().items()
    }
