"""Which positions lie on the foreground, and what comes from there."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch


def test_positions_belong_where_their_middle_lies(load: Callable[[str], ModuleType]) -> None:
    selection = load("selection")
    boxes = torch.tensor([[10.0, 10.0, 40.0, 40.0], [30.0, 10.0, 20.0, 40.0]])
    inside = selection.on_foreground(boxes, torch.tensor([10.0, 10.0]), 40, (4, 4))
    assert inside[0].all()
    assert inside[1].tolist() == [[False] * 4, [False] * 4, [True] * 4, [True] * 4]
