"""Help layout and options shared by verbs."""

from __future__ import annotations

from argparse import (
    SUPPRESS,
    Action,
    ArgumentTypeError,
    RawDescriptionHelpFormatter,
    _SubParsersAction,
)
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from sumpool.cli.parsing import Parser
from sumpool.report.run.option_names import RENAMED
from sumpool.training.config import ConfigError


class HelpFormatter(DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions; shows defaults that the text does not name."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100, max_help_position=16)  # type: ignore[no-untyped-call]

    def _get_help_string(self, action: Action) -> str:
        text, default = action.help or "", action.default
        if isinstance(default, bool):
            default = str(default).lower()
        shown = action.nargs != 0 and "(" not in text
        if shown and isinstance(default, str | int | float) and default != SUPPRESS:
            return f"{text} (default: {default})".replace("%", "%%")
        return text

    def add_arguments(self, actions: Iterable[Action]) -> None:
        """Leave out the options that read a group of options from a file."""
        super().add_arguments(
            action for action in actions if action.help != "Path to a configuration file."
        )

    def _format_action(self, action: Action) -> str:
        """List subcommands without a heading of their own."""
        if not isinstance(action, _SubParsersAction):
            return super()._format_action(action)
        return "".join(map(self._format_action, action._get_subactions()))

    def _format_action_invocation(self, action: Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        names = ", ".join(name.replace("_", "-") for name in action.option_strings)
        if action.nargs == 0:
            return names
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        # The option already names its group: WEIGHT, not ZERO_SHOT.WEIGHT.
        return f"{names} {value if set(' [') & set(value) else value.rpartition('.')[2]}"


def verb_parser(description: str, usage: str | None = None) -> ArgumentParser:
    """Build a parser whose help shows ``description`` verbatim."""
    return Parser(usage=usage, description=description, formatter_class=HelpFormatter)


def normalize_arguments(arguments: Sequence[str], switches: Iterable[str]) -> list[str]:
    """Convert command-line arguments to the spelling of the parser.

    ``--skip-broken`` becomes ``--skip_broken``, a switch without a value gets ``true``, and
    ``train --ccp`` becomes ``train --ccp.enabled``. ``--config FILE`` moves behind the verb,
    because the parser lets a file replace the options before it.

    Args:
        arguments: As typed.
        switches: Names of the Boolean options.

    Raises:
        ConfigError: If an option was renamed; the message gives the new name.

    >>> normalize_arguments(
    ...     ["--skip-broken", "--out", "a-b", "--stop.max-steps=9"], {"skip_broken"}
    ... )
    ['--skip_broken', 'true', '--out', 'a-b', '--stop.max_steps=9']
    >>> normalize_arguments(["train", "--seed", "3", "--config", "run.yaml"], {})
    ['train', '--config', 'run.yaml', '--seed', '3']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    arguments, rest = arguments[:end], arguments[end:]
    _refuse_empty(arguments)
    if arguments[:1] and arguments[0] in ("train", "tune", "pretrain"):
        arguments = _with_files_first(arguments)
    # `evaluate --gallery SPLIT` takes a value, unlike `train --gallery`.
    valued = "gallery" if arguments[:1] == ["evaluate"] else None
    known = {f"--{name}" for name in switches if name != valued}
    out: list[str] = []
    for place, argument in enumerate(arguments):
        if not argument.startswith("--"):
            out.append(argument)
            continue
        name, equals, value = argument.partition("=")
        name = name.replace("-", "_").replace("__", "--", 1)
        if name == "--ccp" and arguments[0] in ("train", "tune"):
            name = "--ccp.enabled"
        elif name != "--ccp" and name[2:] in RENAMED:
            raise ConfigError(f"{argument.partition('=')[0]} is now --{RENAMED[name[2:]]}")
        out.append(f"{name}{equals}{value}")
        following = arguments[place + 1] if place + 1 < len(arguments) else "--"
        if name in known and not equals and following.lower() not in ("true", "false"):
            out.append("true")
    return [*out, *rest]


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse empty values, such as of unset variables: an empty path would be this folder."""
    for before, argument in pairwise(["an argument", *arguments]):
        name, equals, value = argument.partition("=")
        if equals and name.startswith("--") and not value.strip():
            raise ConfigError(f"{name} is empty")
        if not argument.strip():
            where = before if before.startswith("-") else f"the argument after {before}"
            raise ConfigError(f"{where} is empty")


def _with_files_first(arguments: Sequence[str]) -> list[str]:
    """Move ``--config FILE`` directly behind the verb."""
    files: list[str] = []
    others: list[str] = []
    for argument in arguments[1:]:
        of_file = argument.startswith("--config=") or argument == "--config"
        (files if of_file or files[-1:] == ["--config"] else others).append(argument)
    return [arguments[0], *files, *others]


def count(value: str | int) -> int:
    """Parse a whole number of at least 1; an int when the parser validates it again."""
    return _whole(value, 1)


def not_negative(value: str | int) -> int:
    """Parse a whole number of at least 0, see :func:`count`."""
    return _whole(value, 0)


def _whole(value: str | int, least: int) -> int:
    text = str(value)
    if not text.isdecimal() or int(text) < least:
        raise ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
    if int(text) > 2**31 - 1:
        raise ArgumentTypeError(f"must be at most {2**31 - 1:,}, got {text}")
    return int(text)


def positive(value: str | float) -> float:
    """Parse a positive number."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"must be a positive number, got {value!r}")
    return number


def add_overwrite(parser: ArgumentParser) -> None:
    """Add --overwrite."""
    parser.add_argument("--overwrite", action="store_true", help="overwrite existing files")


def add_config(parser: ArgumentParser) -> None:
    """Add --config and --print-config."""
    parser.add_argument(
        "--config", action="config", metavar="FILE", help="read options from a YAML file"
    )
    for action in parser._actions:
        if action.dest == "print_config":
            action.help = "print the options as YAML and exit"


def add_common_options(parser: ArgumentParser, out: str, seeds: str) -> None:
    """Add --quick, --out, --seeds, --force and --overwrite.

    Args:
        parser: The parser of a verb.
        out: Description of the default of --out.
        seeds: Description of the default of --seeds.
    """
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smoke test that takes seconds: few steps and seeds; ignore the numbers",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder for the results (default: {out})"
    )
    parser.add_argument(
        "--seeds", type=count, metavar="N", help=f"run seeds 0 to N-1 (default: {seeds})"
    )
    parser.add_argument(
        "--force", action="store_true", help="discard existing results in DIR first"
    )
    add_overwrite(parser)


def add_image_options(parser: ArgumentParser) -> None:
    """Add the options of verbs that apply a model to images."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="folder of a run or a saved model, hf://organization/name on the Hugging Face Hub, or "
        "pretrained for the packaged network",
    )
    parser.add_argument(
        "--data", required=True, metavar="PATH", help="folder, CSV or Parquet file with images"
    )
    parser.add_argument(
        "--format",
        default="auto",
        metavar="NAME",
        help="data format, as in `sumpool train` (default: detected)",
    )
    parser.add_argument(
        "--split", default="all", metavar="NAME", help="split of the data (default: all images)"
    )
    parser.add_argument(
        "--batch_size",
        type=count,
        default=64,
        metavar="N",
        help="images per forward pass (default: 64)",
    )
    add_device(parser)
    add_decoding(parser)


def add_device(parser: ArgumentParser) -> None:
    """Add --device."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="cpu, cuda, cuda:1, … (default: cuda if available)",
    )


def add_decoding(parser: ArgumentParser) -> None:
    """Add --workers, --skip-broken and --allow-outside."""
    parser.add_argument(
        "--workers",
        type=not_negative,
        metavar="N",
        help="number of decoding processes (default: one per core, at most 16)",
    )
    parser.add_argument(
        "--skip_broken",
        type=bool,
        default=False,
        help="skip unreadable images and list them, instead of stopping",
    )
    add_allow_outside(parser)


def add_allow_outside(parser: ArgumentParser) -> None:
    """Add --allow-outside."""
    parser.add_argument(
        "--allow_outside",
        type=bool,
        default=False,
        help="allow a CSV file to name images outside its folder",
    )


def check_data(path: str | None) -> None:
    """Check that the data exists, before torch is imported to read it."""
    if path is not None and not Path(path).exists():
        raise ConfigError(f"the data folder {path} does not exist")


def check_executor_options(options: Namespace, *, jobs: int | str) -> None:
    """Check that --jobs is not given with --ray (``jobs`` is its default), nor --gpus without.

    With --ray, the numbers of --gpus and --cpus are checked too.
    """
    if options.ray is None and (options.gpus or options.cpus != 1):
        raise ConfigError("--gpus and --cpus need --ray: they are shares of a Ray cluster")
    if options.ray is not None and options.jobs != jobs:
        raise ConfigError("--jobs is for this machine: with --ray, use --gpus and --cpus")
    if options.ray is not None:
        from sumpool.system.ray_nodes import check_shares

        check_shares(options.cpus, options.gpus)


def results_folder(options: Namespace, name: str) -> Path:
    """Folder of the results: --out, by default runs/NAME or, with --quick, runs/NAME-quick."""
    return options.out or Path("runs", f"{name}-quick" if options.quick else name)


def finished_cells(out: Path) -> str:
    """Sentence stating how many finished cells of a study are kept in ``out``."""
    from sumpool.system.files import StoreError
    from sumpool.system.rows import ROWS, read_rows

    cells = 0
    for path in out.rglob(ROWS):
        with suppress(StoreError):  # the study itself reports damage
            cells += len(read_rows(path.parent))
    if not cells:
        return f"no cell was finished, nothing is kept in {out}"
    noun = "cell is" if cells == 1 else "cells are"
    return f"{cells} finished {noun} kept in {out}; the same command resumes"
