"""Algorithm 1 of the thesis, line by line, against :class:`sumpool.ccp.Alternation`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sumpool.ccp import Alternation, ProxyPairs
from sumpool.losses import build_loss

CLASSES, PROXIES, POOL, SIZE = 3, 2, 5, 2
RATE, PULL, PATIENCE = 0.3, 0.2, 2
#: Validation after every step: problems of 4, 3 and 5 steps, whose best are not their last.
SCORES = (1.0, 3.0, 2.0, 2.5, 4.0, 3.5, 3.0, 1.0, 2.0, 5.0, 4.0, 4.5)
ENDS = (4, 7, 12)


class Squares(nn.Module):
    """ℓ: squared distance of pairs of a class, less half of it for others; mean of all pairs."""

    def forward(self, z: Tensor, labels: Tensor, _: None, proxies: Tensor, own: Tensor) -> Tensor:
        squares = (z[:, None] - proxies).square().sum(-1)
        return torch.where(labels[:, None] == own, squares, -0.5 * squares).mean()


def images() -> tuple[Tensor, Tensor, Tensor]:
    """A batch for every step (T, m, 4), its labels (m,), and a pool for every problem."""
    generator = torch.Generator().manual_seed(0)
    batches = torch.randn(len(SCORES), 6, 4, generator=generator, dtype=torch.float64)
    pools = torch.randn(4, CLASSES, POOL, 4, generator=generator, dtype=torch.float64)
    return batches, torch.arange(6) % CLASSES, pools


def network() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(4, SIZE, bias=False).double()


def embed(theta: Tensor, x: Tensor) -> Tensor:
    return 0.1 * x @ theta.T  # inside the ball, whose border plays no part here


def greedy_k_center_proxies(proxies: Tensor, pool: Tensor) -> Tensor:
    """Algorithm 2."""
    found = []
    for rho, p in zip(proxies, pool, strict=True):
        r: list[int] = []
        while len(r) < len(rho):
            chosen = [*rho, *(p[i] for i in r)]
            left = [i for i in range(len(p)) if i not in r]
            r.append(max(left, key=lambda i: min(float((p[i] - v).norm()) for v in chosen)))
        found.append(p[r])
    return torch.stack(found)


def algorithm_1(solution: str) -> tuple[Tensor, Tensor]:
    """θ and ρ after all steps, by the printed lines with the sign of the pull corrected."""
    batches, labels, pools = images()
    theta = network().weight.detach().clone()
    theta_star, rho_star = theta.clone(), embed(theta, pools[0])[:, :PROXIES]
    own = torch.arange(CLASSES).repeat_interleave(PROXIES)
    step = 0
    for problem, end in enumerate(ENDS):
        rho = greedy_k_center_proxies(rho_star, embed(theta, pools[problem]))
        best = -1.0
        while step < end:
            x, y = theta.clone().requires_grad_(), rho.clone().requires_grad_()
            loss = Squares()(embed(x, batches[step]), labels, None, y.flatten(0, 1), own)
            g_theta, g_rho = torch.autograd.grad(loss, (x, y))
            if problem:  # nothing to be near to yet
                g_theta = g_theta + PULL * (theta - theta_star)
            theta, rho = theta - RATE * g_theta, rho - RATE * g_rho
            if SCORES[step] > best:
                best, best_theta, best_rho = SCORES[step], theta, rho
            step += 1
        # As printed: θ* ← θ, ρ* ← ρ.
        theta_star, rho_star = (theta, rho) if solution == "last" else (best_theta, best_rho)
        if solution == "best":
            theta = best_theta
    return theta, greedy_k_center_proxies(rho_star, embed(theta, pools[3]))


def alternation(solution: Any) -> tuple[Tensor, Tensor]:
    """The same by :class:`Alternation` in a training loop."""
    batches, labels, pools = images()
    model = network()
    pairs = ProxyPairs(Squares(), CLASSES, SIZE, PROXIES).double()
    problems = Alternation(model, pairs, pairs, weight=PULL, patience=PATIENCE, solution=solution)
    optimizer = torch.optim.SGD([*model.parameters(), *pairs.parameters()], lr=RATE)
    first = embed(model.weight.detach(), pools[0])
    problems.begin(first[:, :PROXIES], first)
    ended = []
    for step, score in enumerate(SCORES):
        optimizer.zero_grad()
        pairs(embed(model.weight, batches[step]), labels).backward()
        problems.add_pull()
        optimizer.step()
        if problems.validated(score, step + 1):
            assert problems.settle()
            ended.append(step + 1)
            problems.renew(step + 1, embed(model.weight.detach(), pools[len(ended)]))
            # What a checkpoint holds is all that matters from here on.
            state = copy.deepcopy(problems.state_dict())
            problems.load_state_dict(state)
    assert tuple(ended) == ENDS
    return model.weight.detach(), pairs.centers().detach()


@pytest.mark.parametrize("solution", ["last", "best", "authors"])
def test_the_lines_of_algorithm_1_give_the_same_weights_and_proxies(solution: str) -> None:
    for found, expected in zip(alternation(solution), algorithm_1(solution), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_three_solutions_differ() -> None:
    last, best, authors = (alternation(it)[0] for it in ("last", "best", "authors"))
    assert min(float((a - b).norm()) for a, b in ((last, best), (last, authors))) > 1e-4


def test_the_last_weights_are_the_default_and_other_solutions_are_refused() -> None:
    pairs = ProxyPairs(Squares(), CLASSES, SIZE, PROXIES)
    assert Alternation(network(), pairs, pairs)._solution == "last"
    with pytest.raises(ValueError, match="solution must be one of last, best, authors, got 'x'"):
        Alternation(network(), pairs, pairs, solution="x")  # type: ignore[arg-type]


def test_a_criterion_without_the_pairs_is_refused() -> None:
    pairs = ProxyPairs(build_loss("c2", num_classes=CLASSES, embedding_size=SIZE), CLASSES, SIZE)
    with pytest.raises(ValueError, match="criterion must be or contain pairs"):
        Alternation(network(), nn.Linear(2, 2), pairs)
