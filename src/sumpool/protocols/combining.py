"""From the trainings of a protocol to its scores."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from sumpool.evaluation.inputs import MAX_MEMORY
from sumpool.protocols.errors import ProtocolError
from sumpool.protocols.joined import joined_metrics
from sumpool.protocols.judged import (
    ImageList,
    Images,
    JudgedMember,
    check_same_images,
    read_images,
    sorted_members,
)
from sumpool.protocols.protocol import Protocol

Values = NDArray[np.float64]

#: Working memory on a GPU, in bytes.
GPU_MEMORY = 2**32

_METRIC = re.compile(r"precision_at_1|recall_at_\d+|r_precision|mean_average_precision_at_r")


@dataclass(frozen=True)
class MemberScore:
    """One number of a protocol's result.

    Attributes:
        dimension: Number of dimensions that were searched.
        metric: Which metric.
        mean: Mean over the combinations, as a share of 1; with the best of several seeds, its own.
        std: Sample standard deviation over the combinations (n − 1); 0 of a single one.
        count: Number of combinations: of one seed a fold, or of seeds.
        note: What must be said beside it, such as "selected on the test set".
    """

    dimension: int
    metric: str
    mean: float
    std: float
    count: int
    note: str


@dataclass(frozen=True)
class Combined:
    """All that scores and gains of a protocol are computed from.

    Attributes:
        protocol: The protocol.
        judged: Its trainings, by fold, then by seed.
        images: The images that the first of them was judged on; None in the place of the gallery
            where the queries are searched themselves.
        dimension: Dimensions of one model's embedding.
        single: Metrics of each model, (folds, seeds) each.
        joined: Metrics of the embeddings of one model a fold side by side, one value a combination
            in the order of ``itertools.product``; None for protocols without.
    """

    protocol: Protocol
    judged: Sequence[JudgedMember]
    images: tuple[ImageList, ImageList | None]
    dimension: int
    single: dict[str, Values]
    joined: dict[str, Values] | None

    def scores(self) -> list[MemberScore]:
        """The scores, those of single models first."""
        protocol = self.protocol
        if protocol.summary == "best":
            # One model is the best: its other metrics are not chosen once more.
            best = int(self.single[protocol.monitor].argmax())
            return [
                MemberScore(self.dimension, name, float(own.flat[best]), 0.0, 1, self._note())
                for name, own in self.single.items()
            ]
        found = [
            self._score(self.dimension, name, self._means(own)) for name, own in self.single.items()
        ]
        if self.joined is not None:
            wide = self.dimension * len(next(iter(self.single.values())))
            found += [self._score(wide, name, own) for name, own in self.joined.items()]
        return found

    @staticmethod
    def _means(own: Values) -> Values:
        """The mean over folds of each combination of one seed a fold."""
        return np.array([np.mean(chosen) for chosen in product(*own)])

    def _score(self, dimension: int, metric: str, own: Values) -> MemberScore:
        values = own.tolist()
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.fmean(values)
        return MemberScore(dimension, metric, mean, spread, len(values), self._note())

    def _note(self) -> str:
        return score_note(self.protocol, len(self.judged))


def score_note(protocol: Protocol, trainings: int) -> str:
    """What must be said beside the scores that ``protocol`` makes of so many trainings.

    Example:
        >>> from sumpool.protocols import PROTOCOLS
        >>> score_note(PROTOCOLS["conventional"], 3)
        'selected on the test set, best of 3'
    """
    said = [protocol.note] if protocol.note else []
    if protocol.summary == "best" and trainings > 1:
        said.append(f"best of {trainings}")
    return ", ".join(said)


def combine(
    protocol: Protocol,
    judged: Sequence[JudgedMember],
    *,
    seeds: int | None = None,
    progress: bool = False,
    device: torch.device | str = "cpu",
    max_memory: int | None = None,
) -> Combined:
    """Check the trainings of a protocol, and judge their combinations from stored embeddings.

    Args:
        protocol: The protocol.
        judged: Its trainings, in any order.
        seeds: Trainings of each fold; None is the number of the protocol.
        progress: Whether to show a progress bar.
        device: Where combinations are judged.
        max_memory: Bytes of working memory for it, on top of copies of the embeddings; None is 512
            MiB, on a GPU 4 GiB.

    Raises:
        MissingMemberError: If trainings are missing; names each.
        ProtocolError: If a training does not belong here, or was judged on other images.
    """
    judged = sorted_members(protocol, judged, seeds)
    metrics = _metric_names(judged)
    folds = len(protocol.models_folds) or 1
    single = {
        name: np.array([it.metrics[name] for it in judged]).reshape(folds, -1) for name in metrics
    }
    images = read_images(judged[0], protocol.judged_on)
    dimension = images[0].vectors.shape[1]
    parts = [images]
    for place, it in enumerate(judged[1:], 1):
        parts.append(read_images(it, protocol.judged_on))
        # Folds are validated on classes of their own.
        own_fold = protocol.judged_on == "validation"
        first = place - place % (len(judged) // folds) if own_fold else 0
        check_same_images(judged[first], parts[first], it, parts[-1])
        found = parts[-1][0].vectors.shape[1]
        if found != dimension:
            raise ProtocolError(
                f"{it.folder} ({it.member}) has embeddings of {found} dimensions, "
                f"{judged[0].folder} of {dimension}"
            )
    joined = None
    if protocol.summary == "combinations":
        device = torch.device(device)
        if max_memory is None:
            max_memory = GPU_MEMORY if device.type == "cuda" else MAX_MEMORY
        joined = _join(parts, folds, metrics, progress, device, max_memory)
    return Combined(protocol, judged, images, dimension, single, joined)


def aggregate(
    protocol: Protocol,
    judged: Sequence[JudgedMember],
    *,
    seeds: int | None = None,
    progress: bool = False,
    device: torch.device | str = "cpu",
    max_memory: int | None = None,
) -> list[MemberScore]:
    """The scores of a protocol; see :func:`combine`, which takes the same arguments.

    Args:
        protocol: The protocol.
        judged: Its trainings, in any order; all of them.
        seeds: Trainings of each fold; None is the number of the protocol.
        progress: Whether to show a progress bar.
        device: Where combinations are judged.
        max_memory: Bytes of working memory for it; None is 512 MiB, on a GPU 4 GiB.

    Raises:
        MissingMemberError: If trainings are missing; names each. There is no score of fewer.
        ProtocolError: If a training does not belong here, or was judged on other images.
    """
    return combine(
        protocol, judged, seeds=seeds, progress=progress, device=device, max_memory=max_memory
    ).scores()


def _metric_names(judged: Sequence[JudgedMember]) -> list[str]:
    names = [name for name in judged[0].metrics if _METRIC.fullmatch(name)]
    for it in judged:
        own = [name for name in it.metrics if _METRIC.fullmatch(name)]
        if sorted(own) != sorted(names) or "precision_at_1" not in own:
            raise ProtocolError(
                f"{it.folder} ({it.member}) has the metrics {', '.join(own) or 'none'}, "
                f"{judged[0].folder} has {', '.join(names) or 'none'}"
            )
    return names


def _join(
    parts: Sequence[tuple[Images, Images | None]],
    folds: int,
    metrics: Sequence[str],
    progress: bool,
    device: torch.device,
    max_memory: int,
) -> dict[str, Values]:
    def tensors(which: int) -> list[torch.Tensor]:
        chosen = [pair[which] for pair in parts]
        return [
            torch.from_numpy(np.array(it.vectors)).to(device) for it in chosen if it is not None
        ]

    seeds = len(parts) // folds
    query, gallery = parts[0]
    ks = [int(name.removeprefix("recall_at_")) for name in metrics if name.startswith("recall_at_")]
    found = joined_metrics(
        tensors(0),
        torch.from_numpy(query.labels),
        None if gallery is None else tensors(1),
        None if gallery is None else torch.from_numpy(gallery.labels),
        groups=[range(fold * seeds, (fold + 1) * seeds) for fold in range(folds)],
        ks=ks,
        max_memory=max_memory,
        progress=progress,
    )
    return {name: found[name].numpy() for name in metrics}
