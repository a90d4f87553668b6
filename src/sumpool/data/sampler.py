"""Batches of P classes × K images."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sumpool.data.base import DataError, as_labels
from sumpool.data.random_streams import CLASSES, IMAGES, uniforms
from sumpool.system.wording import first_few
from sumpool.transport.validation import check_seed


class ClassBatchSampler:
    """Batches of P distinct classes × K images, with random access by step.

    The batch of a step is a pure function of labels, sizes, seed and step: a run resumes at its
    exact next batch without stored state, and processes agree without communication.

    Classes are drawn in passes: each pass is a random permutation of all classes, and each batch
    takes the next P, so the draw counts of two classes never differ by more than one. A batch that
    spans the end of one pass and the start of the next has distinct classes too.

    The K images of a class are drawn without replacement. A class with fewer than K images repeats
    an image only after all of its images are used.

    Args:
        labels: The class of each image, (N,) integers.
        classes_per_batch: P.
        images_per_class: K.
        seed: Determines all batches.
        rank: Rank of this process.
        world_size: Number of processes; each takes an equal part of every batch.
        class_names: Class names for error messages, indexed by label.

    Attributes:
        images: N.
        batch_size: P · K, over all processes.
        local_size: Images per batch of this process.
        steps_per_epoch: Number of steps that draw at least N images, ⌈N / (P · K)⌉.

    Example:
        >>> sampler = ClassBatchSampler([0, 0, 1, 1, 2, 2], classes_per_batch=2, images_per_class=2)
        >>> sorted(sampler.batch(0)) in ([0, 1, 2, 3], [0, 1, 4, 5], [2, 3, 4, 5])
        True
        >>> sampler.steps_per_epoch
        2
    """

    def __init__(
        self,
        labels: Tensor | Sequence[int],
        classes_per_batch: int = 8,
        images_per_class: int = 4,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        class_names: Sequence[str] | None = None,
    ) -> None:
        values = as_labels(labels).numpy()
        for name, value in (
            ("classes_per_batch", classes_per_batch),
            ("images_per_class", images_per_class),
            ("world_size", world_size),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0..{world_size - 1}, got {rank}")
        classes, starts, counts = np.unique(np.sort(values), return_index=True, return_counts=True)
        if classes_per_batch > len(classes):
            raise ValueError(
                f"classes_per_batch must be at most the number of classes, {len(classes)}, "
                f"got {classes_per_batch}"
            )
        if images_per_class > 1 and (counts == 1).any():
            _refuse_single_images(classes[counts == 1], images_per_class, class_names)
        batch_size = classes_per_batch * images_per_class
        if batch_size % world_size:
            raise ValueError(
                f"world_size must divide the batch of {classes_per_batch} × {images_per_class} = "
                f"{batch_size} images, got {world_size}"
            )
        self.images = len(values)
        self.batch_size = batch_size
        self.local_size = batch_size // world_size
        self.rank = rank
        self.steps_per_epoch = -(-self.images // batch_size)
        self._seed = check_seed(seed)
        self._classes_per_batch = classes_per_batch
        self._images_per_class = images_per_class
        # The images of the i-th class are order[starts[i] : starts[i] + counts[i]].
        self._order: list[int] = np.argsort(values, kind="stable").tolist()
        self._starts: list[int] = starts.tolist()
        self._counts: list[int] = counts.tolist()
        self._recent: dict[int, NDArray[np.int64]] = {}  # cache of the last passes

    def batch(self, step: int) -> list[int]:
        """Return the indices of the batch of ``step`` over all processes, K per class in turn.

        The order of the classes and of the images within a class is random.
        """
        if step < 0:
            raise ValueError(f"step must be at least 0, got {step}")
        draws = uniforms(self._seed, IMAGES, step, self.batch_size).tolist()
        chosen: list[int] = []
        for position, which in enumerate(self._classes(step)):
            first = position * self._images_per_class
            chosen += self._pick(which, draws[first : first + self._images_per_class])
        return chosen

    def local_batch(self, step: int) -> list[int]:
        """Return this process's part of :meth:`batch`, the ``rank``-th of ``world_size`` slices."""
        first = self.rank * self.local_size
        return self.batch(step)[first : first + self.local_size]

    def batches(self, start: int = 0) -> Iterator[list[int]]:
        """Iterate over this process's batches of steps ``start``, ``start`` + 1, ... forever."""
        return map(self.local_batch, itertools.count(start))

    def _classes(self, step: int) -> list[int]:
        """Return the P classes of a step, as positions in the sorted classes."""
        total = len(self._counts)
        number, place = divmod(step * self._classes_per_batch, total)
        chosen = self._pass(number)[place : place + self._classes_per_batch]
        missing = self._classes_per_batch - len(chosen)
        if missing:
            chosen = np.concatenate([chosen, self._pass(number + 1)[:missing]])
        classes: list[int] = chosen.tolist()
        return classes

    def _pass(self, number: int) -> NDArray[np.int64]:
        """Return the order of all classes in a pass."""
        recent = dict(self._recent)
        first = number
        while first not in recent and self._depends_on_previous(first):
            first -= 1
        for current in range(first, number + 1):
            if current not in recent:
                recent[current] = self._draw_pass(current, recent)
        self._recent = {key: recent[key] for key in (number - 1, number) if key in recent}
        return recent[number]

    def _draw_pass(self, number: int, known: dict[int, NDArray[np.int64]]) -> NDArray[np.int64]:
        total, size = len(self._counts), self._classes_per_batch
        order = self._shuffled(number)
        # The last ``shared`` classes of the previous pass are in the same batch as the start of
        # this one. Any of them among the first P classes here move to the end of those P.
        shared = number * total % size
        if shared:
            final = self._depends_on_previous(number)
            before = known[number - 1] if final else self._shuffled(number - 1)
            ended = np.isin(order[:size], before[total - shared :])
            order[:size] = order[:size][np.argsort(ended, kind="stable")]
        return order

    def _depends_on_previous(self, number: int) -> bool:
        """Whether a pass depends on the final order of the previous pass, not just on its shuffle.

        Only the first P positions of a shuffle are changed, so with at least 2 P - 1 classes the
        end of a pass equals that of its shuffle. With fewer, the chain of dependencies ends at a
        pass aligned with the start of a batch, fewer than P passes earlier.
        """
        total, size = len(self._counts), self._classes_per_batch
        shared = number * total % size
        return shared > 0 and total - shared < size

    def _shuffled(self, number: int) -> NDArray[np.int64]:
        draws = uniforms(self._seed, CLASSES, number, len(self._counts))
        return np.argsort(draws, kind="stable")

    def _pick(self, which: int, draws: Sequence[float]) -> Iterator[int]:
        """Yield one image of a class per draw (Fisher-Yates); start over when all are used."""
        start, count = self._starts[which], self._counts[which]
        moved: dict[int, int] = {}
        for turn, draw in enumerate(draws):
            here = turn % count
            if here == 0:
                moved = {}
            there = here + int(draw * (count - here))
            yield self._order[start + moved.get(there, there)]
            moved[there] = moved.get(here, here)


def _refuse_single_images(
    classes: NDArray[np.int64], images_per_class: int, class_names: Sequence[str] | None
) -> None:
    values = classes.tolist()
    names = [f"label {it}" if class_names is None else repr(class_names[it]) for it in values]
    raise DataError(
        f"images_per_class={images_per_class} needs at least 2 images of every class; "
        f"there is only one of {first_few(names, 5)}"
    )
