"""``sumpool train``: from labeled images to a model, its metrics and a page."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import HelpFormatter, check_data
from sumpool.cli.parsing import Parser
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError, TrainConfig, config_from_dict, flat
from sumpool.training.values.choices import CHOICES, check_choices
from sumpool.training.values.limits import check_limits

SUMMARY = "train an embedding, evaluate it on unseen classes, write a page"

DESCRIPTION = """\
Train a network that embeds images so that distance means dissimilarity.

  sumpool train --data FOLDER

is enough: FOLDER holds one folder of images per class. A quarter of the classes is kept for
validation, an ImageNet network that comes with the package is fine-tuned with generalized sum
pooling and the zero-shot loss, and training ends when validation stops improving. The run folder
then holds the model, metrics, curves and a page, report.html.

Ctrl-C, or a TERM signal, ends training between two steps and keeps a checkpoint; `--resume RUN`
resumes bit for bit.

Options can also come from a YAML file (--config); options on the command line replace its values,
--print_config shows the result, and an unknown option is an error. Options that are null follow the
data set and the loss, as noted below in parentheses; config.yaml in the run folder has the values
that were used. `sumpool train --help-all` lists all options.

examples:
  sumpool train --data photos/
  sumpool train --data photos/ --freeze-backbone
  sumpool train --data photos.csv --loss pnca --out runs/proxies
  sumpool train --data CUB_200_2011 --fold 1 --cache gpu --seed 3
  sumpool train --data CUB_200_2011 --pool gap --loss ms --stop.max-steps 3000
  sumpool train --config run.yaml --hardware.devices 4
  sumpool train --resume runs/proxies
  sumpool train --data more-photos/ --init runs/proxies
"""

#: The options that most people use, by group: those of ``--help``.
COMMON = {
    "images": ("data", "skip_broken", "cache"),
    "model": ("backbone", "init", "pool", "embedding_size"),
    "training": ("loss", "batch_size", "optimizer.lr", "stop.max_steps", "seed"),
    "run": ("out", "resume", "config"),
}


class TrainParser(Parser):
    """A parser with a short and a complete help."""

    complete = False

    def format_help(self, formatter: argparse.HelpFormatter | None = None) -> str:
        """The help: options of :data:`COMMON`, or with ``complete`` all."""
        groups, actions = self._action_groups, {it.dest: it for it in self._actions}
        if not self.complete:
            common: list[Any] = [
                SimpleNamespace(
                    title=title, description=None, _group_actions=[actions[name] for name in names]
                )
                for title, names in COMMON.items()
            ]
            self._action_groups = common
        try:
            return str(super().format_help(formatter))
        finally:
            self._action_groups = groups


class HelpAll(argparse.Action):
    """Prints all options."""

    def __call__(self, parser: Any, *_: Any) -> None:
        """Print and end the process."""
        parser.complete = True
        parser.print_help()
        parser.exit()


def build_parser() -> ArgumentParser:
    """The parser of the verb."""
    usage = "sumpool train --data FOLDER [options]"
    parser = TrainParser(usage=usage, description=DESCRIPTION, formatter_class=HelpFormatter)
    parser.add_argument(
        "--help_all",
        action=HelpAll,
        nargs=0,
        default=argparse.SUPPRESS,
        help="list all options and exit",
    )
    parser.add_argument("--config", action="config", metavar="FILE", help="YAML file with options")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="resume the run in this folder")
    parser.add_class_arguments(TrainConfig, as_group=False)
    return parser


def run(options: Namespace) -> int:
    """Train, print the metrics and say where the page is."""
    values = options.as_dict()
    for name in ("config", "resume", "__path__"):
        values.pop(name, None)
    config = config_from_dict(values)
    for name in (*CHOICES, "backbone"):
        check_choices(name, getattr(config, name))
    check_limits(flat(config))
    if config.data is None and config.format != "glyphs" and options.resume is None:
        raise ConfigError("data is missing: name a folder or CSV file with --data")
    check_data(config.data)
    # Imported here: torch takes seconds, which `--help` need not wait for.
    from sumpool.cli.inputs import suggest_skipping
    from sumpool.cli.metrics_table import metrics_table
    from sumpool.data import BrokenImageError
    from sumpool.training import run_training
    from sumpool.training.settings import check_effects

    if options.config is None and options.resume is None:
        check_effects(config)
    try:
        result = run_training(config, resume=options.resume)
    except BrokenImageError as error:
        raise suggest_skipping(error, skipped=options.skip_broken) from error
    outcome = result.outcome
    if outcome.signal is not None or outcome.stopped == "interrupted":
        print(
            f"sumpool: stopped by {outcome.signal or 'a signal'} after step {outcome.steps}; the "
            f"checkpoint is kept, resume with: sumpool train --resume {result.folder}"
        )
        return 128 + int(signal.Signals[outcome.signal or "SIGTERM"])
    if result.page is not None:  # the first process speaks for all
        why = "patience" if outcome.stopped == "patience" else "max_steps"
        marked = ", selected on the test set" if "validation" not in result.metrics else ""
        print(
            f"{counted(outcome.steps, 'step')}, ended by {why}; the model of step "
            f"{outcome.best_step} is kept{marked}"
        )
        print(metrics_table(result.metrics, f"Retrieval{marked}").text())
        print(f"\nrun:  {result.folder}\npage: {result.page}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """What an interrupt outside the loop leaves."""
    from sumpool.report.run.folder import CHECKPOINTS

    run = Path(options.resume or options.out or "RUN")
    if run.name != "RUN" and not (run / CHECKPOINTS).is_dir():
        return "there is no checkpoint yet"
    return f"a run with a checkpoint resumes from it with: sumpool train --resume {run}"
