"""Losses are computed in float32 under autocast, and in float64 where that is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from losses.batches import CLASSES, LIBC, SIZE, attributes_of, embeddings_of, small_loss
from sumpool.losses import LOSSES, Mixture, ZeroShotLoss, build_loss

LABELS = [0, 0, 1, 1, 2, 2, 3, 3]


def half_losses(name: str) -> torch.nn.Module:
    options: dict[str, Any] = LIBC if name == "libc" else {}
    return build_loss(name, num_classes=CLASSES, embedding_size=SIZE, batch_size=8, **options)


@pytest.mark.parametrize(
    ("name", "half"), [("c2", torch.float16), *((name, torch.bfloat16) for name in LOSSES)]
)
def test_half_precision_embeddings_are_compared_in_float32(name: str, half: torch.dtype) -> None:
    x = embeddings_of(LABELS).to(half).requires_grad_()
    expected = half_losses(name)(x.detach().float(), torch.tensor(LABELS))
    loss = half_losses(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loss(x, torch.tensor(LABELS))
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
    assert torch.equal(half_losses(name)(x, torch.tensor(LABELS)), expected)
    got.backward()
    assert x.grad is not None
    assert x.grad.dtype == half
    for proxies in loss.proxy_parameters():
        assert proxies.dtype == torch.float32
        assert proxies.grad is not None
        assert proxies.grad.isfinite().all()


def test_proxies_keep_their_dtype() -> None:
    loss = half_losses("pnca")
    assert loss(embeddings_of(LABELS), torch.tensor(LABELS)).dtype == torch.float32
    assert loss.proxy_parameters()[0].dtype == torch.float32
    assert small_loss("pnca")(embeddings_of(LABELS).float(), torch.tensor(LABELS)).dtype == (
        torch.float64
    )
    with pytest.raises(TypeError, match=r"proxies must be float32 or float64, got torch.bfloat16"):
        half_losses("pnca").bfloat16()(embeddings_of(LABELS), torch.tensor(LABELS))


def test_the_zero_shot_loss_is_computed_in_float32() -> None:
    z = attributes_of(LABELS).to(torch.bfloat16).requires_grad_()
    loss = ZeroShotLoss(CLASSES, SIZE)
    expected = loss(z.detach().float(), torch.tensor(LABELS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loss(z, torch.tensor(LABELS))
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
    got.backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("name", ["c2", "panchor", "xbm"])
def test_mixtures_are_computed_in_float32(name: str) -> None:
    x, z = embeddings_of(LABELS).to(torch.bfloat16), attributes_of(LABELS).to(torch.bfloat16)
    y = torch.tensor(LABELS)
    expected = Mixture(half_losses(name), ZeroShotLoss(CLASSES, SIZE), 0.3)(x.float(), y, z.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = Mixture(half_losses(name), ZeroShotLoss(CLASSES, SIZE), 0.3)(x, y, z)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
