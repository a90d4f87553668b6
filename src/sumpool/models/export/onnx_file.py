"""Export of embedders to ONNX files, which ONNX Runtime runs without this package."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from sumpool.data.views.preprocessing import Preprocessing
from sumpool.models.embedder import Embedder
from sumpool.models.errors import ModelError
from sumpool.models.export.graph import INPUTS, KEY, OUTPUT, ExportGraph, check_against
from sumpool.system.extras import import_extra
from sumpool.system.files import atomic_path

_SCOPES = "pkg.torch.onnx.name_scopes"


class OnnxEmbedder(nn.Module):
    """An exported file as a model: maps preprocessed images (B, 3, crop, crop) to vectors (B, D).

    Args:
        path: The file.
        preprocessing: Preprocessing of the images; it is reversed to pixels for a file that
            normalizes colors itself.
        threads: Number of threads of ONNX Runtime; 0 means one per core.

    Raises:
        ModelError: If ONNX Runtime is not installed or cannot read the file.
    """

    def __init__(self, path: Path, preprocessing: Preprocessing, *, threads: int = 0) -> None:
        super().__init__()
        runtime = _library("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self.session = runtime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # damaged files can raise anything
            reason = " ".join(str(error).split())
            raise ModelError(f"{path} cannot be read by ONNX Runtime: {reason}") from error
        self.preprocessing = preprocessing
        self.input: str = self.session.get_inputs()[0].name

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (B, D) of preprocessed images."""
        if self.input != INPUTS["inside"]:
            return self.run(images)
        view = self.preprocessing
        mean, std = (torch.tensor(it).view(3, 1, 1) for it in (view.mean, view.std))
        pixels = (255 * (images.cpu() * std + mean)).round().clamp(0, 255)
        return self.run(pixels.to(torch.uint8))

    def run(self, given: Tensor) -> Tensor:
        """Return embeddings of the file's own input, pixels or preprocessed images."""
        (vectors,) = self.session.run([OUTPUT], {self.input: given.cpu().numpy()})
        return torch.from_numpy(vectors)


def export_onnx(
    model: Embedder,
    path: str | Path,
    pixels: Tensor,
    *,
    preprocessing: str = "inside",
    int8: Path | None = None,
) -> float:
    """Write ``model`` to an ONNX file with dynamic batch size, and check it on real images.

    The metadata of the file describes the preprocessing of its images, under "sumpool". The file is
    written only if it agrees with PyTorch.

    Args:
        model: The embedder; it is moved to the CPU.
        path: The file; an existing one is replaced.
        pixels: Center crops of real images for the check, uint8 (N, 3, crop, crop).
        preprocessing: "inside": the graph takes such pixels. "described": it takes normalized
            images, float32.
        int8: Also write a variant with 8-bit weights and activations of the backbone to this file,
            calibrated on ``pixels``. It is not checked: measure its loss in accuracy.

    Returns:
        The largest difference from PyTorch.

    Raises:
        ModelError: If the extra ``onnx`` is not installed, the model cannot be exported, or the
            file differs from PyTorch by more than
            :data:`~sumpool.models.export.graph.TOLERANCE`.
    """
    for needed in ("onnx", "onnxscript", "onnxruntime"):
        _library(needed)
    path, graph = Path(path), ExportGraph(model, preprocessing)
    with _quiet():
        program = torch.onnx.export(
            graph,
            (graph.example(),),
            dynamo=True,
            verbose=False,
            input_names=[INPUTS[preprocessing]],
            output_names=[OUTPUT],
            dynamic_shapes=({0: Dim("batch")},),
        )
    assert program is not None
    written: Any = program.model
    backbone = [
        node.name
        for node in written.graph
        if node.name and "'model.backbone'" in node.metadata_props.get(_SCOPES, "")
    ]
    for node in written.graph:
        node.metadata_props.clear()  # stack traces with local paths
    written.metadata_props[KEY] = graph.description()
    with atomic_path(path) as aside:
        program.save(aside)
        exported = OnnxEmbedder(aside, model.preprocessing, threads=torch.get_num_threads())
        difference = check_against(graph, exported.run, pixels, str(path))
        if int8 is not None:
            with atomic_path(int8) as small:
                _quantize(aside, small, graph.inputs(pixels), INPUTS[preprocessing], backbone)
    return difference


def _quantize(source: Path, target: Path, inputs: Tensor, name: str, nodes: list[str]) -> None:
    from onnxruntime import quantization

    batches = iter(inputs.split(8))

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            batch = next(batches, None)
            return None if batch is None else {name: batch.numpy()}

    with _quiet():
        quantization.quantize_static(
            source,
            target,
            Reader(),
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            # 8-bit products overflow on processors without VNNI.
            reduce_range=True,
            nodes_to_quantize=nodes,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the logs and warnings of exporters."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _library(name: str) -> Any:
    return import_extra(name, "onnx", "ONNX files need", ModelError)
