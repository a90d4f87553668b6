"""``sumpool export``: export a trained model for use in other programs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_decoding, add_overwrite, check_data, count, verb_parser
from sumpool.report.run.folder import CONFIG, RUN
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError, read_config
from sumpool.training.values.choices import check_choices, not_among

if TYPE_CHECKING:
    from torch import Tensor

    from sumpool.data import ImageDataset
    from sumpool.models import Embedder

logger = logging.getLogger(__name__)

SUMMARY = "export a model to ONNX, torch.export, timm or the Hugging Face Hub"

DESCRIPTION = """\
Export a trained model for use elsewhere, and check it against PyTorch on real images: files whose
outputs differ by more than 1e-4 are not written.

formats:
  onnx          for ONNX Runtime in any language, with any batch size
  torch-export  for torch.export.load, without sumpool
  timm          a folder with the trained backbone, without the map and the pooling, for
                timm.create_model("local-dir:FOLDER", …)
  hub           a folder with the model and its card (data, protocol, scores, license) for
                Embedder.from_pretrained; --out hf://organization/name uploads it to the Hugging
                Face Hub

ONNX and torch-export files take the central crop of a resized image, uint8 (N, 3, crop, crop) in
RGB, and normalize colors themselves; with --preprocessing described, they take normalized float32
images. The file describes the preceding steps as JSON, under the key sumpool.

--int8 also writes NAME.int8.onnx, whose backbone has 8-bit weights and activations, calibrated on
the images of the check. If the data has labels, it also measures P@1 of both files and of PyTorch.

examples:
  sumpool export runs/photos --format onnx --out photos.onnx
  sumpool export runs/photos --format onnx --int8 --data photos/ --out photos.onnx
  sumpool export runs/photos --format timm --out photos-backbone
  sumpool export runs/photos --format hub --out hf://organization/photos
"""

FORMATS = ("onnx", "torch-export", "timm", "hub")
PREPROCESSING = ("inside", "described")


#: Options of the images for checking a file.
_OF_IMAGES = (
    *("data", "data_format", "split", "images"),
    *("batch_size", "workers", "skip_broken", "allow_outside"),
)


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(
        DESCRIPTION, usage="sumpool export MODEL --format NAME --out PATH [options]"
    )
    parser.add_argument(
        "model", metavar="MODEL", help="folder of a run or a saved model, hf://…, or pretrained"
    )
    parser.add_argument(
        "--format", required=True, metavar="NAME", help=f"one of {', '.join(FORMATS)}"
    )
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="output file; for timm and hub, a folder"
    )
    parser.add_argument(
        "--data", metavar="PATH", help="images to check the file on (default: those of the run)"
    )
    parser.add_argument(
        "--data_format",
        default="auto",
        metavar="NAME",
        help="data format, as in `sumpool train` (default: detected)",
    )
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="split of the data (default: test if there is one, else all images)",
    )
    parser.add_argument(
        "--images",
        type=count,
        default=100,
        metavar="N",
        help="number of images to check (default: 100)",
    )
    parser.add_argument(
        "--preprocessing",
        default="inside",
        metavar="WHERE",
        help="inside to normalize colors in the file, or described to leave that to the caller",
    )
    parser.add_argument("--int8", action="store_true", help="also write an 8-bit ONNX file")
    parser.add_argument(
        "--batch_size",
        type=count,
        default=32,
        metavar="N",
        help="images per forward pass (default: 32)",
    )
    add_decoding(parser)
    add_overwrite(parser)
    return parser


def run(options: Namespace) -> int:
    """Export, check, and print what was written."""
    _check(options)
    from sumpool.models import load
    from sumpool.models.export.graph import sample_pixels
    from sumpool.system.files import refuse_overwriting

    out = Path(options.out)
    if options.format == "hub":
        return _hub(options)
    small = out.with_suffix(".int8.onnx") if options.int8 else None
    if options.format == "timm":
        refuse_overwriting([out / "config.json"], overwrite=options.overwrite)
    else:
        refuse_overwriting([it for it in (out, small) if it], overwrite=options.overwrite)
    images = _images(options)
    model = load(options.model)
    dataset, split = _dataset(images)
    pixels = sample_pixels(dataset, model, options.images)
    if options.format == "timm":
        from sumpool.models.export.timm_folder import export_timm

        export_timm(model, out, pixels)
        print(f"timm's maps of {counted(len(pixels), 'image')} are equal to the model's")
        print(f'timm.create_model("local-dir:{out}", pretrained=True, num_classes=0)')
        return 0
    logger.info("writing %s: tracing the network can take a minute or two", out)
    difference = _export(options, model, out, small, pixels)
    print(f"largest difference from PyTorch on {counted(len(pixels), 'image')}: {difference:.1e}")
    for path in filter(None, (out, small)):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    if small is not None:
        _measure(images, model, split, {"ONNX": out, "ONNX int8": small}, labeled=dataset.labeled)
    return 0


def _check(options: Namespace) -> None:
    for name, known in (("format", FORMATS), ("preprocessing", PREPROCESSING)):
        given = getattr(options, name)
        if given not in known:
            raise ConfigError(not_among(name, given, known))
    check_choices("format", options.data_format)
    check_data(options.data)
    if options.int8 and options.format != "onnx":
        raise ConfigError(f"int8 is an option of the format onnx, not of {options.format}")
    if options.preprocessing != "inside" and options.format in ("timm", "hub"):
        raise ConfigError(f"preprocessing is not an option of the format {options.format}")
    idle = {}
    if options.format == "hub":
        why = "is not an option of the format hub, which checks no images"
        idle = dict.fromkeys(_OF_IMAGES, why)
    elif not options.int8:
        idle = dict.fromkeys(("batch_size", "workers"), "has no effect without --int8")
    if options.format != "hub" and options.data is None:
        why = "has no effect without --data: images of the run are opened as the run did"
        idle |= dict.fromkeys(("data_format", "allow_outside"), why)
    parser = build_parser()
    for name, why in idle.items():
        if options[name] != parser.get_default(name):
            raise ConfigError(f"{name} {why}")
    ending = {"onnx": ".onnx", "torch-export": ".pt2"}.get(options.format)
    if ending is not None and Path(options.out).suffix != ending:
        raise ConfigError(f"out must end in {ending} for {options.format}, got {options.out}")


def _images(options: Namespace) -> Namespace:
    """Options to open images with: those given, else those of the run."""
    data, layout, outside = options.data, options.data_format, options.allow_outside
    path = Path(options.model) / CONFIG
    if data is None and path.is_file():
        config = read_config(path)
        data, layout, outside = config.data, config.format, config.allow_outside
        if data is not None and not Path(data).exists():
            raise ConfigError(
                f"data is missing: the images of the run, {data}, no longer exist; name others "
                "with --data"
            )
    elif data is None:
        from sumpool.models.storage import model_folder

        model_folder(options.model)  # raises if there is no model
        raise ConfigError("data is missing: name images to check the file on with --data")
    return Namespace(  # type: ignore[no-untyped-call]
        data=data,
        format=layout,
        allow_outside=outside,
        split=options.split,
        skip_broken=options.skip_broken,
        workers=options.workers,
        batch_size=options.batch_size,
    )


def _dataset(images: Namespace) -> tuple[ImageDataset, str]:
    """Open the images; return them with the name of their split."""
    from sumpool.cli.inputs import open_part, readable
    from sumpool.data import dataset_splits
    from sumpool.data.sets.flat import is_flat

    split, flat = images.split, images.data is not None and is_flat(images.data)
    if split is None:
        named = () if flat else dataset_splits(images.data, images.format)
        split = "test" if "test" in named else "all"
    dataset = open_part(images, split, need_labels=not flat)
    # If no two images share a label, nothing can be measured: all images check the file.
    if len(set(dataset.labels.tolist())) == len(dataset):
        dataset = open_part(images, split, need_labels=False)
    return (readable(images, dataset) if images.skip_broken else dataset), split


def _export(
    options: Namespace, model: Embedder, out: Path, small: Path | None, pixels: Tensor
) -> float:
    if options.format == "onnx":
        from sumpool.models.export.onnx_file import export_onnx

        return export_onnx(model, out, pixels, preprocessing=options.preprocessing, int8=small)
    from sumpool.models.export.torch_file import export_torch

    return export_torch(model, out, pixels, preprocessing=options.preprocessing)


def _measure(
    images: Namespace, model: Embedder, split: str, files: dict[str, Path], *, labeled: bool
) -> None:
    """Print the retrieval metrics of PyTorch and of the files on ``split``."""
    import torch

    from sumpool.cli.inputs import open_images
    from sumpool.cli.metrics_table import metrics_table
    from sumpool.evaluation import evaluate_retrieval
    from sumpool.models.export.onnx_file import OnnxEmbedder

    if not labeled:
        print("the images have no labels: the loss of P@1 is not measured")
        return
    models: dict[str, torch.nn.Module] = {"PyTorch": model}
    models |= {name: OnnxEmbedder(path, model.preprocessing) for name, path in files.items()}
    feed = open_images(images, model, torch.device("cpu"), split)
    found = {
        name: evaluate_retrieval(it, feed, batch_size=images.batch_size, progress=True).metrics
        for name, it in models.items()
    }
    print(metrics_table(found, caption=f"Retrieval on {split}").text())
    lost = found["PyTorch"]["precision_at_1"] - found["ONNX int8"]["precision_at_1"]
    print(f"loss of P@1 in 8 bits: {100 * lost:.2f} percentage points")


def _hub(options: Namespace) -> int:
    from sumpool.models import load
    from sumpool.models.card import CARD
    from sumpool.models.hub import PREFIX, is_hub_address
    from sumpool.models.storage import DESCRIPTION
    from sumpool.system.files import refuse_overwriting

    upload = is_hub_address(options.out)
    if not upload:
        files = [Path(options.out) / name for name in (DESCRIPTION, CARD)]
        refuse_overwriting(files, overwrite=options.overwrite)
    model: Embedder = load(options.model)
    trained = options.model if (Path(options.model) / RUN).is_file() else None
    if upload:
        print(model.push_to_hub(options.out.removeprefix(PREFIX), run=trained))
    else:
        model.save_pretrained(options.out, run=trained)
        print(f"model and card: {options.out}")
    return 0
