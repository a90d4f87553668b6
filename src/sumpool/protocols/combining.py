"""Combine the runs of a protocol into scores."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sumpool.evaluation.concatenated.metrics import concatenated_metrics
from sumpool.evaluation.inputs import MAX_MEMORY
from sumpool.protocols.errors import ProtocolError
from sumpool.protocols.protocol import Protocol
from sumpool.protocols.run_results import (
    ImageList,
    Images,
    MemberResult,
    check_same_images,
    read_images,
    sorted_members,
)

Values = NDArray[np.float64]

#: Default working memory on a GPU, in bytes.
GPU_MEMORY = 2**32

_METRIC = re.compile(r"precision_at_1|recall_at_\d+|r_precision|mean_average_precision_at_r")


@dataclass(frozen=True)
class MemberScore:
    """Score of a protocol in one metric.

    Attributes:
        dimension: Dimension of the searched embeddings.
        metric: Name of the metric.
        mean: Mean over the combinations, in 0..1; with summary "best", the value of the best seed.
        std: Sample standard deviation over the combinations (n − 1); 0 for a single one.
        count: Number of combinations of one seed per fold; 1 with summary "best".
        note: A remark such as "selected on the test set".
    """

    dimension: int
    metric: str
    mean: float
    std: float
    count: int
    note: str


@dataclass(frozen=True)
class Combined:
    """Metrics of all runs of a protocol, from which scores and gains are computed.

    Attributes:
        protocol: The protocol.
        results: Its runs, ordered by fold, then by seed.
        images: Queries and gallery of the first run; the gallery is None if queries are searched
            among themselves.
        dimension: Embedding dimension of a single model.
        single: Metrics of the single models by name, each of shape (folds, seeds).
        concatenated: Metrics of the concatenated embeddings of one model per fold, one value per
            combination in the order of ``itertools.product``; None if the protocol has none.
    """

    protocol: Protocol
    results: Sequence[MemberResult]
    images: tuple[ImageList, ImageList | None]
    dimension: int
    single: dict[str, Values]
    concatenated: dict[str, Values] | None

    def scores(self) -> list[MemberScore]:
        """Return the scores, those of single models first."""
        protocol = self.protocol
        if protocol.summary == "best":
            # All metrics come from the same model.
            best = int(self.single[protocol.monitor].argmax())
            return [
                MemberScore(self.dimension, name, float(own.flat[best]), 0.0, 1, self._note())
                for name, own in self.single.items()
            ]
        scores = [
            self._score(self.dimension, name, [float(np.mean(it)) for it in product(*own)])
            for name, own in self.single.items()
        ]
        if self.concatenated is not None:
            wide = self.dimension * len(next(iter(self.single.values())))
            scores += [
                self._score(wide, name, own.tolist()) for name, own in self.concatenated.items()
            ]
        return scores

    def _score(self, dimension: int, metric: str, values: list[float]) -> MemberScore:
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.fmean(values)
        return MemberScore(dimension, metric, mean, spread, len(values), self._note())

    def _note(self) -> str:
        return score_note(self.protocol, len(self.results))


def score_note(protocol: Protocol, runs: int) -> str:
    """Return the remark that must accompany the scores of ``protocol`` over ``runs`` runs.

    Example:
        >>> from sumpool.protocols import PROTOCOLS
        >>> score_note(PROTOCOLS["conventional"], 3)
        'selected on the test set, best of 3'
    """
    remarks = [protocol.note] if protocol.note else []
    if protocol.summary == "best" and runs > 1:
        remarks.append(f"best of {runs}")
    return ", ".join(remarks)


def combine(
    protocol: Protocol,
    results: Sequence[MemberResult],
    *,
    seeds: int | None = None,
    progress: bool = False,
    device: torch.device | str = "cpu",
    max_memory: int | None = None,
) -> Combined:
    """Check the runs of a protocol and evaluate their combinations from stored embeddings.

    Args:
        protocol: The protocol.
        results: All of its runs, in any order.
        seeds: Runs per fold; None for the number set by the protocol.
        progress: Whether to show a progress bar.
        device: Device on which combinations are evaluated.
        max_memory: Working memory in bytes; None for 512 MiB, or 4 GiB on a GPU.

    Raises:
        MissingMemberError: If runs are missing; names each. An incomplete set is never scored.
        ProtocolError: If a run is not part of the protocol, or was evaluated on other images.
    """
    results = sorted_members(protocol, results, seeds)
    first = results[0]
    metrics = _metric_names(results)
    folds = len(protocol.models_folds) or 1
    single = {
        name: np.array([it.metrics[name] for it in results]).reshape(folds, -1) for name in metrics
    }
    parts = [read_images(it, protocol.evaluated_on) for it in results]
    images = parts[0]
    dimension = images[0].vectors.shape[1]
    # Each fold has its own validation images.
    same = len(results) // folds if protocol.evaluated_on == "validation" else len(results)
    for place, (it, own) in enumerate(zip(results, parts, strict=True)):
        reference = place - place % same
        check_same_images(results[reference], parts[reference], it, own)
        if own[0].vectors.shape[1] != dimension:
            raise ProtocolError(
                f"{it.folder} ({it.member}) has embeddings of {own[0].vectors.shape[1]} "
                f"dimensions, {first.folder} of {dimension}"
            )
    concatenated = None
    if protocol.summary == "combinations":
        device = torch.device(device)
        if max_memory is None:
            max_memory = GPU_MEMORY if device.type == "cuda" else MAX_MEMORY
        concatenated = _concatenate(parts, folds, metrics, progress, device, max_memory)
    return Combined(protocol, results, images, dimension, single, concatenated)


def aggregate(
    protocol: Protocol, results: Sequence[MemberResult], **options: Any
) -> list[MemberScore]:
    """Return the scores of a protocol; arguments and errors are those of :func:`combine`."""
    return combine(protocol, results, **options).scores()


def _metric_names(results: Sequence[MemberResult]) -> list[str]:
    names = [name for name in results[0].metrics if _METRIC.fullmatch(name)]
    for it in results:
        own = [name for name in it.metrics if _METRIC.fullmatch(name)]
        if sorted(own) != sorted(names) or "precision_at_1" not in own:
            raise ProtocolError(
                f"{it.folder} ({it.member}) has the metrics {', '.join(own) or 'none'}, "
                f"{results[0].folder} has {', '.join(names) or 'none'}"
            )
    return names


def _concatenate(
    parts: Sequence[tuple[Images, Images | None]],
    folds: int,
    metrics: Sequence[str],
    progress: bool,
    device: torch.device,
    max_memory: int,
) -> dict[str, Values]:
    def tensors(sets: Iterable[Images | None]) -> list[torch.Tensor]:
        return [torch.from_numpy(np.array(it.vectors)).to(device) for it in sets if it is not None]

    seeds = len(parts) // folds
    query, gallery = parts[0]
    ks = [int(name.removeprefix("recall_at_")) for name in metrics if name.startswith("recall_at_")]
    values = concatenated_metrics(
        tensors(own for own, _ in parts),
        torch.from_numpy(query.labels),
        None if gallery is None else tensors(own for _, own in parts),
        None if gallery is None else torch.from_numpy(gallery.labels),
        groups=[range(fold * seeds, (fold + 1) * seeds) for fold in range(folds)],
        ks=ks,
        max_memory=max_memory,
        progress=progress,
    )
    return {name: values[name].numpy() for name in metrics}
