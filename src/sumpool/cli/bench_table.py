"""``sumpool bench table`` and ``sumpool bench recipes``: result tables and published settings."""

from __future__ import annotations

import sys
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.bench_options import add_metric, add_out, add_root
from sumpool.cli.options import add_overwrite
from sumpool.training.config import ConfigError
from sumpool.training.values.choices import check_choices

FORMATS = ("markdown", "latex", "html")

TABLE_DESCRIPTION = """\
Print the scores of a benchmark in the layout of the papers: losses and methods by data sets,
dimensions and metrics, in percent, each above the published score and the difference from it. Gains
over baselines, paired by fold and seed, follow with confidence intervals. Unfinished groups are
shown as missing and listed in the caption.

Figures of relative improvement, ours and published, are written to improvement-….png in DIR, or in
the folder of FILE. HTML pages contain them.

examples:
  sumpool bench table
  sumpool bench table --out runs/cub --protocol fair --format latex --file table.tex
  sumpool bench table --format html --file benchmark.html
"""

RECIPES_DESCRIPTION = """\
Write one YAML file per published setting: a data set, loss and method under a protocol. Each file
is complete, so that `sumpool train --config FILE` runs one fold and seed of it. Its first lines
name the published table and the command that runs all folds and seeds.

examples:
  sumpool bench recipes
  sumpool bench recipes --out recipes --backbone bn_inception --weights bn_inception.pth
"""


def add_table_options(parser: ArgumentParser) -> None:
    """Add the options of `sumpool bench table`."""
    parser.usage, parser.description = "sumpool bench table [options]", TABLE_DESCRIPTION
    add_out(parser)
    parser.add_argument("--format", choices=FORMATS, default="markdown", help="output format")
    parser.add_argument(
        "--protocol",
        nargs="+",
        metavar="NAME",
        help="show only these protocols: fair, conventional, … (default: all)",
    )
    add_metric(parser)
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="write the tables to FILE (default: print them)"
    )
    add_overwrite(parser)


def run_table(options: Namespace) -> int:
    """Print or write the tables, and write the figures."""
    from sumpool.bench import BenchStore, bench_status
    from sumpool.bench.report.gain_table import gain_tables
    from sumpool.bench.report.labels import METRICS
    from sumpool.bench.report.page import bench_pictures, latex_text, markdown_text, page_text
    from sumpool.bench.report.score_table import score_tables
    from sumpool.bench.report.scores import SCORES, read_scores
    from sumpool.report.html_page import refuse_foreign_page
    from sumpool.system.files import StoreError, refuse_overwriting, write_atomic

    if options.file is not None:
        if options.format == "html":
            refuse_foreign_page(options.file, overwrite=options.overwrite)
        else:
            refuse_overwriting([options.file], overwrite=options.overwrite)
    path = options.out / SCORES
    nothing = f"{options.out} has no scores yet: no run of a protocol is finished"
    if not path.exists():
        bench_status(BenchStore(options.out))  # raises if there is no benchmark
        raise StoreError(nothing)
    scores, gains, waiting = read_scores(path)
    there = sorted({it.protocol for it in scores} | {it.protocol for it in waiting})
    if not there:
        raise StoreError(nothing)
    if options.protocol:
        if unknown := [name for name in options.protocol if name not in there]:
            raise StoreError(
                f"protocol must be one of {', '.join(there)}, which {options.out} has scores of, "
                f"got {', '.join(unknown)}"
            )
        scores = [it for it in scores if it.protocol in options.protocol]
        gains = [it for it in gains if it.protocol in options.protocol]
        waiting = [it for it in waiting if it.protocol in options.protocol]
    metrics = tuple(options.metric or METRICS)
    known = sorted({score.metric for score in scores})
    if unknown := [name for name in options.metric or () if known and name not in known]:
        raise StoreError(f"metric must be one of {', '.join(known)}, got {', '.join(unknown)}")
    tables = [*score_tables(scores, waiting, metrics=metrics), *gain_tables(gains, metrics=metrics)]
    pictures = bench_pictures(scores, gains)
    folder = options.out if options.file is None else options.file.parent
    written = []
    if options.format == "html":
        text = page_text(tables, list(pictures.values()))
    else:
        text = (latex_text if options.format == "latex" else markdown_text)(tables)
        written = [folder / f"improvement-{name}.png" for name in pictures]
        if folder != options.out:  # those of the benchmark itself may be replaced
            refuse_overwriting(written, overwrite=options.overwrite)
    if options.file is None:
        print(text, end="")
    else:
        write_atomic(options.file, text.encode())
        print(f"table: {options.file}")
    for path, picture in zip(written, pictures.values(), strict=False):
        write_atomic(path, picture.png)
        # Not to stdout, which may be redirected into a document.
        print(f"figure: {path}", file=sys.stderr)
    return 0


def add_recipe_options(parser: ArgumentParser) -> None:
    """Add the options of `sumpool bench recipes`."""
    parser.usage, parser.description = "sumpool bench recipes [options]", RECIPES_DESCRIPTION
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("recipes"),
        metavar="DIR",
        help="folder for the files (default: recipes)",
    )
    add_root(parser)
    parser.add_argument(
        "--backbone",
        metavar="NAME",
        help="network (default: that of `sumpool train`, with packaged weights; the papers use "
        "bn_inception)",
    )
    parser.add_argument(
        "--weights", metavar="FILE", help="weights of the network, as in `sumpool train`"
    )
    add_overwrite(parser)


def run_recipes(options: Namespace) -> int:
    """Write the files and print their number."""
    check_choices("backbone", options.backbone)
    weights = options.weights
    # A file may be on another machine, where the recipes are used.
    known = weights in (None, "packaged", "none", "timm")
    if not known and not Path(weights).suffix and not Path(weights).is_file():
        raise ConfigError(f"weights must be packaged, none, timm or a file, got {weights}")
    from sumpool.bench.recipes import write_recipes

    paths = write_recipes(
        options.out,
        root=options.root,
        backbone=options.backbone,
        weights=options.weights,
        overwrite=options.overwrite,
    )
    print(f"{len(paths)} recipes: {options.out}")
    return 0
