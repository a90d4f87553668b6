"""The mixture of base loss and zero-shot loss, and ours and pytorch-metric-learning's together."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, reducers
from torch import Tensor, nn

from losses.batches import CLASSES, SIZE, attributes_of, embeddings_of, small_loss
from sumpool.losses import Mixture, ZeroShotLoss

LABELS = [0, 0, 1, 1, 2, 2, 3, 3, 4]


def batch() -> tuple[Tensor, Tensor, Tensor]:
    return embeddings_of(LABELS), torch.tensor(LABELS), attributes_of(LABELS)


def zero_shot() -> ZeroShotLoss:
    return ZeroShotLoss(CLASSES, SIZE).double()


@pytest.mark.parametrize("weight", [0, 0.1, 1.0])
@pytest.mark.parametrize("name", ["c2", "panchor", "xbm"])
def test_the_mixture_weighs_its_parts(name: str, weight: float) -> None:
    x, y, z = batch()
    base, other = small_loss(name)(x, y), zero_shot()(z, y)
    parts = Mixture(small_loss(name), zero_shot(), weight).components(x, y, z)
    assert set(parts) == {"loss", "base_loss", "zero_shot_loss"}
    assert torch.equal(parts["base_loss"], base)
    assert torch.equal(parts["zero_shot_loss"], other)
    torch.testing.assert_close(parts["loss"], (1 - weight) * base + weight * other)
    total = Mixture(small_loss(name), zero_shot(), weight)(x, y, z)
    assert torch.equal(total, parts["loss"])


@pytest.mark.parametrize("name", ["c2", "panchor"])
def test_gradients_reach_all_that_learns(name: str) -> None:
    x, y, z = (it.requires_grad_(it.is_floating_point()) for it in batch())
    loss = Mixture(small_loss(name), zero_shot(), 0.1)
    loss(x, y, z).backward()
    for it in (x, z, *loss.parameters()):
        assert it.grad is not None
        assert it.grad.any()


def test_proxies_are_those_of_the_base_loss() -> None:
    base = small_loss("panchor")
    loss = Mixture(base, zero_shot(), 0.1)
    assert [id(it) for it in loss.proxy_parameters()] == [id(base.loss.proxies)]
    assert Mixture(small_loss("c2"), zero_shot(), 0.1).proxy_parameters() == []
    raw = pml_losses.ProxyAnchorLoss(CLASSES, SIZE)
    assert [id(it) for it in Mixture(raw, zero_shot(), 0.1).proxy_parameters()] == [id(raw.proxies)]


def test_state_of_both_parts_is_saved() -> None:
    x, y, z = batch()
    first = Mixture(small_loss("xbm", seed=0), zero_shot(), 0.1)
    first(x, y, z)
    second = Mixture(small_loss("xbm", seed=1), ZeroShotLoss(CLASSES, SIZE, seed=1).double(), 0.1)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x, y, z), second(x, y, z))


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_weights_out_of_range_are_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=r"weight must be a number in \[0, 1\], got"):
        Mixture(small_loss("c2"), zero_shot(), weight)


def test_a_pooling_without_attributes_is_refused() -> None:
    x, y, _ = batch()
    with pytest.raises(ValueError, match=r"attributes must be a tensor .* got None: the pooling"):
        Mixture(small_loss("c2"), zero_shot(), 0.1)(x, y, None)


@pytest.mark.parametrize(
    "raw",
    [
        pml_losses.MultiSimilarityLoss(),
        pml_losses.ContrastiveLoss(reducer=reducers.MeanReducer()),
        pml_losses.SupConLoss(),
    ],
    ids=lambda it: type(it).__name__,
)
def test_losses_of_pytorch_metric_learning_can_be_mixed_in(raw: nn.Module) -> None:
    x, y, z = batch()
    expected = 0.7 * raw(x, y) + 0.3 * zero_shot()(z, y)
    torch.testing.assert_close(Mixture(raw, zero_shot(), 0.3)(x, y, z), expected)


def test_our_losses_go_into_their_sums() -> None:
    x, y, _ = batch()
    ours, theirs = small_loss("c2"), pml_losses.MultiSimilarityLoss()
    both = pml_losses.MultipleLosses([ours, theirs], weights=[0.5, 2.0])
    torch.testing.assert_close(both(x, y), 0.5 * ours(x, y) + 2 * theirs(x, y))


@pytest.mark.parametrize("name", ["c1", "c2", "ms", "triplet"])
@pytest.mark.parametrize("miner", [miners.MultiSimilarityMiner(), miners.BatchHardMiner()])
def test_miners_of_pytorch_metric_learning_choose_pairs(name: str, miner: nn.Module) -> None:
    x, y, z = batch()
    loss = small_loss(name)
    chosen = miner(x, y)
    mined = loss(x, y, chosen)
    torch.testing.assert_close(mined, loss.loss(x, y, chosen))
    assert Mixture(loss, zero_shot(), 0.0)(x, y, z, chosen) == mined
    summed = pml_losses.MultipleLosses([loss], miners=[miner])
    torch.testing.assert_close(summed(x, y), mined)


def test_miners_choose_among_the_pairs_of_the_batch_not_of_the_memory() -> None:
    x, y, _ = batch()
    chosen = miners.BatchHardMiner()(x, y)
    loss = small_loss("xbm-c2")
    base = small_loss("c2")
    torch.testing.assert_close(loss(x, y, chosen), base(x, y, chosen) + base(x, y))


@pytest.mark.parametrize(
    ("name", "rival"),
    [
        ("ms", pml_losses.MultiSimilarityLoss(2, 40, 0.5)),
        ("triplet", pml_losses.TripletMarginLoss(0.0961)),
        ("c2", pml_losses.ContrastiveLoss(0, 0.3841)),
        ("lifted", pml_losses.LiftedStructureLoss()),
        ("circle", pml_losses.CircleLoss()),
    ],
)
def test_where_the_formula_is_theirs_the_numbers_are(name: str, rival: nn.Module) -> None:
    x, y, _ = batch()
    torch.testing.assert_close(small_loss(name)(x, y), rival(x, y))


def test_proxy_losses_equal_theirs_on_the_same_proxies() -> None:
    x, y, _ = batch()
    ours = small_loss("proxynca", softmax_scale=3.0)
    theirs = pml_losses.ProxyNCALoss(CLASSES, SIZE, softmax_scale=3.0).double()
    theirs.proxies.data.copy_(ours.proxy_parameters()[0].T)
    torch.testing.assert_close(ours(x, y), theirs(x, y))
    ours = small_loss("pnca")
    scaled = pml_losses.ProxyNCALoss(CLASSES, SIZE, softmax_scale=1 / 0.22).double()
    scaled.proxies.data.copy_(ours.proxy_parameters()[0].T)
    torch.testing.assert_close(ours(x, y), scaled(x, y))
