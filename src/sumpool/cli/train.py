"""``sumpool train``: train a model on labeled images, evaluate it and write a page."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import HelpFormatter, add_config, check_data
from sumpool.cli.parsing import Parser
from sumpool.report.run.option_names import flatten
from sumpool.system.wording import counted
from sumpool.training.config import ConfigError, TrainConfig, config_from_dict, flat
from sumpool.training.values.choices import CHOICES, check_choices
from sumpool.training.values.limits import check_limits
from sumpool.training.values.recipes import DEFAULT_RECIPE, RECIPES, has_gpu, recipe_options

SUMMARY = "train a model, evaluate it on unseen classes and write a page"

DESCRIPTION = """\
Train a network that embeds images so that distance means dissimilarity.

  sumpool train --data FOLDER

is enough if FOLDER holds one folder of images per class. A quarter of the classes is held out for
validation, and the packaged ImageNet network with power-mean pooling is fine-tuned for a number of
steps that depends on the number of images. --pool gsp and --pool gsp-keys select generalized sum
pooling. The run folder holds the model, metrics, curves and a page, report.html.

Options that you do not set come from a recipe: best (the default), papers (the published protocol)
or auto (best, but on frozen features without a GPU). --minutes N trains the best model possible in
N minutes.

Ctrl-C or SIGTERM stops training after the current step and keeps a checkpoint; --resume RUN resumes
bit for bit.

--config reads options from a YAML file, and --print-config prints the resulting ones. Options on
the command line take precedence, and unknown options are errors. Options that are null depend on
the data set and the loss, as noted in parentheses; config.yaml in the run folder has the values
that were used. --help-all lists all options.

examples:
  sumpool train --data photos/
  sumpool train --data photos/ --recipe auto --minutes 10
  sumpool train --data photos/ --freeze-backbone
  sumpool train --data photos.csv --loss pnca --out runs/proxies
  sumpool train --data CUB_200_2011 --fold 1 --cache gpu --seed 3
  sumpool train --data CUB_200_2011 --recipe papers --pool gap --loss ms
  sumpool train --config run.yaml --hardware.devices 4
  sumpool train --resume runs/proxies
  sumpool train --data more-photos/ --init runs/proxies
"""

#: The most common options by group, which ``--help`` shows.
COMMON = {
    "images": ("data", "skip_broken"),
    "model": ("backbone", "init", "pool", "embedding_size"),
    "training": ("recipe", "minutes", "loss", "batch_size", "optimizer.lr", "seed"),
    "run": ("out", "resume", "config"),
}


class TrainParser(Parser):
    """A parser with a short and a complete help."""

    complete = False
    common: ClassVar = COMMON

    def format_help(self, formatter: argparse.HelpFormatter | None = None) -> str:
        """Format the help of the ``common`` options, or of all if ``complete``."""
        groups, actions = self._action_groups, {it.dest: it for it in self._actions}
        if not self.complete:
            common: list[Any] = [
                SimpleNamespace(
                    title=title, description=None, _group_actions=[actions[name] for name in names]
                )
                for title, names in self.common.items()
            ]
            self._action_groups = common
        try:
            return str(super().format_help(formatter))
        finally:
            self._action_groups = groups


class HelpAll(argparse.Action):
    """Action that prints all options."""

    def __call__(self, parser: Any, *_: Any) -> None:
        """Print the options and exit."""
        parser.complete = True
        parser.print_help()
        parser.complete = False
        parser.exit()


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    usage = "sumpool train --data FOLDER [options]"
    parser = TrainParser(usage=usage, description=DESCRIPTION, formatter_class=HelpFormatter)
    parser.add_argument(
        "--help_all",
        action=HelpAll,
        nargs=0,
        default=argparse.SUPPRESS,
        help="list all options and exit",
    )
    add_config(parser)
    parser.add_argument("--resume", type=Path, metavar="RUN", help="resume the run in this folder")
    parser.add_class_arguments(TrainConfig, as_group=False)
    parser.set_defaults(recipe_options(DEFAULT_RECIPE, {}))
    return parser


def apply_recipe(parser: ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Make the options of the recipe in ``arguments`` the defaults of ``train`` or ``tune``.

    A resumed run already has a recipe, so its other options keep their plain defaults.

    Args:
        parser: The parser of the command with all its verbs.
        arguments: The normalized arguments of the command.

    Returns:
        The dotted names of the given options of a run.

    Raises:
        ConfigError: If the recipe is unknown, or the arguments cannot be parsed.
    """
    verbs = parser._subcommands_action
    assert verbs is not None
    typed = [it for it in arguments if not it.startswith(("--print_config", "--help"))]
    verb = arguments[0]
    given = flatten(parser.parse_args(typed, defaults=False)[verb].as_dict())
    name = given.get("recipe", DEFAULT_RECIPE)
    options: dict[str, Any] = {}
    if name is not None and given.get("resume") is None:
        gpu = not RECIPES[name].without_gpu or has_gpu(given.get("hardware.accelerator"))
        options = recipe_options(name, given, gpu=gpu)
    plain = flat(TrainConfig())
    own = ("out", "minutes") if verb == "tune" else ()  # options of the search itself
    defaults = {name: value for name, value in {**plain, **options}.items() if name not in own}
    verbs.choices[verb].set_defaults(defaults)
    return [name for name in given if name in defaults]


def run(options: Namespace) -> int:
    """Train, then print the metrics and the path of the page."""
    config = config_of(options)
    if config.data is None and config.format != "glyphs" and options.resume is None:
        raise ConfigError("data is missing: name a folder or CSV file with --data")
    check_data(config.data)
    from sumpool.cli.inputs import suggest_skipping
    from sumpool.cli.metrics_table import metrics_table
    from sumpool.data import BrokenImageError
    from sumpool.training import run_training
    from sumpool.training.settings import check_effects

    if options.config is None and options.resume is None:
        check_effects(config)
    _note_pooling(config, options.given)
    try:
        result = run_training(config, resume=options.resume, given=options.given)
    except BrokenImageError as error:
        raise suggest_skipping(error, skipped=options.skip_broken) from error
    outcome = result.outcome
    if outcome.signal is not None or outcome.stopped == "interrupted":
        print(
            f"sumpool: stopped by {outcome.signal or 'a signal'} after step {outcome.steps}; "
            f"resume with: sumpool train --resume {result.folder}"
        )
        return 128 + int(signal.Signals[outcome.signal or "SIGTERM"])
    if result.page is not None:  # only the first process prints
        marked = ", selected on the test set" if "validation" not in result.metrics else ""
        print(
            f"{counted(outcome.steps, 'step')}, ended by {outcome.stopped}; the model of step "
            f"{outcome.best_step} is kept{marked}"
        )
        print(metrics_table(result.metrics, f"Retrieval{marked}").text())
        print(f"\nrun:  {result.folder}\npage: {result.page}")
    return 0


def _note_pooling(config: TrainConfig, given: Sequence[str]) -> None:
    """Print why the pooling is not the recipe's, although none was given."""
    recipe = None if config.recipe is None else RECIPES[config.recipe]
    if recipe is None or "pool" not in recipe.options or "pool" in given or config.pool != "gsp":
        return
    cause = next((it for it in given if it.startswith(("gsp.", "zero_shot.", "ccp."))), None)
    if cause is not None:
        print(f"using pooling gsp, because {cause} is given; choose another with --pool")


def config_of(options: Namespace) -> TrainConfig:
    """Build the configuration of a run, with the checks that need no torch.

    Raises:
        ConfigError: If an option is invalid; the message names it and its accepted values.
    """
    known = {entry.name for entry in fields(TrainConfig)}
    config = config_from_dict({it: value for it, value in options.as_dict().items() if it in known})
    for name in (*CHOICES, "backbone"):
        check_choices(name, getattr(config, name))
    check_limits(flat(config))
    return config


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt outside the training loop keeps."""
    from sumpool.report.run.folder import CHECKPOINTS

    run = Path(options.resume or options.out or "RUN")
    if run.name != "RUN" and not (run / CHECKPOINTS).is_dir():
        return "there is no checkpoint yet"
    return f"if the run has a checkpoint, resume with: sumpool train --resume {run}"
