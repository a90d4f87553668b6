"""``sumpool embed``: compute vectors of images, for search elsewhere."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_image_options, add_overwrite, check_data, verb_parser
from sumpool.system.wording import counted
from sumpool.training.values.choices import check_choices

SUMMARY = "embed images into vectors, in a Parquet or NumPy file"

DESCRIPTION = """\
Embed images with a trained model and write one vector per image. Images need no labels: a folder of
images or a single file will do. With `pretrained` as MODEL, no training is needed: the vectors are
averages of the last map of the packaged ImageNet network.

A .parquet file has the columns name, label, class and embedding, or just name and embedding without
labels. A .npy file has only the vectors; photos.npy comes with the other columns in
photos.names.csv, in the same order.

examples:
  sumpool embed runs/photos --data photos/ --out photos.parquet
  sumpool embed pretrained --data photo.jpg --out photo.npy
  sumpool embed runs/cub --data CUB_200_2011 --split test --out cub-test.npy
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(
        DESCRIPTION, usage="sumpool embed MODEL --data FOLDER --out FILE [options]"
    )
    add_image_options(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="output file, .parquet or .npy"
    )
    add_overwrite(parser)
    return parser


def run(options: Namespace) -> int:
    """Embed images and write their vectors."""
    check_choices("format", options.format)
    check_data(options.data)
    from sumpool.cli.inputs import open_images, open_model
    from sumpool.evaluation import embed_images, write_vectors
    from sumpool.evaluation.evaluate import VECTOR_FILES, vector_files
    from sumpool.system.files import refuse_overwriting
    from sumpool.training import ConfigError

    if options.out.suffix not in VECTOR_FILES:
        raise ConfigError(f"out must end in {' or '.join(VECTOR_FILES)}, got {options.out}")
    refuse_overwriting(vector_files(options.out), overwrite=options.overwrite)
    model, device = open_model(options)
    feed = open_images(options, model, device, options.split, need_labels=False)
    found = embed_images(model, feed, batch_size=options.batch_size, progress=True)
    write_vectors(options.out, found, feed.dataset)
    count, size = found.vectors.shape
    print(f"{counted(count, 'vector')} of {counted(size, 'dimension')}: {options.out}")
    return 0
