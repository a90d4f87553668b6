"""Batches with little to compare, and batches of equal embeddings."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.losses import LiftedStructureLoss

from losses.batches import SIZE, embeddings_of, small_loss
from sumpool.losses import LOSSES, MemoryLoss, build_loss
from sumpool.losses.distance import DirectDistance

PAIR = [name for name, recipe in LOSSES.items() if not recipe.proxy and name != "libc"]
#: Losses whose terms need a positive and a negative pair.
BOTH = ["triplet", "npair", "lifted", "circle"]
NO_PAIR = {
    "one image": [3],
    "one class": [2, 2, 2, 2],
    "all different": [0, 1, 2, 3, 4],
}


@pytest.mark.parametrize(
    ("name", "labels"),
    [pytest.param(name, NO_PAIR["one image"], id=f"{name}-one image") for name in PAIR]
    + [
        pytest.param(name, labels, id=f"{name}-{kind}")
        for name in BOTH
        for kind, labels in NO_PAIR.items()
    ],
)
def test_nothing_to_compare_is_a_loss_of_zero_with_a_gradient(name: str, labels: list[int]) -> None:
    x = embeddings_of(labels, dtype=torch.float32).requires_grad_()
    loss = small_loss(name)(x, torch.tensor(labels))
    assert loss.item() == 0
    assert loss.shape == ()
    assert loss.requires_grad
    loss.backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_poor_batches_give_finite_losses_and_gradients(name: str) -> None:
    loss = small_loss(name).float()
    for labels in NO_PAIR.values():
        x = embeddings_of(labels, dtype=torch.float32).requires_grad_()
        value = loss(x, torch.tensor(labels))
        value.backward()
        assert value.isfinite()
        assert x.grad is not None
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("batch", [4, 40])
@pytest.mark.parametrize("name", LOSSES)
def test_equal_embeddings_have_finite_gradients(name: str, batch: int) -> None:
    labels = torch.arange(batch) // 2
    loss = small_loss(name, num_classes=batch, batch_size=batch).float()
    x = torch.nn.functional.normalize(torch.randn(1, SIZE), dim=1).repeat(batch, 1)
    x.requires_grad_()
    for _ in range(2):
        value = loss(x, labels)
        value.backward()
        assert value.isfinite()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert float(x.grad.abs().max()) < 1e3


@pytest.mark.parametrize("name", ["c2", "triplet"])
def test_equal_positives_cost_nothing(name: str) -> None:
    # Two classes, opposite each other, each of 20 equal images.
    labels = torch.arange(40) % 2
    x = torch.where(labels == 0, 1.0, -1.0).unsqueeze(1) * torch.randn(1, SIZE)
    assert build_loss(name, num_classes=2, embedding_size=SIZE)(x, labels).item() == 0


def test_distances_are_exact_until_they_take_too_much_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(30, SIZE)
    x[1] = x[0]
    exact = DirectDistance()(x, x)
    assert exact[0, 1] == 0
    assert not exact.diagonal().any()
    monkeypatch.setattr("sumpool.losses.distance.DIRECT_LIMIT", 100)
    torch.testing.assert_close(DirectDistance()(x, x), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_no_batch_is_refused(name: str) -> None:
    loss = small_loss(name)
    x, y = embeddings_of([0, 0, 1]), torch.tensor([0, 0, 1])
    with pytest.raises(ValueError, match=r"embeddings must have shape \(b, 5\).*got \(0, 5\)"):
        loss(x[:0], y[:0])
    with pytest.raises(ValueError, match=r"embeddings must have shape \(b, 5\).*got \(3, 4\)"):
        loss(x[:, :4], y)
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\).*got \(2,\)"):
        loss(x, y[:2])
    with pytest.raises(TypeError, match=r"labels must be a tensor of integers, got torch.float32"):
        loss(x, y.float())
    with pytest.raises(TypeError, match=r"embeddings must be a floating-point tensor"):
        loss(x.long(), y)
    with pytest.raises(ValueError, match=r"ref_emb and ref_labels must be given together"):
        loss(x, y, None, x)


@pytest.mark.parametrize("name", [name for name, it in LOSSES.items() if it.proxy])
@pytest.mark.parametrize("label", [-1, 6])
def test_labels_without_a_proxy_are_refused(name: str, label: int) -> None:
    match = rf"labels must lie in 0\.\.5 \(num_classes = 6\), got {label}"
    with pytest.raises(ValueError, match=match):
        small_loss(name)(embeddings_of([0, 1]), torch.tensor([0, label]))


@pytest.mark.parametrize("name", [name for name in PAIR if name != "margin"])
def test_pair_losses_take_any_labels(name: str) -> None:
    x = embeddings_of([0, 0, 1, 1, 2])
    expected = small_loss(name)(x, torch.tensor([0, 0, 1, 1, 2]))
    far = torch.tensor([-7, -7, 2**40, 2**40, 2**40 + 1])
    assert torch.equal(small_loss(name)(x, far), expected)
    assert torch.equal(small_loss(name)(x, torch.tensor([0, 0, 1, 1, 2]).int()), expected)


@pytest.mark.parametrize("name", [name for name, it in LOSSES.items() if it.proxy])
def test_proxy_losses_take_no_references(name: str) -> None:
    x, y = embeddings_of([0, 1]), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="ref_emb is not supported"):
        small_loss(name)(x, y, None, x.clone(), y.clone())


@pytest.mark.parametrize("name", ["c1", "c2", "triplet", "ms", "circle", "margin"])
def test_references_may_have_the_very_labels_of_the_batch(name: str) -> None:
    labels = torch.tensor([0, 0, 1, 1, 2])
    x, other = embeddings_of(labels.tolist()), embeddings_of(labels.tolist(), 1)
    loss = small_loss(name)
    assert torch.equal(
        loss(x, labels, None, other, labels), loss(x, labels, None, other, labels + 0)
    )


def test_lifted_structure_has_no_references() -> None:
    x, labels = embeddings_of([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match="ref_emb must be None: lifted structure needs pairs of"):
        small_loss("lifted")(x, labels, None, x, labels)
    with pytest.raises(ValueError, match="unlike lifted structure"):
        MemoryLoss(LiftedStructureLoss(), 4, 8)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_embeddings_that_are_not_finite_show_in_the_loss(name: str, value: float) -> None:
    labels = torch.tensor([0, 0, 1, 1])
    x = embeddings_of(labels.tolist())
    x[0, 0] = value
    assert not small_loss(name)(x, labels).isfinite()


@pytest.mark.parametrize("name", ["c1", "c2", "triplet", "ms", "circle", "margin"])
def test_references_that_are_not_finite_show_in_the_loss(name: str) -> None:
    labels = torch.tensor([0, 0, 1, 1])
    x = embeddings_of(labels.tolist())
    others = x.clone()
    others[0, 0] = float("nan")
    assert not small_loss(name)(x, labels, None, others, labels).isfinite()
