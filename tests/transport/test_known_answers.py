"""Every solver against problems whose answer is known in closed form."""

from __future__ import annotations

import pytest

from sumpool.transport import Exact, Iterative, partial_transport
from transport.checker import assert_result
from transport.generators import KNOWN


@pytest.mark.parametrize("name", KNOWN)
def test_exact_gives_the_known_answer(name: str) -> None:
    problem, weights, attributes = KNOWN[name]
    assert_result(Exact()(problem), 1e-12, weights=weights, attributes=attributes)


@pytest.mark.parametrize("name", KNOWN)
def test_exact_gives_the_known_answer_in_float32(name: str) -> None:
    problem, weights, attributes = KNOWN[name]
    result = partial_transport(problem.cost.float(), problem.mu, problem.eps)
    assert_result(result, 1e-5, weights=weights.float(), attributes=attributes.float())


@pytest.mark.parametrize("name", ["one feature", "one prototype", "gentle", "mirrored", "alike"])
def test_many_iterations_give_the_known_answer(name: str) -> None:
    problem, weights, attributes = KNOWN[name]
    assert_result(Iterative(2000)(problem), 1e-10, weights=weights, attributes=attributes)
