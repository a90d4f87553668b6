"""Feed of images loaded on demand by worker processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sumpool.data.base import DataError, ImageDataset
from sumpool.data.feeds.batches import Batch, ImageFeed
from sumpool.data.sampler import ClassBatchSampler
from sumpool.data.views.boxes import view_draws
from sumpool.data.views.preprocessing import Preprocessing
from sumpool.system.cores import usable_cores
from sumpool.system.signals import SIGNALS, obey_parent_alone, shielded_children

#: Maximum default number of workers.
_MOST_WORKERS = 16

#: Image index and view: (step, position in the global batch), or None for the central view.
Request = tuple[int, tuple[int, int] | None]


class LoadingFeed(ImageFeed):
    """Feed that loads and crops images in worker processes.

    The arguments are those of :class:`ImageFeed` and ``workers``, the number of processes. 0 loads
    in this process; None is one per core, up to 16, divided among the processes that a launcher
    such as torchrun has started on this machine.
    """

    def __init__(
        self,
        dataset: ImageDataset,
        preprocessing: Preprocessing,
        device: torch.device,
        seed: int = 0,
        workers: int | None = None,
    ) -> None:
        super().__init__(dataset, preprocessing, device, seed)
        if workers is None:
            sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            workers = max(1, min(_MOST_WORKERS, usable_cores() // sharing))
        if workers < 0:
            raise ValueError(f"workers must be at least 0, got {workers}")
        self.workers = workers
        # Workers of test batches, kept for the next validation.
        self._idle: list[tuple[_Plan, DataLoader[Any]]] = []

    def train_batches(self, sampler: ClassBatchSampler, start: int = 0) -> Iterator[Batch]:
        """Yield random views of the sampler's batches, see :meth:`ImageFeed.train_batches`.

        The workers terminate with the iterator, even if it is closed early.
        """
        self._check_sampler(sampler)
        first = sampler.rank * sampler.local_size

        def requests() -> Iterator[list[Request]]:
            for step, batch in enumerate(sampler.batches(start), start):
                yield [(it, (step, first + place)) for place, it in enumerate(batch)]

        return self._batches(self._loader(_Plan(requests()), keep=False))

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Batch]:
        """Yield central views in the given order, see :meth:`ImageFeed.test_batches`.

        Unless the iterator is closed early, the workers are reused by later calls until
        :meth:`close`.
        """
        parts = self._split(indices, batch_size)
        return self._test(_Plan([[(it, None) for it in part.tolist()] for part in parts]))

    def close(self) -> None:
        """Terminate the workers kept for the next test batches."""
        self._idle.clear()

    def _test(self, plan: _Plan) -> Iterator[Batch]:
        kept, loader = self._idle.pop() if self._idle else (plan, self._loader(plan, keep=True))
        kept.batches = plan.batches
        try:
            yield from self._batches(loader)
            self._idle.append((kept, loader))
        finally:
            del loader

    def _loader(self, plan: _Plan, keep: bool) -> DataLoader[Any]:
        return DataLoader(
            _Views(self.dataset, self.preprocessing, self.seed),
            batch_sampler=plan,
            num_workers=self.workers,
            collate_fn=_collate,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=_start_worker,
            generator=torch.Generator(),  # otherwise DataLoader draws from the global one
            persistent_workers=keep and self.workers > 0,
            prefetch_factor=4 if self.workers else None,
        )

    def _batches(self, loader: DataLoader[Any]) -> Iterator[Batch]:
        with shielded_children(*SIGNALS):
            source = iter(loader)
        try:
            for loaded in source:
                if isinstance(loaded, DataError):
                    raise loaded
                pixels, labels, indices = loaded
                images = self.preprocessing.normalize(pixels.to(self.device, non_blocking=True))
                yield Batch(images, labels.to(self.device, non_blocking=True), indices)
        finally:
            # Workers terminate with the last reference, which a traceback must not keep alive.
            del source, loader


class _Plan:
    """Batch sampler whose batches can be replaced between two iterations of the loader."""

    def __init__(self, batches: Iterable[list[Request]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[Request]]:
        return iter(self.batches)


class _Views(Dataset[Any]):
    """Data set of views. Errors are returned, not raised, because torch would wrap them."""

    def __init__(self, dataset: ImageDataset, preprocessing: Preprocessing, seed: int) -> None:
        self.dataset = dataset
        self.preprocessing = preprocessing
        self.seed = seed

    def __getitem__(self, request: Request) -> tuple[Tensor, Tensor, int] | DataError:
        index, view = request
        try:
            image = self.dataset.load(index)
        except DataError as error:
            return error
        if view is None:
            pixels = self.preprocessing.test_pixels(image)
        else:
            step, position = view
            draws = view_draws(self.seed, step, position, 1)
            pixels = self.preprocessing.train_pixels(image, draws[0])
        return pixels, self.dataset.labels[index], index


def _collate(items: list[Any]) -> tuple[Tensor, Tensor, Tensor] | DataError:
    for item in items:
        if isinstance(item, DataError):
            return item
    pixels, labels, indices = zip(*items, strict=True)
    return torch.stack(pixels), torch.stack(labels), torch.tensor(indices)


def _start_worker(worker: int) -> None:
    obey_parent_alone()
    sys.excepthook = _report_exception


def _report_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    # The thread that transfers tensors reports all exceptions, but a connection that an interrupted
    # parent closes is not an error.
    if not isinstance(error, (EOFError, ConnectionError)):
        sys.__excepthook__(kind, error, trace)
