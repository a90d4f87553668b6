"""The exponential moving average of a model's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """An exponential moving average of the parameters and the floating-point buffers of a model.

    After update t (1, 2, …) it is d·average + (1 − d)·weights with d = min(decay, (t − 1)/(t + 8)):
    the first update takes the weights as they are, and early ones forget fast. All of it happens in
    place, beside a recorded step.

    Args:
        model: On its device; its tensors keep their memory from now on.
        decay: In (0, 1).

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> average = WeightAverage(layer, decay=0.9)
        >>> for step in (1, 2):
        ...     _ = layer.weight.data.fill_(step)
        ...     average.update(step)
        >>> with average.applied():
        ...     print(f"{layer.weight.item():.2f}")
        1.90
        >>> layer.weight.item()
        2.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        state = {name: it for name, it in model.state_dict().items() if it.is_floating_point()}
        self._decay, self._names, self._weights = decay, list(state), list(state.values())
        self._average = [it.clone() for it in self._weights]

    def update(self, count: int) -> None:
        """Take in the weights as they are now, as update number ``count``; up to 1 begins anew."""
        past = max(0, count - 1)
        decay = min(self._decay, past / (past + 9))
        torch._foreach_lerp_(self._average, self._weights, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside of it the model has the average as its weights, and then its own again."""
        own = [it.clone() for it in self._weights]
        self.apply()
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, own)

    def apply(self) -> None:
        """Give the model the average as its weights."""
        torch._foreach_copy_(self._weights, self._average)

    def state_dict(self) -> dict[str, Tensor]:
        """The average by names of the model's state."""
        return dict(zip(self._names, self._average, strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        for name, average in zip(self._names, self._average, strict=True):
            average.copy_(state[name])
