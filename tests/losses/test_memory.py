"""The cross-batch memory, against a list of what it should hold."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from losses.batches import SIZE, embeddings_of, small_loss
from losses.naive_losses import PAIR_LOSSES
from sumpool.losses import LOSSES, build_loss

BASE = {"xbm": "c1", "xbm-c2": "c2"}


class NaiveMemory:
    """The last ``size`` embeddings in a list, and the loss as a sum of two."""

    def __init__(self, name: str, size: int, start: int) -> None:
        recipe = LOSSES[BASE[name]]
        self.formula, self.constants = PAIR_LOSSES[BASE[name]], recipe.constants("cub")
        self.size, self.start, self.steps = size, start, 0
        self.stored: list[tuple[Tensor, int]] = []

    def __call__(
        self, x: Tensor, y: list[int], batch_weight: float = 1.0, memory_weight: float = 1.0
    ) -> Tensor:
        in_batch = self.formula(x, y, **self.constants)
        self.steps += 1
        if self.steps <= self.start:
            return in_batch
        self.stored = [*self.stored, *zip(x.detach().clone(), y, strict=True)][-self.size :]
        first = len(self.stored) - len(y)  # the batch itself is stored last
        memory = self.formula(
            x,
            y,
            **self.constants,
            own=[first + i for i in range(len(y))],
            ref=torch.stack([it for it, _ in self.stored]),
            ref_y=[label for _, label in self.stored],
        )
        return batch_weight * in_batch + memory_weight * memory


def batches(count: int, sizes: tuple[int, ...] = (4,)) -> Iterator[tuple[Tensor, list[int]]]:
    generator = torch.Generator().manual_seed(0)
    for step in range(count):
        size = sizes[step % len(sizes)]
        labels = torch.randint(0, 3, (size,), generator=generator).tolist()
        yield embeddings_of(labels, seed=step).requires_grad_(), labels


@pytest.mark.parametrize("name", BASE)
@pytest.mark.parametrize(
    ("sizes", "memory"),
    [
        pytest.param((4,), 12, id="whole batches"),
        pytest.param((4,), 10, id="the queue ends within a batch"),
        pytest.param((4, 3, 2), 10, id="batches of several sizes"),
        pytest.param((4,), 4, id="a memory of one batch"),
        pytest.param((1, 4, 1), 9, id="batches of one image"),
    ],
)
def test_memory_losses_equal_a_list_of_the_last_embeddings(
    name: str, sizes: tuple[int, ...], memory: int
) -> None:
    loss = small_loss(name, batch_size=memory, memory_batches=1, start_step=2)
    naive = NaiveMemory(name, memory, start=2)
    for x, labels in batches(9, sizes):
        got, expected = loss(x, torch.tensor(labels)), naive(x, labels)
        torch.testing.assert_close(got, expected)
        found, wanted = (torch.autograd.grad(it, x)[0] for it in (got, expected))
        torch.testing.assert_close(found, wanted)


def test_weights_of_batch_and_memory_are_used_from_the_start_step_on() -> None:
    weights = {"batch_weight": 0.25, "memory_weight": 2.0}
    loss = small_loss("xbm", batch_size=4, start_step=1, **weights)
    naive = NaiveMemory("xbm", 12, start=1)
    for x, labels in batches(4):
        torch.testing.assert_close(loss(x, torch.tensor(labels)), naive(x, labels, **weights))


def test_a_thousand_steps_are_those_of_the_base_loss() -> None:
    options = {"num_classes": 3, "embedding_size": SIZE, "batch_size": 4}
    loss, base = build_loss("xbm", **options), build_loss("c1", **options)
    x, y = embeddings_of([0, 0, 1, 1], dtype=torch.float32), torch.tensor([0, 0, 1, 1])
    expected = base(x, y)
    for _ in range(1000):
        assert torch.equal(loss(x, y), expected)
    assert int(loss.loss.embedding_memory.count_nonzero()) == 0
    assert float(loss(x, y)) > float(expected)
    assert loss.loss.steps == 1001


@pytest.mark.parametrize(("column", "batches"), [("cub", 25), ("inshop", 400), ("sop", 1400)])
def test_the_memory_holds_as_many_batches_as_the_papers_say(column: str, batches: int) -> None:
    loss = build_loss("xbm", dataset=column, num_classes=9, embedding_size=2, batch_size=3)
    assert loss.loss.embedding_memory.shape == (3 * batches, 2)
    assert loss.settings["memory_batches"] == batches


def test_evaluation_leaves_the_memory_alone() -> None:
    loss = small_loss("xbm-c2", batch_size=4, start_step=1)
    (x, labels), (x2, labels2), (x3, labels3) = batches(3)
    loss(x, torch.tensor(labels))
    loss.eval()
    empty = loss(x2, torch.tensor(labels2))
    torch.testing.assert_close(
        empty, PAIR_LOSSES["c2"](x2, labels2, **LOSSES["c2"].constants("cub"))
    )
    loss.train()
    loss(x2, torch.tensor(labels2))
    before = {name: it.clone() for name, it in loss.state_dict().items()}
    first = loss.eval()(x3, torch.tensor(labels3))
    assert torch.equal(loss(x3, torch.tensor(labels3)), first)
    after = loss.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_loaded_memory_resumes_bit_for_bit(stop: int) -> None:
    loss = small_loss("xbm-c2", batch_size=4, start_step=2)
    resumed = small_loss("xbm-c2", batch_size=4, start_step=2)
    for step, (x, labels) in enumerate(batches(9)):
        if step == stop:
            file = io.BytesIO()
            torch.save(loss.state_dict(), file)
            file.seek(0)
            resumed.load_state_dict(torch.load(file, weights_only=True))
        expected = loss(x, torch.tensor(labels))
        if step >= stop:
            assert torch.equal(resumed(x, torch.tensor(labels)), expected)


def test_the_memory_keeps_no_graph() -> None:
    loss = small_loss("xbm", batch_size=4)
    for x, labels in batches(3):
        loss(x, torch.tensor(labels))
    assert not loss.loss.embedding_memory.requires_grad


def test_losses_of_two_steps_can_be_differentiated_afterwards() -> None:
    loss = small_loss("xbm-c2", batch_size=4)
    seen = [(x, loss(x, torch.tensor(labels))) for x, labels in batches(4)]
    later = [torch.autograd.grad(it, x)[0] for x, it in seen]
    loss = small_loss("xbm-c2", batch_size=4)
    for (x, labels), gradient in zip(batches(4), later, strict=True):
        value = loss(x, torch.tensor(labels))
        torch.testing.assert_close(torch.autograd.grad(value, x)[0], gradient)


def test_what_a_memory_cannot_take_is_refused() -> None:
    loss = small_loss("xbm", batch_size=1)
    x, y = embeddings_of([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"at most 3 rows, as many as the memory, got 4"):
        loss(x, y)
    with pytest.raises(ValueError, match=r"ref_emb must be None"):
        loss(x[:2], y[:2], None, x, y)
