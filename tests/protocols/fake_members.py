"""Run folders that no training made: stored embeddings and metrics, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sumpool.evaluation import retrieval_metrics
from sumpool.protocols import Member, MemberResult, Protocol, read_member

#: Embeddings of one member, (N, d), of the queries (0) or of the gallery (1).
Draw = Callable[[Member, int], Tensor]


def write_member(
    folder: Path,
    evaluation: str,
    vectors: Sequence[Tensor],
    labels: Sequence[Tensor],
    root: str = "/data/birds",
    ks: tuple[int, ...] = (1, 2, 4, 8),
) -> Path:
    """The folder of a run with one evaluation; two sets are queries and gallery."""
    part = folder / "evaluation" / evaluation
    part.mkdir(parents=True)
    for prefix, own, classes in zip(("", "gallery-"), vectors, labels, strict=False):
        np.save(part / f"{prefix}embeddings.npy", own.numpy())
        np.save(part / f"{prefix}labels.npy", classes.numpy())
        names = [f"{root}/{prefix}{label}/{n}.jpg" for n, label in enumerate(classes.tolist())]
        items = {"names": names, "class_names": [str(it) for it in range(100)]}
        (part / f"{prefix}items.json").write_text(json.dumps(items))
    pairs = zip(vectors, labels, strict=True)
    metrics = retrieval_metrics(*(it for pair in pairs for it in pair), ks=ks)
    (part / "metrics.json").write_text(json.dumps(metrics))
    return folder


def write_members(
    root: Path, protocol: Protocol, draw: Draw, labels: Sequence[Tensor], seeds: int | None = None
) -> list[MemberResult]:
    """All members of a protocol, evaluated on the same images."""
    results = []
    for member in protocol.members(seeds):
        vectors = [draw(member, which) for which in range(len(labels))]
        folder = write_member(root / str(member), protocol.evaluated_on, vectors, labels)
        results.append(read_member(protocol, member, folder))
    return results


def clustered(labels: Sequence[Tensor], dimension: int = 6, noise: float = 1.0) -> Draw:
    """Embeddings around the centers of classes: models of a fold see nearly the same."""

    def draw(member: Member, which: int) -> Tensor:
        shared = torch.Generator().manual_seed(100 * (member.fold or 0))
        own = torch.Generator().manual_seed(100 * (member.fold or 0) + member.seed + 1)
        size = max(int(it.max()) for it in labels) + 1
        centers = torch.randn(size, dimension, generator=shared)
        together = [torch.randn(len(it), dimension, generator=shared) for it in labels]
        alone = [torch.randn(len(it), dimension, generator=own) for it in labels]
        x = centers[labels[which]] + noise * (0.8 * together[which] + 0.3 * alone[which])
        return torch.nn.functional.normalize(x, dim=1)

    return draw
