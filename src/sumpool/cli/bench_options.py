"""The options of `sumpool bench fair` and other grids, and the grid they define."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_allow_outside, count, not_negative
from sumpool.training.config import TrainConfig
from sumpool.training.values.choices import check_choices

if TYPE_CHECKING:
    from sumpool.bench import Grid

_GRID = """\
Named data sets (cub, cars196, sop, inshop, …) are looked up under --root; NAME=PATH or a path names
any other, and glyphs are generated. Every combination of the given values is a cell. Invalid cells
(unknown names, missing images, conflicting options) are rejected by name before the first run.

--dry-run lists the cells and estimates their time. Failed cells are retried, then reported with the
end of their log; the others continue. Ctrl-C keeps finished cells, and checkpoints of the rest.

examples:
  sumpool bench {name} --data cub --loss c2 --pool gap gsp
  sumpool bench {name} --data cub cars196 --loss c1 c2 ms --pool gap gsp --dry-run
  sumpool bench {name} --data cub --loss c2 --pool gap --ccp false true --jobs 4
  sumpool bench {name} --data mine=photos/ --loss pnca --pool gsp --center-reg none r1
  sumpool bench {name} --data sop --ray auto --gpus 0.1 --set {option}
  sumpool bench {name} --data glyphs --backbone small_cnn --set stop.max_steps=50
"""

#: Summary and description of each protocol.
GRIDS = {
    "fair": (
        "4 class folds × 3 seeds, selected on validation classes: the recommended protocol",
        """\
Train under the fair protocol: one model for each of 4 folds of the training classes, validated on
the held-out fold, with 3 seeds each. Scores are those of single models (128 dimensions, mean over
the folds) and of the four concatenated (512), over the 81 combinations of seeds.""",
    ),
    "conventional": (
        "all training classes, selected on the test set (marked in tables)",
        """\
Train under the conventional protocol: all training classes, 512 dimensions, the best of 3 seeds,
with models selected on the test set. That selection inflates published scores of this kind; tables
mark ours.""",
    ),
    "tuning": (
        "most training classes, 3 seeds, evaluated on the others: to choose options",
        """\
Train under the tuning protocol: one model on part of the training classes, evaluated on the rest,
with 3 seeds. Use it to choose options: the test set is not used.""",
    ),
    "tuning-ccp": (
        "the same on two thirds of the classes: for chance-constrained proxies",
        """\
Train under the tuning protocol of chance-constrained proxies: one model on two thirds of the
training classes, evaluated on the first third, with 3 seeds. The test set is not used.""",
    ),
    "steady": (
        "4 class folds × 3 seeds, a fixed number of steps: to resolve small gains",
        """\
Train under the steady protocol: folds, seeds and scores are those of the fair one, but no step is
selected. Every model trains for 3000 steps with learning rates that decay to zero, and the average
of its last weights is evaluated.""",
    ),
    "steady-tuning": (
        "the same with 1 seed, evaluated on validation classes",
        """\
Train under the steady protocol with one seed, and evaluate each of the 4 models on its validation
classes. Use it to choose options: the test set is not used.""",
    ),
    "libc": (
        "the setting of intra-batch connections, selected on the test set",
        """\
Train in the setting of the paper on intra-batch connections: all training classes, 512 dimensions,
70 epochs of RAdam, 3 seeds, with models selected on the test set. It is meant for --loss libc.""",
    ),
    "skewed-means": (
        "the setting of the center regularizers, selected on the test set",
        """\
Train in the setting of the paper on center regularizers: all training classes, 512 dimensions, 40
epochs of AdamW (60 on SOP and In-shop), 3 seeds, with models selected on the test set.""",
    ),
}

#: Options in the examples of protocols that have no patience.
_EXAMPLES = {"steady": "stop.max_steps=9000", "steady-tuning": "gsp.eps=20"}

_SWITCH = {"true": True, "false": False}


def grid_description(name: str) -> str:
    """Return the description of a protocol, followed by how to use grids."""
    option = _EXAMPLES.get(name, "stop.patience=5")
    return f"{GRIDS[name][1]}\n\n{_GRID.format(name=name, option=option)}"


def switch(value: str) -> str:
    """Parse true or false."""
    return _one_of(value, "true", "false")


def switch_or_auto(value: str) -> str:
    """Parse true, false or auto."""
    return _one_of(value, "true", "false", "auto")


def _one_of(value: str, *words: str) -> str:
    text = str(value).lower()
    if text not in words:
        listed = f"{', '.join(words[:-1])} or {words[-1]}"
        raise ArgumentTypeError(f"must be {listed}, got {value!r}")
    return text


def jobs(value: str | int) -> int | str:
    """Parse auto, or a whole number of at least 1."""
    return "auto" if str(value) == "auto" else count(value)


def add_out(parser: ArgumentParser) -> None:
    """Add --out."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/bench"),
        metavar="DIR",
        help="folder of the results (default: runs/bench)",
    )


def add_metric(parser: ArgumentParser) -> None:
    """Add --metric."""
    parser.add_argument(
        "--metric",
        nargs="+",
        metavar="NAME",
        help="metrics to show, named as in metrics.json (default: precision_at_1 and "
        "mean_average_precision_at_r)",
    )


def add_root(parser: ArgumentParser) -> None:
    """Add --root."""
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(os.environ.get("SUMPOOL_DATA", "data")),
        metavar="DIR",
        help="folder that holds the data sets (default: $SUMPOOL_DATA, or data)",
    )


def add_grid_options(parser: ArgumentParser) -> None:
    """Add the options of a grid."""
    add = parser.add_argument
    many: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    switches: dict[str, Any] = {"nargs": "+", "metavar": "SWITCH"}
    named = "as in `sumpool train` (default: {})"
    add("--data", required=True, **many, help="data sets: known names, NAME=PATH, paths, or glyphs")
    add("--loss", default=["c2"], **many, help=f"losses, {named.format('c2')}")
    add("--pool", default=["gap", "gsp"], **many, help=f"poolings, {named.format('gap gsp')}")
    add(
        "--zero_shot",
        type=switch_or_auto,
        default=["auto"],
        **switches,
        help="whether to use the zero-shot loss: true, false, or auto, which uses it with gsp only "
        "(default: auto)",
    )
    for name, what in (
        ("ccp", "whether to use chance-constrained proxies, for pair losses"),
        ("xbm", "whether to use cross-batch memory, for c1 and c2"),
    ):
        help = f"{what}: true, false or both (default: false)"
        add(f"--{name}", type=switch, default=["false"], **switches, help=help)
    add(
        "--center_reg",
        default=["none"],
        **many,
        help="regularizers of class centers, or none (default: none)",
    )
    backbone = TrainConfig.backbone
    add("--backbone", default=[backbone], **many, help=f"networks, {named.format(backbone)}")
    add(
        "--folds",
        type=count,
        nargs="+",
        metavar="N",
        help="run only these folds; scores need all (default: all)",
    )
    add("--seeds", type=count, metavar="N", help="run seeds 0 to N-1 (default: as in the protocol)")
    add(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="options of `sumpool train` for all cells, such as stop.patience=5 or cache=gpu",
    )
    add_allow_outside(parser)
    add_run_options(parser)


def add_run_options(parser: ArgumentParser) -> None:
    """Add the options for where and how cells run."""
    add_root(parser)
    add_out(parser)
    for name, kind, default, metavar, help in (
        ("jobs", jobs, "auto", "N",
         "cells to run in parallel on this machine; auto fills it (default: auto)"),
        ("ray", str, None, "ADDRESS",
         "run on a Ray cluster: auto, HOST:PORT, or local (needs sumpool[ray])"),
        ("gpus", float, 0.0, "SHARE",
         "with --ray, GPUs per cell, such as 0.1 (default: 0)"),
        ("cpus", float, 1.0, "N", "with --ray, CPUs per cell (default: 1)"),
        ("retries", not_negative, 1, "N", "how often to retry a failed cell"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=help)
    help = "list the cells and estimate their time, without training"
    parser.add_argument("--dry_run", action="store_true", help=help)


def check_names(options: Namespace) -> None:
    """Check the names of losses, poolings, networks and regularizers."""
    for name in ("loss", "pool", "backbone"):
        check_choices(name, *options[name])
    check_choices("center_reg", *(it for it in options.center_reg if it != "none"))


def grid_of(protocol: str, options: Namespace) -> Grid:
    """Build the grid that ``options`` define."""
    from sumpool.bench import Grid, find_data
    from sumpool.bench.settings import parse_settings

    return Grid(
        protocol,
        [find_data(text, options.root) for text in options.data],
        losses=options.loss,
        poolings=options.pool,
        backbones=options.backbone,
        zero_shot=[_SWITCH.get(text) for text in options.zero_shot],
        ccp=[_SWITCH[text] for text in options.ccp],
        xbm=[_SWITCH[text] for text in options.xbm],
        center_regs=[None if text == "none" else text for text in options.center_reg],
        folds=options.folds,
        seeds=options.seeds,
        options=parse_settings(options.set)
        | ({"allow_outside": True} if options.allow_outside else {}),
    )
