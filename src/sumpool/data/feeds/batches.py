"""Batches and the interface of all feeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.base import ImageDataset, as_indices
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.views.boxes import view_draws
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.transport.validation import check_seed


class Batch(NamedTuple):
    """A batch of network inputs.

    Attributes:
        images: Normalized pixels, (b, 3, H, W) float32, on the feed's device; feeds of feature maps
            put the maps here.
        labels: Labels of the data set, (b,) int64, on the feed's device.
        indices: Indices of the images in the data set, (b,) int64, on the CPU.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor


class ImageFeed(ABC):
    """Base class of feeds, which yield the images of a data set as batches of network inputs.

    Args:
        dataset: The images; it must have no transforms, since the feed creates the views.
        preprocessing: The train and the test view.
        device: Device of the batches.
        seed: Determines the random views.
    """

    def __init__(
        self, dataset: ImageDataset, preprocessing: Preprocessing, device: torch.device, seed: int
    ) -> None:
        for name in ("transform", "target_transform"):
            if getattr(dataset, name) is not None:
                raise ValueError(
                    f"dataset must have no {name}: a feed shows images through preprocessing and "
                    "labels as they are"
                )
        self.dataset = dataset
        self.preprocessing = preprocessing
        self.device = device
        self.seed = check_seed(seed)

    @abstractmethod
    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Yield random views of the sampler's batches, forever.

        The view at a position of the global batch is a pure function of the feed's seed, the step
        and the position: a run that resumes at ``start`` gets the same pixels, for any number of
        workers or processes. Global random states are not modified.

        Args:
            sampler: Chooses the images; built for the labels of this feed's data set.
            start: Step of the first batch.

        Raises:
            BrokenImageError: If an image cannot be read; names it.
        """

    @abstractmethod
    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Yield central views of images, in the given order; the last batch may be smaller.

        Args:
            indices: Indices of the images, (n,); None for all.
            batch_size: Images per batch.

        Raises:
            BrokenImageError: If an image cannot be read; names it.
        """

    def close(self) -> None:  # noqa: B027 - most feeds have no workers
        """Terminate idle worker processes; the feed remains usable."""

    def _check_sampler(self, sampler: ClassBatchSampler) -> None:
        if sampler.images != len(self.dataset):
            raise ValueError(
                f"sampler must be built for the {len(self.dataset)} images of the data set, "
                f"it is for {sampler.images}"
            )

    def _local_draws(
        self, sampler: ClassBatchSampler, step: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return this process's part of a batch, (b,) indices, and the draws of its views."""
        indices = np.array(sampler.local_batch(step))
        first = sampler.rank * sampler.local_size
        return indices, view_draws(self.seed, step, first, len(indices))

    def _split(self, indices: Tensor | Sequence[int] | None, batch_size: int) -> tuple[Tensor, ...]:
        """Return the indices of each test batch."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        count = len(self.dataset)
        wanted = torch.arange(count) if indices is None else as_indices(indices, count)
        return torch.split(wanted, batch_size) if len(wanted) else ()
