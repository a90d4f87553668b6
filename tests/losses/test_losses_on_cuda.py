"""On a GPU the losses are what they are on the CPU."""

from __future__ import annotations

import pytest
import torch

from losses.batches import CLASSES, SIZE, attributes_of, embeddings_of
from sumpool.losses import LOSSES, Mixture, ZeroShotLoss, build_loss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LABELS = [i // 6 % CLASSES for i in range(36)]


def mixture(name: str) -> Mixture:
    options = {"start_step": 0} if name.startswith("xbm") else {}
    base = build_loss(name, num_classes=CLASSES, embedding_size=SIZE, batch_size=36, **options)
    return Mixture(base, ZeroShotLoss(CLASSES, SIZE), 0.3)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_those_of_the_cpu(name: str) -> None:
    here, there = mixture(name), mixture(name).cuda()
    for seed in range(3):
        rows = embeddings_of(LABELS, seed, dtype=torch.float32)
        z = attributes_of(LABELS, seed=seed, dtype=torch.float32)
        x, x_cuda = rows.requires_grad_(), rows.detach().cuda().requires_grad_()
        y = torch.tensor(LABELS)
        expected, got = here(x, y, z), there(x_cuda, y.cuda(), z.cuda())
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
        expected.backward()
        got.backward()
        torch.testing.assert_close(x_cuda.grad.cpu(), x.grad, rtol=1e-3, atol=1e-5)
    for a, b in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_changes_nothing(name: str) -> None:
    x = embeddings_of(LABELS).cuda().bfloat16()
    y, z = torch.tensor(LABELS).cuda(), attributes_of(LABELS).cuda().bfloat16()
    expected = mixture(name).cuda()(x.float(), y, z.float())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        got = mixture(name).cuda()(x, y, z)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected)


def test_a_memory_of_sop_size_fits() -> None:
    loss = build_loss(
        "xbm-c2", dataset="sop", num_classes=11318, embedding_size=128, start_step=0
    ).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    for step in range(3):
        loss.loss.queue_idx, loss.loss.has_been_filled = 32 * step, True
        x = torch.randn(32, 128, device="cuda", generator=generator, requires_grad=True)
        labels = torch.arange(32, device="cuda") // 4
        loss(x, labels).backward()
        assert x.grad.isfinite().all()
    assert torch.cuda.max_memory_allocated() < 2**30
