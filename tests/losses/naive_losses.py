"""The losses as their formulas read, one pair after the other; autograd differentiates them.

``x`` are embeddings (b, D), ``y`` labels as a list, ``p`` proxies (C, D). All in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def cos(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b) / (a @ a).sqrt() / (b @ b).sqrt()


def dist(a: Tensor, b: Tensor) -> Tensor:
    difference = a / (a @ a).sqrt() - b / (b @ b).sqrt()
    squared = difference @ difference
    return squared.sqrt() if bool(squared > 0) else 0 * squared


def total(terms: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(terms).sum() if terms else 0 * like.sum()


def mean(terms: list[Tensor], like: Tensor) -> Tensor:
    return total(terms, like) / max(len(terms), 1)


def log1p_sum_exp(exponents: list[Tensor], like: Tensor) -> Tensor:
    return (1 + total([it.exp() for it in exponents], like)).log()


Pairs = Iterator[tuple[int, int, bool]]


def pairs(y: list[int], own: list[int] | None = None, ref: list[int] | None = None) -> Pairs:
    """All (anchor, other, same class?), an image with itself left out.

    With references ``ref``, ``own[i]`` is the place that anchor i has among them, if any.
    """
    others = y if ref is None else ref
    mine = list(range(len(y))) if own is None else own
    for i, a in enumerate(y):
        for j, b in enumerate(others):
            if mine[i] != j:
                yield i, j, a == b


def reduce_pairs(pos: list[Tensor], neg: list[Tensor], x: Tensor, reduction: str) -> Tensor:
    if reduction == "image-sum":
        return (total(pos, x) + total(neg, x)) / len(x)
    assert reduction == "nonzero-mean"
    above = [[it for it in terms if bool(it > 0)] for terms in (pos, neg)]
    return mean(above[0], x) + mean(above[1], x)


def contrastive(
    x: Tensor,
    y: list[int],
    term: Callable[[Tensor, Tensor, bool], Tensor],
    reduction: str,
    own: list[int] | None = None,
    ref: Tensor | None = None,
    ref_y: list[int] | None = None,
) -> Tensor:
    others = x if ref is None else ref
    pos, neg = [], []
    for i, j, same in pairs(y, own, ref_y):
        (pos if same else neg).append(term(x[i], others[j], same).clamp(min=0))
    return reduce_pairs(pos, neg, x, reduction)


def c1(x: Tensor, y: list[int], *, margin: float, reduction: str, **refs: object) -> Tensor:
    def term(a: Tensor, b: Tensor, same: bool) -> Tensor:
        return 1 - cos(a, b) if same else cos(a, b) - margin

    return contrastive(x, y, term, reduction, **refs)  # type: ignore[arg-type]


def c2(
    x: Tensor,
    y: list[int],
    *,
    pos_margin: float,
    neg_margin: float,
    reduction: str,
    **refs: object,
) -> Tensor:
    def term(a: Tensor, b: Tensor, same: bool) -> Tensor:
        return dist(a, b) - pos_margin if same else neg_margin - dist(a, b)

    return contrastive(x, y, term, reduction, **refs)  # type: ignore[arg-type]


def triplet(x: Tensor, y: list[int], *, margin: float) -> Tensor:
    terms = []
    for i, j, same in pairs(y):
        for k in range(len(y)):
            if same and y[k] != y[i]:
                term = dist(x[i], x[j]) - dist(x[i], x[k]) + margin
                if bool(term > 0):
                    terms.append(term)
    return mean(terms, x)


def ms(x: Tensor, y: list[int], *, alpha: float, beta: float, base: float) -> Tensor:
    losses = []
    for i in range(len(y)):
        similar = [(cos(x[i], x[j]), y[i] == y[j]) for j in range(len(y)) if j != i]
        pos = [-alpha * (s - base) for s, same in similar if same]
        neg = [beta * (s - base) for s, same in similar if not same]
        losses.append(log1p_sum_exp(pos, x) / alpha + log1p_sum_exp(neg, x) / beta)
    return mean(losses, x)


def panchor(x: Tensor, y: list[int], p: Tensor, *, margin: float, alpha: float) -> Tensor:
    pos, neg = [], []
    for c in range(len(p)):
        same = [-alpha * (cos(x[i], p[c]) - margin) for i in range(len(y)) if y[i] == c]
        other = [alpha * (cos(x[i], p[c]) + margin) for i in range(len(y)) if y[i] != c]
        if same:
            pos.append(log1p_sum_exp(same, x))
        neg.append(log1p_sum_exp(other, x))
    return mean(pos, x) + mean(neg, x)


def pnca(x: Tensor, y: list[int], p: Tensor, *, temperature: float) -> Tensor:
    losses = []
    for i in range(len(y)):
        logits = [cos(x[i], p[c]) / temperature for c in range(len(p))]
        losses.append(-(logits[y[i]].exp() / total([it.exp() for it in logits], x)).log())
    return mean(losses, x)


def proxynca(x: Tensor, y: list[int], p: Tensor, *, softmax_scale: float) -> Tensor:
    losses = []
    for i in range(len(y)):
        closeness = [(-softmax_scale * dist(x[i], p[c]) ** 2).exp() for c in range(len(p))]
        losses.append(-(closeness[y[i]] / total(closeness, x)).log())
    return mean(losses, x)


def softtriple(
    x: Tensor,
    y: list[int],
    p: Tensor,
    *,
    la: float,
    gamma: float,
    reg_weight: float,
    margin: float,
    centers_per_class: int,
) -> Tensor:
    K = centers_per_class
    C = len(p) // K
    losses = []
    for i in range(len(y)):
        logits = []
        for c in range(C):
            s = [cos(x[i], p[c * K + k]) for k in range(K)]
            q = [(it / gamma).exp() for it in s]
            similarity = sum(a * b for a, b in zip(q, s, strict=True)) / sum(q)
            logits.append(la * (similarity - margin * (c == y[i])))
        losses.append(-(logits[y[i]].exp() / total([it.exp() for it in logits], x)).log())
    apart = [dist(p[c * K + s], p[c * K + t]) for c in range(C) for s in range(K) for t in range(s)]
    spread = total(apart, x) / (C * K * (K - 1)) if K > 1 else 0.0
    return mean(losses, x) + reg_weight * spread


def npair(x: Tensor, y: list[int]) -> Tensor:
    chosen = []
    for c in sorted(set(y)):
        places = [i for i, it in enumerate(y) if it == c]
        if len(places) > 1:
            chosen.append((places[0], places[1]))
    losses = []
    for n, (a, p) in enumerate(chosen):
        others = [x[a] @ x[q] - x[a] @ x[p] for k, (_, q) in enumerate(chosen) if k != n]
        losses.append(log1p_sum_exp(others, x))
    return mean(losses, x)


def lifted(x: Tensor, y: list[int], *, pos_margin: float, neg_margin: float) -> Tensor:
    losses = []
    for i, j, same in pairs(y):
        if same and i < j:
            near = [
                (neg_margin - dist(x[a], x[k])).exp()
                for a in (i, j)
                for k in range(len(y))
                if y[k] != y[i]
            ]
            if near:
                term = total(near, x).log() + dist(x[i], x[j]) - pos_margin
                losses.append(term.clamp(min=0) ** 2 / 2)
    return mean(losses, x)


def circle(x: Tensor, y: list[int], *, margin: float, gamma: float) -> Tensor:
    losses = []
    for i in range(len(y)):
        pos, neg = [], []
        for j in range(len(y)):
            s = cos(x[i], x[j])
            if y[j] != y[i]:
                weight = (s.detach() + margin).clamp(min=0)
                neg.append((gamma * weight * (s - margin)).exp())
            elif j != i:
                weight = (1 + margin - s.detach()).clamp(min=0)
                pos.append((-gamma * weight * (s - (1 - margin))).exp())
        if pos and neg:
            losses.append((1 + total(pos, x) * total(neg, x)).log())
    return mean([it for it in losses if bool(it > 0)], x)


#: The losses without a memory, by their names in the catalog.
PAIR_LOSSES = {
    "c1": c1,
    "c2": c2,
    "triplet": triplet,
    "ms": ms,
    "npair": npair,
    "lifted": lifted,
    "circle": circle,
}
PROXY_LOSSES = {"panchor": panchor, "pnca": pnca, "softtriple": softtriple, "proxynca": proxynca}


def zero_shot(
    z: Tensor,
    y: list[int],
    classes: Tensor,
    ridge: float,
    scale: float,
    order: list[int] | None = None,
) -> Tensor:
    """L_ZS image by image, with an explicit inverse; the classes go to the halves by turns.

    They do so in ``order``, by default that of their first appearance.
    """
    order = list(dict.fromkeys(y)) if order is None else order
    halves = [[i for i in range(len(y)) if order.index(y[i]) % 2 == k] for k in range(2)]
    loss = 0 * z.sum()
    for fitted, predicted in (halves, halves[::-1]):
        Z = torch.stack([z[i] for i in fitted], dim=1)  # (m, b), as the papers write it
        targets = torch.stack([classes[y[i]] for i in fitted], dim=1)  # (D, b)
        A = targets @ torch.linalg.inv(Z.T @ Z + ridge * torch.eye(len(fitted)).double()) @ Z.T
        for i in predicted:
            logits = [scale * (classes[c] @ (A @ z[i])) for c in range(len(classes))]
            probability = logits[y[i]].exp() / total([it.exp() for it in logits], z)
            loss = loss - probability.log() / len(predicted)
    return loss
