"""Intra-batch connections: the graph over a batch, its two classifiers, and their loss."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from losses.batches import CLASSES, embeddings_of
from sumpool.losses import LOSSES, IntraBatchLoss, build_loss

LABELS = [0, 0, 1, 1, 2, 2, 3, 3]
#: The embeddings here have 5 dimensions.
HEADS = 5


def small(layers: int = 2, dropout: float = 0.0, **options: float) -> IntraBatchLoss:
    loss = IntraBatchLoss(CLASSES, 5, layers, HEADS, dropout=dropout, **options)  # type: ignore[arg-type]
    return loss.double()


def layer_norm(x: Tensor, layer: torch.nn.LayerNorm) -> Tensor:
    mean, var = x.mean(), ((x - x.mean()) ** 2).mean()
    return (x - mean) / (var + layer.eps).sqrt() * layer.weight + layer.bias


def naive_graph(loss: IntraBatchLoss, x: Tensor) -> Tensor:
    """Messages image by image and head by head."""
    f = torch.stack([it / it.norm() for it in x])
    for layer in loss.graph:
        attention = layer.self_attn
        Q, K, V = attention.in_proj_weight.chunk(3)
        q0, k0, v0 = attention.in_proj_bias.chunk(3)
        size = f.shape[1] // HEADS
        received = []
        for i in range(len(f)):
            heads = []
            for h in range(HEADS):
                own = slice(h * size, (h + 1) * size)
                q = (Q @ f[i] + q0)[own]
                scores = [float(q @ (K @ g + k0)[own]) / math.sqrt(size) for g in f]
                total = sum(math.exp(s) for s in scores)
                heads.append(
                    sum(
                        math.exp(s) / total * (V @ g + v0)[own]
                        for s, g in zip(scores, f, strict=True)
                    )
                )
            received.append(attention.out_proj.weight @ torch.cat(heads) + attention.out_proj.bias)
        f = torch.stack([layer_norm(a + b, layer.norm1) for a, b in zip(f, received, strict=True)])
        passed = [
            layer.linear2.weight @ (layer.linear1.weight @ it + layer.linear1.bias).relu()
            + layer.linear2.bias
            for it in f
        ]
        f = torch.stack([layer_norm(a + b, layer.norm2) for a, b in zip(f, passed, strict=True)])
    return f


def smooth_cross_entropy(logits: Tensor, label: int, share: float) -> Tensor:
    logs = logits - logits.exp().sum().log()
    target = [share / CLASSES + (1 - share) * (c == label) for c in range(CLASSES)]
    return -sum(weight * log for weight, log in zip(target, logs, strict=True))


@torch.no_grad()
def test_the_loss_is_that_of_both_classifiers() -> None:
    x, loss = embeddings_of(LABELS), small(temperature=0.3, label_smoothing=0.2)
    nodes = naive_graph(loss, x)
    torch.testing.assert_close(loss.connected(x), nodes, rtol=0, atol=1e-10)
    var = ((nodes - nodes.mean(0)) ** 2).mean(0)
    neck = (nodes - nodes.mean(0)) / (var + loss.neck.eps).sqrt()
    own = loss.classifier
    terms = [
        smooth_cross_entropy(loss.graph_classifier.weight @ n / 0.3, y, 0.2)
        + smooth_cross_entropy((own.weight @ v + own.bias) / 0.3, y, 0.2)
        for n, v, y in zip(neck, x, LABELS, strict=True)
    ]
    expected = torch.stack(terms).mean()
    torch.testing.assert_close(loss(x, torch.tensor(LABELS)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("training", [True, False])
def test_the_graph_is_permutation_equivariant(training: bool) -> None:
    x, order = embeddings_of(LABELS), torch.tensor([3, 0, 7, 1, 2, 6, 5, 4])
    loss = small().train(training)
    torch.testing.assert_close(loss.connected(x[order]), loss.connected(x)[order])
    labels = torch.tensor(LABELS)
    torch.testing.assert_close(small()(x[order], labels[order]), small()(x, labels))


def test_every_image_receives_from_every_other() -> None:
    x = embeddings_of(LABELS).requires_grad_()
    (gradient,) = torch.autograd.grad(small().connected(x)[0].square().sum(), x)
    assert bool((gradient.norm(dim=1) > 0).all())


def test_the_neck_has_no_shift_and_its_classifier_no_bias() -> None:
    loss = build_loss("libc", num_classes=7, embedding_size=8).loss
    assert isinstance(loss, IntraBatchLoss)
    assert not loss.neck.bias.requires_grad
    assert loss.graph_classifier.bias is None
    assert [layer.linear1.out_features for layer in loss.graph] == [32]
    assert {it.p for it in loss.modules() if isinstance(it, torch.nn.Dropout)} == {0.1}


@pytest.mark.parametrize(
    ("column", "constants"),
    [("cub", (1, 2, 0.2)), ("cars196", (2, 8, 0.111)), ("sop", (1, 8, 0.605)),
     ("inshop", (1, 4, 0.186))],
)  # fmt: skip
def test_constants_are_the_published_ones(column: str, constants: tuple[float, ...]) -> None:
    found = LOSSES["libc"].constants(column)
    assert (found["layers"], found["heads"], found["temperature"]) == constants
    assert (found["label_smoothing"], found["dropout"]) == (0.1, 0.1)


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="heads must divide the embedding size, 5, got 2"):
        build_loss("libc", num_classes=3, embedding_size=5)
    x, labels = embeddings_of(LABELS), torch.tensor(LABELS)
    with pytest.raises(ValueError, match="must be None: all are connected"):
        small()(x, labels, None, x, labels)
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.2"):
        build_loss("libc", num_classes=3, embedding_size=4)(torch.randn(8, 4), labels)
