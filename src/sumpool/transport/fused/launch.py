"""Low-overhead launch of Triton kernels.

Triton's own launcher looks up the compiled variant for the arguments in every call; with thirty
arguments, this takes longer than a small kernel runs. Here a known variant is launched directly.
Variants are distinguished more finely than in Triton (by the values of integers rather than their
divisibility), so that one is never used where it does not fit.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import Tensor


class Kernel:
    """A ``triton.jit`` function, with constants last, that caches its compiled variants."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._variants: dict[Hashable, Any] = {}

    def launch(
        self,
        grid: tuple[int, int, int],
        arguments: tuple[Any, ...],
        constants: tuple[Any, ...],
        warps: int,
    ) -> None:
        """Run on ``grid``, compiling the variant for these arguments if it is new."""
        variant = (tuple([_kind(a) for a in arguments]), constants, warps)
        compiled = self._variants.get(variant)
        if compiled is not None:
            compiled[grid](*arguments, *constants)
            return
        compiled = self.function[grid](*arguments, *constants, num_warps=warps, num_stages=1)
        if compiled is not None:  # None from the interpreter, which compiles nothing
            self._variants[variant] = compiled


def _kind(argument: Any) -> Hashable:
    """Everything about an argument that the choice of a compiled variant may depend on."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16, argument.get_device()
    return None if isinstance(argument, float) else argument
