"""``sumpool bench queue``: run the grids in a file as one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.bench_options import GRIDS, add_grid_options, add_run_options, check_names, grid_of
from sumpool.cli.options import normalize_arguments
from sumpool.cli.parsing import Parser, UsageError, usage_error
from sumpool.training.config import ConfigError, flat_switches

if TYPE_CHECKING:
    from sumpool.bench import BenchCell

    #: Lists of cells, each with the --set options of its grid.
    Parts = list[tuple[list[BenchCell], list[str]]]

DESCRIPTION = """\
Run the grids of FILE, which has one command per line:

  sumpool bench steady --data cub --loss c2 --pool gap gemean
  sumpool bench steady --data cub --loss c2 --pool gsp-keys --set gsp.mu=0.3

Their cells share the machine and the folder, and all grids advance together: seed 0 of every grid,
fold by fold, then seed 1, and so on. The results of an interrupted queue can thus be compared. The
options below apply to the whole queue and cannot be set in FILE. Empty lines and lines that begin
with # are skipped.

examples:
  sumpool bench queue grids.txt --dry-run
  sumpool bench queue grids.txt --jobs 14 --out runs/photographs
"""

_COMMAND = ["sumpool", "bench"]


def add_queue_options(parser: ArgumentParser) -> None:
    """Add the options of a queue."""
    parser.usage, parser.description = "sumpool bench queue FILE [options]", DESCRIPTION
    parser.add_argument("file", type=Path, metavar="FILE", help="file with one command per line")
    add_run_options(parser)


def queue_parts(options: Namespace) -> Parts:
    """Return the cells of all commands one by one in running order, each with its --set options.

    Raises:
        ConfigError: If the file cannot be read or a line is invalid; the message names the line.
    """
    from sumpool.bench import expand

    path: Path = options.file
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the queue {path}: {error}") from error
    found: dict[str, tuple[BenchCell, list[str]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            protocol, grid = _parse(line, options.root)
            cells = expand(grid_of(protocol, grid))
        except ConfigError as error:
            raise ConfigError(f"{path}, line {number}: {error}") from error
        for cell in cells:
            found.setdefault(cell.id, (cell, grid.set))
    if not found:
        raise ConfigError(f"the queue {path} has no commands")
    ordered = sorted(found.values(), key=lambda it: (it[0].member.seed, it[0].member.fold or 0))
    return [([cell], given) for cell, given in ordered]


def _parse(line: str, root: Path) -> tuple[str, Namespace]:
    """Parse the protocol and the options of a command."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error}") from error
    protocol = words[2] if len(words) > 2 else ""
    if words[:2] != _COMMAND or protocol not in GRIDS:
        grids = ", ".join(GRIDS)
        raise UsageError(f"a line must begin with `sumpool bench` and one of {grids}, got {line!r}")
    typed = words[3:]
    if asked := [word for word in typed if word in ("-h", "--help")]:
        raise UsageError(f"{asked[0]} is not an option of a grid")
    parser = Parser()
    add_grid_options(parser)
    try:
        parsed: Namespace = parser.parse_args(normalize_arguments(typed, flat_switches()))
    except UsageError as error:
        raise UsageError(usage_error(error, parser, typed)) from error
    for name, default in vars(_run_defaults()).items():
        if parsed[name] != default:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for the whole queue: give it to `sumpool bench queue`")
    check_names(parsed)
    parsed.root = root
    return protocol, parsed


def _run_defaults() -> Namespace:
    parser = Parser()
    add_run_options(parser)
    return parser.parse_args([])
