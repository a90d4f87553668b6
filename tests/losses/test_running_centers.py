"""Class centers of losses without proxies: running means, by a loop."""

from __future__ import annotations

import copy

import pytest
import torch

from losses.batches import CLASSES, SIZE, embeddings_of, small_loss
from sumpool.losses import RunningCenters

BATCHES = ([0, 0, 1, 1], [1, 1, 4, 4], [0, 0, 0, 4])


def centered(name: str = "ms", momentum: float = 0.7) -> RunningCenters:
    return RunningCenters(small_loss(name), CLASSES, SIZE, momentum).double()


def test_centers_are_running_means_of_unit_embeddings() -> None:
    loss = centered()
    start, means = loss.means.clone(), {}
    for seed, labels in enumerate(BATCHES):
        x = embeddings_of(labels, seed)
        loss(x, torch.tensor(labels))
        for c in set(labels):
            own = [x[i] / x[i].norm() for i in range(len(x)) if labels[i] == c]
            batch = sum(own) / len(own)  # type: ignore[arg-type]
            means[c] = 0.7 * means[c] + 0.3 * batch if c in means else batch
    assert set(means) == {0, 1, 4}
    for c in range(CLASSES):
        torch.testing.assert_close(loss.centers()[c, 0], means.get(c, start[c]))
    assert loss.seen.tolist() == [c in means for c in range(CLASSES)]


@pytest.mark.parametrize("name", ["ms", "npair", "lifted"])
def test_a_regularizer_of_centers_moves_the_batch_and_the_loss_is_unchanged(name: str) -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    x = embeddings_of(labels.tolist()).requires_grad_()
    loss = centered(name)
    assert torch.equal(loss(x, labels), small_loss(name)(x, labels))
    (gradient,) = torch.autograd.grad(loss.centers()[0, 0] @ loss.means[1], x)
    assert bool((gradient[:2].abs().sum(1) > 0).all())
    assert not gradient[2:].any()


def test_nothing_moves_in_evaluation_and_the_state_is_whole() -> None:
    loss, other = centered(), centered()
    x, labels = embeddings_of([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    before = copy.deepcopy(loss.state_dict())
    loss.eval()(x, labels)
    assert all(torch.equal(before[name], it) for name, it in loss.state_dict().items())
    loss.train()(x, labels)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.centers(), loss.means.unsqueeze(1))
    assert not loss.centers().requires_grad


def test_a_copy_and_loaded_means_are_whole() -> None:
    loss = centered()
    x, labels = embeddings_of([0, 0, 1, 1]).requires_grad_(), torch.tensor([0, 0, 1, 1])
    loss(x, labels)
    assert torch.equal(copy.deepcopy(loss).centers(), loss.means.unsqueeze(1))
    zero = {name: torch.zeros_like(it) for name, it in loss.state_dict().items()}
    loss.load_state_dict(zero)
    assert not loss.centers().any()


def test_means_are_not_rounded_under_autocast() -> None:
    x, labels = embeddings_of([0, 0, 1, 1]).float(), torch.tensor([0, 0, 1, 1])
    loss, other = (centered().float() for _ in range(2))
    loss(x, labels)
    with torch.autocast("cpu", torch.bfloat16):
        other(x, labels)
    assert torch.equal(loss.means, other.means)


def test_momentum_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\), got 1.0"):
        centered(momentum=1.0)


def test_a_label_without_a_center_is_refused() -> None:
    loss = centered()
    with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.{CLASSES - 1}"):
        loss(embeddings_of([0, 0, 1, 1]), torch.tensor([0, 0, 1, CLASSES]))
    assert not loss.seen.any()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e200])
def test_embeddings_that_are_not_finite_move_no_center(value: float) -> None:
    labels = [0, 0, 1, 1]
    x = embeddings_of(labels)
    loss, other = centered(), centered()
    x[0, 0] = value
    loss(x, torch.tensor(labels))
    other(x[1:], torch.tensor(labels[1:]))
    torch.testing.assert_close(loss.means, other.means)
    assert torch.equal(loss.seen, other.seen)


@pytest.mark.parametrize(
    ("rows", "labels", "complaint"),
    [
        (4, 3, r"labels must have shape \(4,\), one label for each row, got \(3,\)"),
        (0, 0, rf"embeddings must have shape \(b, {SIZE}\) with b >= 1, got \(0, {SIZE}\)"),
    ],
)
def test_batches_that_are_none_are_refused(rows: int, labels: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        centered()(torch.rand(rows, SIZE), torch.zeros(labels, dtype=torch.int64))


def test_sizes_and_momentum_are_checked() -> None:
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 1, got 0"):
        RunningCenters(small_loss("ms"), 0, SIZE)
    with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\), got 'a'"):
        RunningCenters(small_loss("ms"), CLASSES, SIZE, "a")  # type: ignore[arg-type]


def test_keywords_reach_the_loss() -> None:
    x, labels = embeddings_of([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    pair = tuple(torch.tensor([it]) for it in (0, 1, 0, 2))
    found = centered("c2")(x, labels, indices_tuple=pair)
    assert torch.equal(found, small_loss("c2")(x, labels, pair))
