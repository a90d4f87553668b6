"""``sumpool index``: build or update an index of images."""

from __future__ import annotations

import shlex
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_allow_outside, add_device, check_data, count, verb_parser
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError
from sumpool.training.values.choices import check_choices

SUMMARY = "build or update a searchable index of images"

DESCRIPTION = """\
Embed images into an index, a folder that `sumpool search`, `duplicates` and `serve` read. Images
need no labels: a folder of photos will do, with or without subfolders. Without --model, no training
is needed: the packaged ImageNet network embeds the images.

Unreadable images are skipped and listed in the index. An interrupted command resumes. --update adds
new images, removes deleted ones and re-embeds changed ones.

examples:
  sumpool index --data photos/ --out photos.index
  sumpool index --data photos/ --out photos.index --model runs/photos --thumbnails
  sumpool index photos.index --update
"""

#: Options that are fixed when an index is created, and invalid with --update.
_OF_A_NEW_INDEX = (
    *("data", "out", "model", "format", "split"),
    *("no_labels", "allow_outside", "thumbnails", "batch_size"),
)


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(
        DESCRIPTION,
        usage="sumpool index --data PATH --out INDEX [options]\n"
        "       sumpool index INDEX --update [options]",
    )
    parser.add_argument("index", type=Path, nargs="?", metavar="INDEX", help="index to update")
    parser.add_argument(
        "--update",
        action="store_true",
        help="add new images, remove deleted ones, re-embed changed ones",
    )
    parser.add_argument("--data", metavar="PATH", help="folder, CSV or Parquet file, or image")
    parser.add_argument("--out", type=Path, metavar="INDEX", help="folder for the new index")
    parser.add_argument(
        "--model",
        type=Path,
        metavar="MODEL",
        help="folder of a run or a saved model (default: the packaged network)",
    )
    parser.add_argument(
        "--format", metavar="NAME", help="data format, as in `sumpool train` (default: detected)"
    )
    parser.add_argument("--split", metavar="NAME", help="split of the data (default: all images)")
    parser.add_argument(
        "--no_labels", action="store_true", help="index all images of a folder, without labels"
    )
    add_allow_outside(parser)
    parser.add_argument(
        "--thumbnails", action="store_true", help="store a thumbnail of every image"
    )
    parser.add_argument(
        "--store",
        metavar="NAME",
        help="vector store: auto, exact, approximate (hnsw or ivfpq) or milvus:URI (default: auto, "
        "exact unless an approximate store was built; with --update, the present one)",
    )
    parser.add_argument(
        "--batch_size", type=count, metavar="N", help="images per forward pass (default: 64)"
    )
    add_device(parser)
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="number of decoding threads (default: one per core)",
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="embed on a Ray cluster: auto, HOST:PORT, or local (needs sumpool[ray])",
    )
    parser.add_argument(
        "--gpus",
        type=float,
        metavar="G",
        help="with --ray, GPUs per worker, such as 0.5 (default: 0)",
    )
    parser.add_argument(
        "--cpus", type=float, metavar="N", help="with --ray, CPUs per worker (default: 1)"
    )
    return parser


def run(options: Namespace) -> int:
    """Build or update an index, and print what was done."""
    _check(options)
    from sumpool.cli.inputs import choose_device
    from sumpool.data.base import BrokenImageError
    from sumpool.search.folder import read_header
    from sumpool.search.update import begin, update

    folder: Path = options.index if options["update"] else options.out
    device = choose_device(options.device)
    compute = None
    if options.ray is not None:
        from sumpool.search.bulk import RayCompute

        given = {name: options[name] for name in ("gpus", "cpus") if options[name] is not None}
        compute = RayCompute(options.ray, **given)
    source = None
    if not options["update"]:
        source = begin(
            options.data,
            folder,
            options.model,
            format=options.format or "auto",
            split=options.split or "all",
            labels=not options.no_labels,
            allow_outside=options.allow_outside,
            thumbnails=options.thumbnails,
            store=options.store or "auto",
            batch_size=options.batch_size or 64,
        )
    changes = update(
        folder,
        device=device,
        workers=options.workers,
        store=options.store,
        compute=compute,
        source=source,
    )
    total = changes.kept + changes.changed + changes.added
    done = [
        f"{number:,} {what}"
        for what in ("added", "changed", "removed")
        if (number := getattr(changes, what))
    ]
    print(f"{counted(total, 'image')} ({', '.join(done) or 'nothing changed'}): {folder}")
    header = read_header(folder)
    print(f"similarity threshold {header.threshold:.3f}: {header.threshold_meaning}")
    if changes.skipped:
        print(f"skipped, see index.json: {BrokenImageError.of(changes.skipped)}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps, and how to continue."""
    from sumpool.search.folder import HEADER

    folder = Path(options.index or options.out)
    if not (folder / HEADER).is_file():
        return "no image was embedded yet; the same command starts again"
    command = ["sumpool", "index", str(folder), "--update"]
    if options.store is not None:  # an update stores its name only once it is built
        command += ["--store", options.store]
    return f"embedded images are kept; resume with: {shlex.join(command)}"


def _check(options: Namespace) -> None:
    for name in ("gpus", "cpus"):
        if options[name] is not None and options.ray is None:
            raise ConfigError(f"--{name} needs --ray")
    given = [name for name in _OF_A_NEW_INDEX if options[name]]
    if options["update"]:
        if options.index is None:
            raise ConfigError("--update needs the index: sumpool index INDEX --update")
        if given:
            name = given[0].replace("_", "-")
            raise ConfigError(f"--{name} is for a new index: it cannot change with --update")
        return
    if options.index is not None:
        raise ConfigError(
            f"to update {options.index}, add --update; to build a new index of its images, use "
            f"--data {shlex.quote(str(options.index))} --out INDEX"
        )
    missing = [f"--{name}" for name in ("data", "out") if options[name] is None]
    if missing:
        raise ConfigError(f"a new index needs {' and '.join(missing)}")
    check_choices("format", options.format or "auto")
    check_data(options.data)
