"""Products stay within their error, exact scores within nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from evaluation.ranking_oracle import CASES
from sumpool.evaluation.comparison import NOWHERE, STRIP, Comparison


def compared(name: str) -> Comparison:
    case = CASES[name]()
    gallery = case.query if case.gallery is None else case.gallery
    return Comparison(case.query, gallery, case.gallery is None)


def exact(comparison: Comparison) -> Tensor:
    rows = torch.arange(len(comparison.query)).repeat_interleave(len(comparison.gallery))
    columns = torch.arange(len(comparison.gallery)).repeat(len(comparison.query))
    return comparison.pair_scores(rows, columns).view(len(comparison.query), -1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["coarse", "fine"])
def test_products_stay_within_their_error(name: str, kind: str) -> None:
    comparison = compared(name)
    factors = getattr(comparison, kind)
    product = (factors.left @ factors.right).double()
    off = (product[:, : len(comparison.gallery)] - exact(comparison)).abs().max().item()
    # The exact formula rounds too, once for each addition.
    assert off <= factors.error + 1e-15
    assert factors.error < (1e-4 if kind == "coarse" else 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_exact_scores_are_half_the_squared_distances(name: str) -> None:
    comparison = compared(name)
    difference = comparison.query.double()[:, None] - comparison.gallery.double()
    squares = (difference * comparison.scale).square().sum(-1)
    torch.testing.assert_close(exact(comparison), -squares / 2, rtol=1e-14, atol=1e-300)
    assert squares.max() <= 4 + 1e-12


@pytest.mark.parametrize("name", ["many ties", "binary codes", "collapsed"])
def test_products_on_a_grid_are_exact(name: str) -> None:
    comparison = compared(name)
    for factors in (comparison.coarse, comparison.fine):
        assert factors.error == 0
        product = (factors.left @ factors.right)[:, : len(comparison.gallery)].double()
        assert torch.equal(product, exact(comparison))


@pytest.mark.parametrize("levels", [100, 181, 182, 1000])
def test_a_grid_too_fine_for_its_digits_is_not_called_exact(levels: int) -> None:
    draw = torch.Generator().manual_seed(0)
    points = torch.randint(-levels, levels + 1, (50, 128), generator=draw).float()
    points[0, 0] = levels
    comparison = Comparison(points, points, True)
    product = comparison.coarse.left @ comparison.coarse.right
    if comparison.coarse.error == 0:
        assert levels <= 181
        assert torch.equal(product[:, :50].double(), exact(comparison))
    assert comparison.fine.error == 0


def test_eight_bits_of_128_dimensions_are_exact() -> None:
    points = torch.randint(-128, 128, (40, 128)).float() / 256
    assert Comparison(points, points, True).coarse.error == 0


@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 100])
def test_equal_vectors_get_equal_scores_wherever_they_are(d: int) -> None:
    query, item = torch.randn(1, d), torch.randn(1, d)
    comparison = Comparison(query, item.repeat(1001, 1), False)
    scores = comparison.pair_scores(torch.zeros(1001, dtype=torch.int64), torch.arange(1001))
    assert len(scores.unique()) == 1
    assert torch.equal(scores[:1], comparison.pair_scores(torch.tensor([0]), torch.tensor([5])))


@pytest.mark.parametrize("name", ["clusters", "copies", "many ties", "half of them zero"])
def test_rows_hold_the_scores_of_their_pairs(name: str) -> None:
    comparison = compared(name)
    rows = torch.tensor([7, 3, 7, 250])
    assert torch.equal(comparison.row_scores(rows), exact(comparison)[rows])


def test_columns_that_fill_up_are_never_near() -> None:
    comparison = compared("clusters")
    right = comparison.coarse.right
    assert right.shape[1] % STRIP == 0
    filled = comparison.coarse.left @ right[:, len(comparison.gallery) :]
    assert filled.numel() > 0
    assert (filled == torch.tensor(NOWHERE).float()).all()
