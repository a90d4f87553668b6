"""Markov's bound on violated pairs, and what it has to do with the contrastive loss."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sumpool.ccp import pair_violations
from sumpool.losses import build_loss


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 2), st.booleans()), min_size=1, max_size=30),
    st.floats(0, 2),
    st.floats(0.01, 2),
)
def test_the_share_of_violated_pairs_is_below_its_bound(
    pairs: list[tuple[float, bool]], beta: float, alpha: float
) -> None:
    distances = torch.tensor([d for d, _ in pairs])
    positive = torch.tensor([same for _, same in pairs])
    found = pair_violations(distances, positive, beta, alpha)
    assert 0 <= found.rate <= found.bound + 1e-12


def test_rate_and_bound_by_hand() -> None:
    distances = torch.tensor([0.2, 0.7, 1.0, 0.4])
    positive = torch.tensor([True, True, False, False])
    found = pair_violations(distances, positive, beta=0.5, alpha=0.4)
    assert found.rate == pytest.approx((0.5 + 0.5) / 2)
    terms = [(0.2 - 0.5 + 0.4), (0.7 - 0.5 + 0.4), 0.0, (0.5 - 0.4 + 0.4)]
    assert found.bound == pytest.approx(((terms[0] + terms[1]) / 2 + terms[3] / 2) / 2 / 0.4)


def test_masked_pairs_do_not_count() -> None:
    distances, positive = torch.tensor([[0.1, 5.0]]), torch.tensor([[True, True]])
    mask = torch.tensor([[True, False]])
    assert pair_violations(distances, positive, 0.5, 0.5, mask).rate == 0
    with pytest.raises(ValueError, match="at least one pair"):
        pair_violations(distances, positive, 0.5, 0.5, mask & False)
    with pytest.raises(ValueError, match="alpha must be positive, got 0"):
        pair_violations(distances, positive, 0.5, 0.0)


def test_the_terms_of_c2_are_the_generalized_contrastive_loss() -> None:
    # Margins β − α and β + α.
    loss = build_loss("c2", num_classes=2, embedding_size=1, normalize=False)
    low, high = loss.settings["pos_margin"], loss.settings["neg_margin"]
    beta, alpha = (low + high) / 2, (high - low) / 2
    for d in (0.05, 0.3, 0.6):
        x = torch.tensor([[0.0], [d]])
        together = float(loss(x, torch.tensor([0, 0])))
        apart = float(loss(x, torch.tensor([0, 1])))
        assert together == pytest.approx(max(0.0, d - beta + alpha), abs=1e-6)
        assert apart == pytest.approx(max(0.0, beta - d + alpha), abs=1e-6)


@pytest.mark.parametrize("name", ["positive", "mask"])
@pytest.mark.parametrize("wrong", [torch.tensor([1, 1, 0]), torch.tensor([True, False])])
def test_masks_are_boolean_and_of_one_shape(name: str, wrong: torch.Tensor) -> None:
    given = {"positive": torch.tensor([True, True, False]), name: wrong}
    with pytest.raises(ValueError, match=rf"{name} must be boolean of shape \(3,\), got "):
        pair_violations(torch.tensor([0.25, 0.75, 1.0]), beta=0.5, alpha=0.5, **given)
