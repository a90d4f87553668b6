"""Export of an embedder's backbone to a folder that timm loads."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save
from timm.models import VGG
from torch import Tensor

from sumpool.models.backbones import BACKBONES
from sumpool.models.embedder import Embedder
from sumpool.models.errors import ModelError
from sumpool.system.files import write_atomic

#: Files of the folder, named as timm expects.
FILES = ("config.json", "model.safetensors")


@torch.no_grad()
def export_timm(model: Embedder, folder: str | Path, pixels: Tensor) -> None:
    """Write the backbone to ``folder``, for ``timm.create_model("local-dir:FOLDER", …)``.

    With ``pretrained=True, num_classes=0, global_pool=""``, timm's model outputs the maps or tokens
    of the backbone. The linear map and the pooling are not exported.

    Args:
        model: The embedder; it is moved to the CPU.
        folder: Created if missing; files in it are replaced.
        pixels: Center crops of real images for the check, uint8 (N, 3, crop, crop).

    Raises:
        ModelError: If the backbone is not from timm, or timm does not load it with the same output.
    """
    config, view, folder = model.config, model.preprocessing, Path(folder)
    if config.backbone in BACKBONES:
        raise ModelError(f"timm has no backbone {config.backbone}: export another format")
    if config.backbone_options.get("stages") == 2:
        raise ModelError("timm has no network with two stages: export another format")
    network = model.cpu().eval().backbone
    if isinstance(network, VGG):
        raise ModelError(
            f"timm has {config.backbone} only with the layers after its map: export another format"
        )
    known: Any = timm.get_pretrained_cfg(config.backbone)
    side = view.crop
    described = {
        "architecture": config.backbone.partition(".")[0],
        "num_classes": 0,
        "num_features": model.layout.channels,
        "global_pool": "",
        "model_args": _arguments(model, known),
        "pretrained_cfg": {
            "tag": "sumpool",
            "input_size": [3, side, side],
            # timm resizes to floor(side / crop_pct); 0.5 keeps rounding from losing a pixel.
            "crop_pct": 1.0 if view.resize is None else side / (view.resize + 0.5),
            "crop_mode": "center",
            "interpolation": "bilinear",
            "mean": list(view.mean),
            "std": list(view.std),
            "num_classes": 0,
            "first_conv": getattr(known, "first_conv", None),
            "classifier": getattr(known, "classifier", None),
        },
    }
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    text = json.dumps(described, indent=2) + "\n"
    files = dict(zip(FILES, (text.encode(), save(state, {"format": "pt"})), strict=True))
    with tempfile.TemporaryDirectory() as trial:
        for name, content in files.items():
            Path(trial, name).write_bytes(content)
        try:
            again = timm.create_model(
                f"local-dir:{trial}", pretrained=True, num_classes=0, global_pool=""
            ).eval()
        except RuntimeError as error:  # without classifier, timm mistakes some for older formats
            raise ModelError(
                f"{folder} was not written: timm does not load {config.backbone} without its "
                f"classifier: {' '.join(str(error).split())}"
            ) from error
    largest = 0.0
    for batch in pixels.split(32):
        images = view.normalize(batch)
        difference = (again(images) - network(images)).abs().max()
        largest = max(largest, float(difference.nan_to_num(float("inf"))))
    if largest > 0:
        raise ModelError(
            f"{folder} was not written: timm's maps differ from those of the model by {largest:.1e}"
        )
    for name, content in files.items():
        write_atomic(folder / name, content)


def _arguments(model: Embedder, known: Any) -> dict[str, Any]:
    """Arguments for timm to build the backbone."""
    arguments = dict(model.config.backbone_options)
    arguments.pop("stages", None)
    side = model.preprocessing.crop
    if getattr(known, "fixed_input_size", False) and side != known.input_size[-1]:
        arguments.setdefault("img_size", side)
    return arguments
