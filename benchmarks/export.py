"""Compare exported ONNX files with PyTorch on real photographs, for three backbones.

    python benchmarks/export.py --data CUB_200_2011 --out docs/results/export-cpu

Each model has GSP pooling with 64 prototypes, 128 dimensions and weights from seed 0; the backbone
EfficientNet-Lite0 has its packaged ImageNet weights. Prototypes are initialized by one batch of
photographs. Writes results.json and table.md to --out after each model.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, machine
from _writing import write

from sumpool.data import open_dataset
from sumpool.models import Embedder, EmbedderConfig, build_embedder
from sumpool.models.export.graph import ExportGraph, sample_pixels
from sumpool.models.export.onnx_file import OnnxEmbedder, export_onnx
from sumpool.report.tables import Table

#: Backbones and the source of their weights.
BACKBONES = {
    "tf_efficientnet_lite0": "packaged",
    "resnet50": "none",
    "vit_small_patch16_224": "none",
}


def build(backbone: str, weights: str) -> Embedder:
    config = EmbedderConfig(backbone, weights, pooling_options={"prototypes": 64})
    return build_embedder(config, seed=0)


@torch.no_grad()
def measure(model: Embedder, pixels: torch.Tensor) -> dict[str, Any]:
    model.train()(model.preprocessing.normalize(pixels[:32]))  # initializes the prototypes
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        begun = time.process_time()
        difference = export_onnx(model, path, pixels)
        seconds = time.process_time() - begun
        exported = OnnxEmbedder(path, model.preprocessing, threads=torch.get_num_threads())
        graph, batch = ExportGraph(model), pixels[:32]
        times = {}
        for name, run in (("pytorch", graph), ("onnxruntime", exported.run)):
            run(batch)
            begun = time.process_time()
            run(batch)
            times[f"{name}_ms_per_image"] = 1000 * (time.process_time() - begun) / len(batch)
        return {
            "backbone": model.config.backbone,
            "weights": model.config.weights,
            "images": len(pixels),
            "crop": model.preprocessing.crop,
            "largest_difference": difference,
            "megabytes": path.stat().st_size / 1e6,
            "export_and_check_s": seconds,
            **times,
        }


def table(rows: list[dict[str, Any]]) -> Table:
    header = ("backbone", "photos", "largest difference", "file [MB]", "export and check [CPU s]")
    header += ("PyTorch [CPU ms/photo]", "ONNX Runtime [CPU ms/photo]")
    cells = [
        [
            f"{row['backbone']}, {row['crop']} px",
            str(row["images"]),
            f"{row['largest_difference']:.1e}",
            f"{row['megabytes']:.1f}",
            f"{row['export_and_check_s']:.0f}",
            f"{row['pytorch_ms_per_image']:.0f}",
            f"{row['onnxruntime_ms_per_image']:.0f}",
        ]
        for row in rows
    ]
    return Table(header, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=100)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dataset = open_dataset(options.data, "cub", "test")
    rows: list[dict[str, Any]] = []
    for backbone, weights in BACKBONES.items():
        model = build(backbone, weights)
        rows.append(measure(model, sample_pixels(dataset, model, options.images)))
        results = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": command_line(__file__),
            "machine": machine(torch.device("cpu")),
            "rows": rows,
        }
        write(options.out, results, table(rows).markdown() + "\n")
        print(table(rows).text())


if __name__ == "__main__":
    main()
