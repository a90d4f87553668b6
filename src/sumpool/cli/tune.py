"""``sumpool tune``: search for the options of ``sumpool train`` that suit a set of images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import (
    HelpFormatter,
    add_config,
    add_overwrite,
    check_data,
    check_executor_options,
    count,
    positive,
)
from sumpool.cli.train import HelpAll, TrainParser, config_of
from sumpool.report.run.folder import REPORT
from sumpool.report.run.option_names import flatten
from sumpool.training.config import ConfigError, TrainConfig, flat, with_options
from sumpool.tune.space import FROZEN_SPACE, SPACE, parse_space

if TYPE_CHECKING:
    from sumpool.tune.search import Executor

_DEFAULTS = flat(TrainConfig())

SUMMARY = "search for the training options that suit your images"

DESCRIPTION = """\
Search for the options of `sumpool train` that suit your images.

  sumpool tune --data FOLDER --minutes 60 --out STUDY

trains models one after another, choosing options from earlier scores (a Gaussian process of
Optuna). Trial 0 has the defaults of `sumpool train`, so the result shows what the search gains, if
anything. Scores are those of the validation classes: no test image is read. Trials that are worse
than the median at the same step are stopped early.

--vary sets what to search; it may be repeated:
  KEY=A..B           a range: optimizer.weight_decay=0..0.01
  KEY=A..B:log       a logarithmic range: optimizer.lr=1e-5..1e-3:log
  KEY=A..B:int       whole numbers; implied if the option is a whole number
  KEY=a,b,c          choices: pool=gap,gemean,gsp
The default is the following space, without the options that you set:
  {space}
With --freeze-backbone it is
  {frozen}
All other options of `sumpool train` apply to every trial (--help-all lists them). --config may name
the config.yaml of a run, whose out and minutes are left out. The file of a search has vary, trials,
jobs or ray.

STUDY holds the trials (study.db, for Optuna), best.json and a page, report.html, with the command
that trains with the best options. The same command resumes a search after Ctrl-C or a kill, and
extends it with more --trials: finished trials are kept, unfinished ones start again. Needs
sumpool[tune].

examples:
  sumpool tune --data photos/ --minutes 60 --out runs/tune
  sumpool tune --data photos/ --freeze-backbone --trials 30 --jobs 2 --out runs/tune
  sumpool tune --data photos/ --trials 20 --out runs/lr --vary optimizer.lr=1e-5..1e-3:log
  sumpool tune --data photos/ --trials 40 --out runs/pool --vary pool=gap,gsp gsp.mu=0.1..0.9
  sumpool tune --data /shared/photos --trials 200 --out /shared/tune --ray auto --gpus 0.25
"""


class TuneParser(TrainParser):
    """A parser whose short help shows only the options of the search."""

    common: ClassVar = {
        "images": ("data",),
        "search": ("vary", "trials", "minutes", "out", "overwrite"),
        "execution": ("jobs", "ray", "gpus", "cpus"),
    }

    def parse_path(self, path: Any, *arguments: Any, **options: Any) -> Any:
        """Parse the file of a search or of a run.

        That of a run gives every option: those without effect, its folder and its time limit are
        left out.
        """
        parsed = super().parse_path(path, *arguments, **options)
        if any(name in parsed for name in ("vary", "trials", "jobs", "ray")):
            return parsed
        from sumpool.training.settings import without_idle

        given = {it: value for it, value in flatten(parsed.as_dict()).items() if it in _DEFAULTS}
        used = flat(without_idle(with_options(TrainConfig(), given)))
        for name in ("out", "minutes", *(it for it in given if used[it] != given[it])):
            parsed.pop(name, None)
        return parsed


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = TuneParser(
        usage="sumpool tune --data FOLDER (--trials N | --minutes N) --out STUDY [options]",
        description=DESCRIPTION.format(space="\n  ".join(SPACE), frozen="\n  ".join(FROZEN_SPACE)),
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add(
        "--help_all",
        action=HelpAll,
        nargs=0,
        default=argparse.SUPPRESS,
        help="list all options and exit",
    )
    add_config(parser)
    add(
        "--vary",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUES",
        help="what to search (default: see above)",
    )
    for name, kind, default, metavar, help in (
        ("trials", count, None, "N", "total number of trials, including finished ones"),
        ("minutes", positive, None, "N", "stop after N minutes; the same command resumes"),
        ("jobs", count, 1, "N", "trials to run in parallel on this machine"),
        ("ray", str, None, "ADDRESS",
         "run on a Ray cluster: auto, HOST:PORT, or local (needs sumpool[ray])"),
        ("gpus", float, 0.0, "SHARE",
         "with --ray, GPUs per trial, such as 0.25 (default: 0)"),
        ("cpus", float, 1.0, "N", "with --ray, CPUs per trial (default: 1)"),
        ("out", str, None, "STUDY", "folder for the search"),
    ):  # fmt: skip
        add(f"--{name}", type=kind, default=default, metavar=metavar, help=help)
    add_overwrite(parser)
    # The search has its own --out and --minutes.
    parser.add_class_arguments(TrainConfig, as_group=False, skip={"out", "minutes"})
    return parser


def run(options: Namespace) -> int:
    """Search, then print the result, the command to train with it and the path of the page."""
    if options.out is None:
        raise ConfigError("out is missing: name a folder for the search with --out")
    if options.trials is None and options.minutes is None:
        raise ConfigError("the end of the search is missing: give --trials N, --minutes N or both")
    check_executor_options(options, jobs=1)
    config = config_of(options)
    space = parse_space(options.vary, config, options.given)
    if config.data is None and config.format != "glyphs":
        raise ConfigError("data is missing: name a folder or CSV file with --data")
    check_data(config.data)
    from sumpool.cli.inputs import suggest_skipping
    from sumpool.data import BrokenImageError
    from sumpool.report.html_page import refuse_foreign_page
    from sumpool.tune.page import write_tune_page
    from sumpool.tune.sampling import import_optuna
    from sumpool.tune.search import run_search

    import_optuna("sumpool tune")
    folder = Path(options.out)
    refuse_foreign_page(folder / REPORT, overwrite=options.overwrite)
    executor = _executor(options, folder)
    try:
        result = run_search(
            folder, config, space, trials=options.trials, minutes=options.minutes, executor=executor
        )
    except BrokenImageError as error:
        raise suggest_skipping(error, skipped=config.skip_broken) from error
    page = write_tune_page(folder)
    print(f"{result.counts()}\n{result.verdict()}\n\n{result.command}\n\npage: {page}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps."""
    return f"finished trials are kept in {options.out}; the same command resumes"


def _executor(options: Namespace, folder: Path) -> Executor:
    """Return the executor of the trials."""
    if options.ray is not None:
        from sumpool.system.executors.ray_cluster import RayCluster

        # The search itself restarts lost trials.
        return RayCluster(
            options.ray, gpus=options.gpus, cpus=options.cpus, retries=0, folder=folder.absolute()
        )
    if options.jobs == 1:
        from sumpool.system.processes import run_here

        return run_here
    import torch

    from sumpool.system.executors.local import LocalProcesses

    return LocalProcesses(options.jobs, gpus=torch.cuda.device_count())
