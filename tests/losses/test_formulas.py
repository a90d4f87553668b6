"""Each loss of the catalog equals its formula, computed pair by pair, in value and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from losses.batches import LABELS, embeddings_of, small_loss
from losses.naive_losses import PAIR_LOSSES, PROXY_LOSSES
from sumpool.losses import LOSSES

EXACT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-10}


def test_every_loss_has_a_naive_counterpart() -> None:
    elsewhere = {"xbm", "xbm-c2", "margin", "libc"}
    assert {*PAIR_LOSSES, *PROXY_LOSSES, *elsewhere} == set(LOSSES)


def proxies_by_row(name: str, parameter: Tensor) -> Tensor:
    """The proxies (C, D), however pytorch-metric-learning stores them."""
    return parameter if name == "panchor" else parameter.T


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("column", ["cub", "cars196"])
@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_pair_losses_equal_their_formula(name: str, column: str, labels: list[int]) -> None:
    x = embeddings_of(labels).requires_grad_()
    got = small_loss(name, dataset=column)(x, torch.tensor(labels))
    expected = PAIR_LOSSES[name](x, labels, **LOSSES[name].constants(column))
    torch.testing.assert_close(got, expected, **EXACT)
    found, wanted = (torch.autograd.grad(it, x)[0] for it in (got, expected))
    torch.testing.assert_close(found, wanted, **EXACT)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("column", ["cub", "cars196"])
@pytest.mark.parametrize("name", PROXY_LOSSES)
def test_proxy_losses_equal_their_formula(name: str, column: str, labels: list[int]) -> None:
    x = embeddings_of(labels).requires_grad_()
    loss = small_loss(name, dataset=column)
    (parameter,) = loss.proxy_parameters()
    got = loss(x, torch.tensor(labels))
    proxies = proxies_by_row(name, parameter)
    expected = PROXY_LOSSES[name](x, labels, proxies, **LOSSES[name].constants(column))
    torch.testing.assert_close(got, expected, **EXACT)
    found, wanted = (torch.autograd.grad(it, [x, parameter]) for it in (got, expected))
    torch.testing.assert_close(found, wanted, **EXACT)


@pytest.mark.parametrize("name", ["c1", "c2"])
@pytest.mark.parametrize("reduction", ["nonzero-mean", "image-sum"])
def test_reductions_equal_their_formula(name: str, reduction: str) -> None:
    labels = LABELS["mixed up"]
    x = embeddings_of(labels)
    got = small_loss(name, reduction=reduction)(x, torch.tensor(labels))
    constants = {**LOSSES[name].constants("cub"), "reduction": reduction}
    torch.testing.assert_close(got, PAIR_LOSSES[name](x, labels, **constants), **EXACT)


@pytest.mark.parametrize("name", ["c1", "c2"])
def test_pair_losses_compare_a_batch_with_references(name: str) -> None:
    labels, ref_labels = LABELS["mixed up"], LABELS["balanced"]
    x, ref = embeddings_of(labels), embeddings_of(ref_labels, seed=1).requires_grad_()
    got = small_loss(name)(x, torch.tensor(labels), None, ref, torch.tensor(ref_labels))
    expected = PAIR_LOSSES[name](
        x,
        labels,
        **LOSSES[name].constants("cub"),
        own=[-1] * len(labels),
        ref=ref,
        ref_y=ref_labels,
    )
    torch.testing.assert_close(got, expected, **EXACT)
    found, wanted = (torch.autograd.grad(it, ref)[0] for it in (got, expected))
    torch.testing.assert_close(found, wanted, **EXACT)


def test_one_center_per_class_needs_no_regularizer() -> None:
    labels = LABELS["balanced"]
    x = embeddings_of(labels)
    loss = small_loss("softtriple", centers_per_class=1)
    constants = {**LOSSES["softtriple"].constants("cub"), "centers_per_class": 1}
    expected = PROXY_LOSSES["softtriple"](x, labels, loss.proxy_parameters()[0].T, **constants)
    torch.testing.assert_close(loss(x, torch.tensor(labels)), expected, **EXACT)


@pytest.mark.parametrize("name", [it for it in LOSSES if it not in ("npair", "libc")])
def test_losses_do_not_depend_on_the_length_of_embeddings(name: str) -> None:
    labels = torch.tensor(LABELS["mixed up"])
    x = embeddings_of(labels.tolist())
    scaled = x * torch.linspace(0.1, 5, len(x), dtype=x.dtype).unsqueeze(1)
    torch.testing.assert_close(small_loss(name)(x, labels), small_loss(name)(scaled, labels))


@pytest.mark.parametrize("name", LOSSES)
def test_float32_is_as_good_as_its_rounding(name: str) -> None:
    # 40 images: past the 25 rows from which torch.cdist would go through a product of matrices.
    labels = [i // 8 for i in range(40)]
    x = embeddings_of(labels)
    expected = small_loss(name, batch_size=40)(x, torch.tensor(labels))
    got = small_loss(name, batch_size=40).float()(x.float(), torch.tensor(labels))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)
