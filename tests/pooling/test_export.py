"""The layers export, with sizes left open, and run in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from pooling.layers import gsp1d, gsp2d, maps, tokens
from sumpool import GeneralizedSumPool2d
from sumpool.transport import Exact
from transport.generators import random_mask

pytestmark = pytest.mark.process


def test_a_layer_exports() -> None:
    layer = gsp2d(solver=Exact(steps=4)).eval()
    exported = torch.export.export(layer, (maps(),)).module()
    torch.testing.assert_close(exported(maps(seed=1)), layer(maps(seed=1)))


def test_a_layer_exports_with_open_sizes() -> None:
    layer = gsp2d(learn_mu=True, learn_eps=True, solver=Exact(steps=4)).eval()
    sizes = {0: Dim("batch"), 2: Dim("height"), 3: Dim("width")}
    exported = torch.export.export(layer, (maps(),), dynamic_shapes=(sizes,)).module()
    for size in ((2, 4, 5), (3, 7, 6), (1, 1, 9)):
        x = maps(*size)
        torch.testing.assert_close(exported(x), layer(x))


def test_a_layer_exports_with_an_open_mask() -> None:
    layer = gsp1d(solver=Exact(steps=4)).eval()
    batch, length = Dim("batch"), Dim("length")
    exported = torch.export.export(
        layer,
        (tokens(), random_mask(3, 30)),
        dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}),
    ).module()
    x, mask = tokens(5, 17), random_mask(5, 17, seed=1)
    torch.testing.assert_close(exported(x, mask), layer(x, mask))


class Details(nn.Module):
    """A layer that returns all it knows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = gsp2d(solver=Exact(steps=4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return tuple(self.layer.pool(x))


def test_weights_and_attributes_export() -> None:
    model = Details().eval()
    exported = torch.export.export(model, (maps(),)).module()
    for a, b in zip(exported(maps()), model(maps()), strict=True):
        torch.testing.assert_close(a, b)


def run_onnx(path: Path, x: Tensor) -> Tensor:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is an optional extra")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {session.get_inputs()[0].name: np.asarray(x)})
    return torch.from_numpy(out)


def test_a_resnet_runs_in_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="ONNX export is an optional extra")
    timm = pytest.importorskip("timm", reason="timm is an optional extra")
    model = timm.create_model("resnet18", num_classes=0)
    model.global_pool = GeneralizedSumPool2d(model.num_features, prototypes=8)
    images = torch.randn(2, 3, 64, 64)
    model.train()(images)  # sets the prototypes
    model.eval()
    path = tmp_path / "resnet.onnx"
    torch.onnx.export(model, (images,), dynamo=True, verbose=False).save(path)
    with torch.no_grad():
        torch.testing.assert_close(run_onnx(path, images), model(images), rtol=0, atol=1e-4)


def test_open_sizes_run_in_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="ONNX export is an optional extra")
    layer = gsp2d(mu=0.7, eps=20.0).eval()
    sizes = {0: Dim("batch"), 2: Dim("height"), 3: Dim("width")}
    path = tmp_path / "layer.onnx"
    torch.onnx.export(layer, (maps(),), dynamo=True, verbose=False, dynamic_shapes=(sizes,)).save(
        path
    )
    for size in ((3, 5, 6), (2, 7, 7), (1, 1, 9)):
        with torch.no_grad():
            x = maps(*size)
            torch.testing.assert_close(run_onnx(path, x), layer(x), rtol=0, atol=1e-5)
