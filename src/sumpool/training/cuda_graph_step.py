"""A whole training step as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sumpool.data import Batch

#: A training step: updates the weights, and returns the loss of the batch and its parts.
Step = Callable[[Batch], dict[str, Tensor]]

#: Eager steps before one is recorded, in which the optimizer creates its moments and libraries
#: choose their kernels.
EAGER_STEPS = 3


class CudaGraphStep:
    """Forward pass, loss, backward pass and optimizer step, launched as one CUDA graph.

    The first steps run eagerly, on a separate stream; then one is recorded, which does not run it,
    and from there on it is replayed. Every call trains, so that a recorded run computes the same as
    an unrecorded one. Call :meth:`forget` to start over when the trained parameters change.

    Args:
        step: The step. It must not wait for the device, and its optimizer must be ``capturable``.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._stream = torch.cuda.Stream()
        self.forget()

    def forget(self) -> None:
        """Discard the recording, if any, and start over with eager steps."""
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Batch | None = None
        self._terms: dict[str, Tensor] = {}
        self._eager = EAGER_STEPS

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Run the step on ``batch``, whose shapes must not change between calls."""
        if self._eager:
            self._eager -= 1
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                terms = self._step(batch)
            current.wait_stream(self._stream)
            return terms
        if self._graph is None:
            self._record(batch)
        assert self._batch is not None
        assert self._graph is not None
        self._batch.images.copy_(batch.images)
        self._batch.labels.copy_(batch.labels)
        self._graph.replay()
        # The next replay writes to the same memory.
        return {name: value.clone() for name, value in self._terms.items()}

    def _record(self, batch: Batch) -> None:
        self._batch = Batch(batch.images.clone(), batch.labels.clone(), batch.indices)
        graph = torch.cuda.CUDAGraph()
        # Only calls of this thread can invalidate the recording: feeds use other threads.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._terms = self._step(self._batch)
        self._graph = graph
