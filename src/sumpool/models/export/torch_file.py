"""Export of embedders to ``torch.export`` programs, which torch runs without this package."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim
from torch.fx import GraphModule

from sumpool.models.embedder import Embedder
from sumpool.models.export.graph import KEY, ExportGraph, check_against
from sumpool.system.files import atomic_path


def export_torch(
    model: Embedder, path: str | Path, pixels: Tensor, *, preprocessing: str = "inside"
) -> float:
    """Write ``model`` as a ``torch.export`` program with dynamic batch size, and check it.

    ``torch.export.load(path).module()`` restores the model. The file contains its description as
    the extra file "sumpool".

    Args:
        model: The embedder; it is moved to the CPU.
        path: The file, ending in .pt2; an existing one is replaced.
        pixels: Center crops of real images for the check, uint8 (N, 3, crop, crop).
        preprocessing: As in :func:`~sumpool.models.export.onnx_file.export_onnx`.

    Returns:
        The largest difference from PyTorch.

    Raises:
        ModelError: If the program differs from the model by more than
            :data:`~sumpool.models.export.graph.TOLERANCE`.
    """
    path, graph = Path(path), ExportGraph(model, preprocessing)
    with torch.no_grad():
        program = torch.export.export(
            graph, (graph.example(),), dynamic_shapes=({0: Dim("batch")},)
        )
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # it holds local paths
    with atomic_path(path) as aside:
        with aside.open("wb") as file:
            torch.export.save(program, file, extra_files={KEY: graph.description()})
        with aside.open("rb") as file:
            exported = torch.export.load(file).module()
        return check_against(graph, exported, pixels, str(path))
