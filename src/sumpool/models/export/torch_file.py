"""Embedders as programs of ``torch.export``, which torch runs without this package."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim

from sumpool.models.embedder import Embedder
from sumpool.models.export.graph import KEY, ExportGraph, check_against
from sumpool.system.files import atomic_path


def export_torch(
    model: Embedder, path: str | Path, pixels: Tensor, *, preprocessing: str = "inside"
) -> float:
    """Write ``model`` as a program of ``torch.export`` with an open batch size, and check it.

    ``torch.export.load(path).module()`` is the model again. Its description is in the file as
    "sumpool".

    Args:
        model: The embedder; it is moved to the CPU.
        path: The file, ending in .pt2; replaced if it is there.
        pixels: Central views of real images, uint8 (N, 3, crop, crop), to check it on.
        preprocessing: As in :func:`~sumpool.models.export.onnx_file.export_onnx`.

    Returns:
        The largest difference to PyTorch.

    Raises:
        ModelError: If the program differs from the model by more than
            :data:`~sumpool.models.export.graph.TOLERANCE`.
    """
    path, graph = Path(path), ExportGraph(model, preprocessing)
    with torch.no_grad():
        program = torch.export.export(
            graph, (graph.example(),), dynamic_shapes=({0: Dim("batch")},)
        )
    with atomic_path(path) as aside:
        with aside.open("wb") as file:
            torch.export.save(program, file, extra_files={KEY: graph.description()})
        with aside.open("rb") as file:
            exported = torch.export.load(file).module()
        return check_against(graph, exported, pixels, str(path))
