"""A feed whose images are numbers, and a model that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Numbers:
    """Labels of as many images; that of image i is i mod 3."""

    def __init__(self, count: int) -> None:
        self.labels = torch.arange(count) % 3
        self.class_names = [f"class {number}" for number in range(3)]

    def __len__(self) -> int:
        return len(self.labels)

    def item_name(self, index: int) -> str:
        return f"number {index}"

    def item_file(self, index: int) -> str | None:
        return None


class NumberFeed:
    """Image i is filled with i. Notes which images were given."""

    def __init__(self, count: int, dtype: torch.dtype = torch.float32) -> None:
        self.dataset = Numbers(count)
        self.dtype = dtype
        self.given: list[int] = []

    def test_batches(
        self, indices: Tensor | Sequence[int] | None = None, batch_size: int = 64
    ) -> Iterator[Any]:
        chosen = torch.arange(len(self.dataset)) if indices is None else torch.as_tensor(indices)
        for part in chosen.split(batch_size):
            self.given += part.tolist()
            images = part.to(self.dtype)[:, None, None, None].expand(-1, 3, 2, 2)
            yield SimpleNamespace(images=images, labels=self.dataset.labels[part], indices=part)


class Squares(nn.Module):
    """Maps image i to (i, i²); fails at one image where asked to."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))
        self.fail_at = fail_at

    def forward(self, images: Tensor) -> Tensor:
        number = images.mean((1, 2, 3))
        if self.fail_at is not None and self.fail_at in number.tolist():
            raise RuntimeError(f"image {self.fail_at} is broken")
        return torch.stack([number, number**2], 1) * self.factor
