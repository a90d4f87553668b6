"""A compiled variant is launched again only where it fits."""

from __future__ import annotations

from typing import Any

import torch

from sumpool.transport.fused.launch import Kernel


class Recorder:
    """Stands in for a Triton function: counts compilations and launches."""

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments, **options: self._first(arguments)

    def _first(self, arguments: tuple[Any, ...]) -> Any:
        self.compiled.append(arguments)
        recorder = self

        class Compiled:
            def __getitem__(self, grid: tuple[int, ...]) -> Any:
                return lambda *again: recorder.launched.append(again)

        return Compiled()


def test_equal_arguments_reuse_the_variant_and_pass_their_own_values() -> None:
    function = Recorder()
    kernel = Kernel(function)
    x, y = torch.zeros(4), torch.ones(4)
    kernel.launch((1, 1, 1), (x, 4, 0.3, None), (16,), 4)
    kernel.launch((1, 1, 1), (y, 4, 0.7, None), (16,), 4)
    assert len(function.compiled) == 1
    assert function.launched == [(y, 4, 0.7, None, 16)]


def test_whatever_triton_specializes_on_makes_another_variant() -> None:
    x = torch.zeros(64)
    base: tuple[Any, ...] = (x, 16, 0.3, None)
    others: list[tuple[tuple[Any, ...], tuple[Any, ...], int]] = [
        ((x, 17, 0.3, None), (16,), 4),  # an integer
        ((x, 1, 0.3, None), (16,), 4),
        ((x.half(), 16, 0.3, None), (16,), 4),  # a dtype
        ((x[1:], 16, 0.3, None), (16,), 4),  # an alignment
        ((x, 16, 0.3, x), (16,), 4),  # a tensor where there was none
        (base, (32,), 4),  # a constant
        (base, (16,), 8),  # the number of warps
    ]
    function = Recorder()
    kernel = Kernel(function)
    kernel.launch((1, 1, 1), base, (16,), 4)
    for arguments, constants, warps in others:
        kernel.launch((1, 1, 1), arguments, constants, warps)
    assert len(function.compiled) == 1 + len(others)
    assert function.launched == []
