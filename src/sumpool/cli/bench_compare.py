"""``sumpool bench compare`` and ``sumpool bench pack``: compare finished runs, or copy them."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.bench_options import add_metric, add_out
from sumpool.cli.options import add_overwrite, count

COMPARE_DESCRIPTION = """\
Compare finished runs, also of incomplete groups: the mean of each method, and its gain over others,
paired by fold and seed, with a 95 % confidence interval (Student's t) and, in brackets, the share
of pairs in which it is ahead. Only rows are read, neither embeddings nor images; several places are
read as one.

Each setting of a method has its own row. It is compared with runs of the other method on the same
network, crop and embedding size: those that share the most folds and seeds and, of these, the
setting that is best on validation classes. If a method has one setting per loss, the row "all" has
the pairs of all losses; its interval ignores that losses of the same fold are not independent.

examples:
  sumpool bench compare
  sumpool bench compare runs/bench docs/results/fair-cub-h200 --over gap
  sumpool bench compare --protocol fair --folds 1 2 3 --seeds 1 --over gap gemean
  sumpool bench compare --on validation --where crop=288 gsp.mu=0.3
  sumpool bench compare --over 'gsp gsp.mu=1.0' 'gemean optimizer.lr=1e-5'
"""

PACK_DESCRIPTION = """\
Write the rows of all finished cells to one Parquet file, to publish them or to read them elsewhere
with `sumpool bench compare`. Run it again when more cells have finished.

examples:
  sumpool bench pack --file rows.parquet
  sumpool bench pack --out runs/cub --file docs/results/cub/rows.parquet --overwrite
"""


def add_compare_options(parser: ArgumentParser) -> None:
    """Add the options of `sumpool bench compare`."""
    parser.usage = "sumpool bench compare [PLACE ...] [options]"
    parser.description = COMPARE_DESCRIPTION
    parser.add_argument(
        "places",
        nargs="*",
        type=Path,
        default=[Path("runs/bench")],
        metavar="PLACE",
        help="benchmark folders, or files or folders with packed rows (default: runs/bench)",
    )
    parser.add_argument(
        "--over",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="methods to compare with, such as gap or, with options, 'gsp gsp.mu=1.0'",
    )
    for name, what in (
        ("protocol", "protocols: fair, steady, …"),
        ("loss", "losses: c1, c2, …"),
        ("backbone", "networks"),
    ):
        parser.add_argument(
            f"--{name}", nargs="+", default=[], metavar="NAME", help=f"only these {what}"
        )
    parser.add_argument(
        "--folds", nargs="+", type=int, default=[], metavar="N", help="only these folds"
    )
    parser.add_argument("--seeds", type=count, metavar="N", help="only seeds 0 to N-1")
    parser.add_argument(
        "--where",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with these options, or to which they do not apply, such as gsp.mu to gap",
    )
    add_metric(parser)
    parser.add_argument(
        "--on",
        choices=("test", "validation"),
        help="classes to score on (default: as in the protocol)",
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="write Markdown to FILE (default: print text)"
    )
    add_overwrite(parser)


def run_compare(options: Namespace) -> int:
    """Print or write the tables."""
    from sumpool.bench.report.comparison import Baseline, comparison_tables, matching_rows
    from sumpool.bench.report.labels import METRICS
    from sumpool.bench.report.page import markdown_text
    from sumpool.bench.settings import parse_settings
    from sumpool.bench.store.packed import collect_rows
    from sumpool.system.files import StoreError, refuse_overwriting, write_atomic

    if options.file is not None:
        refuse_overwriting([options.file], overwrite=options.overwrite)
    rows = matching_rows(
        collect_rows(options.places),
        protocols=options.protocol,
        losses=options.loss,
        backbones=options.backbone,
        folds=options.folds,
        seeds=options.seeds,
        options=parse_settings(options.where, "where"),
    )
    if not rows:
        raise StoreError("no finished run matches --protocol, --loss, … and --where")
    metrics = tuple(options.metric or METRICS)
    over = [
        Baseline(label, parse_settings(settings, "over"))
        for label, *settings in map(str.split, options.over)
    ]
    tables = comparison_tables(rows, over, metrics=metrics, part=options.on)
    if options.file is None:
        print("\n\n".join(table.text() for table in tables))
    else:
        write_atomic(options.file, markdown_text(tables).encode())
        print(f"table: {options.file}")
    return 0


def add_pack_options(parser: ArgumentParser) -> None:
    """Add the options of `sumpool bench pack`."""
    parser.usage, parser.description = "sumpool bench pack --file FILE [options]", PACK_DESCRIPTION
    add_out(parser)
    parser.add_argument("--file", type=Path, required=True, metavar="FILE", help="output file")
    add_overwrite(parser)


def run_pack(options: Namespace) -> int:
    """Write the rows and print their number."""
    from sumpool.bench.store.packed import collect_rows, write_packed
    from sumpool.system.files import refuse_overwriting
    from sumpool.system.wording import counted

    refuse_overwriting([options.file], overwrite=options.overwrite)
    rows = collect_rows([options.out])
    write_packed(options.file, rows)
    print(f"{counted(len(rows), 'row')}: {options.file}")
    return 0
