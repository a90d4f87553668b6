"""``sumpool study NAME``: run one study, or all of them, and write a page."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.errors import describe
from sumpool.cli.options import (
    add_common_options,
    count,
    finished_cells,
    results_folder,
    verb_parser,
)
from sumpool.report.run.folder import REPORT
from sumpool.studies.catalog import STUDIES, get_study
from sumpool.studies.shared.study import OPTIONS, sole_writer

SUMMARY = "run a study, or all of them; finished cells are kept"

#: Name that selects every study.
ALL = "all"

DESCRIPTION = """\
Run a study, print its tables and write a page with its figures.

studies:
{studies}

Each cell (a method with a seed) is stored in DIR/rows.jsonl as soon as it finishes. After an
interrupt, or with more seeds, the same command computes only what is missing. The page
(DIR/report.html), tables (DIR/tables.md) and figures (DIR/figure-1.png, …) are drawn from stored
results; `sumpool report DIR` redraws the page. `sumpool study all` runs each study in DIR/NAME and
shows them on one page; a study that fails does not stop the others.

examples:
  sumpool study toy
  sumpool study tokens --quick
  sumpool study tokens --seeds 10 --out runs/ten-seeds
  sumpool study glyphs --jobs 2
  sumpool study collage --data cifar-100-python --weights runs/pretrained/backbone.safetensors
  sumpool study all --quick
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    width = max(map(len, STUDIES)) + 1
    listed = "\n".join(
        f"  {name:<{width}} {study.summary};\n  {'':<{width}} takes {study.cost}"
        for name, study in STUDIES.items()
    )
    listed += f"\n  {ALL:<{width}} all studies, one after another, on one page"
    parser = verb_parser(DESCRIPTION.format(studies=listed), usage="sumpool study NAME [options]")
    names = [*STUDIES, ALL]
    parser.add_argument(
        "name", metavar="NAME", choices=names, help=f"study to run: {', '.join(names)}"
    )
    add_common_options(
        parser,
        out="runs/NAME, or runs/NAME-quick with --quick",
        seeds="5; 3 for margins and studies that train networks; 1 with --quick",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of images, for studies on real images (not needed with --quick)",
    )
    parser.add_argument(
        "--jobs",
        type=count,
        metavar="N",
        help="cells to run in parallel, in studies that train networks (default: one per core)",
    )
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="pretrained backbone for studies on CIFAR, from `sumpool pretrain` (default: collage "
        "studies pretrain one, prediction starts from scratch)",
    )
    return parser


def run(options: Namespace) -> int:
    """Run the study, then print its tables and the path of its page."""
    out = results_folder(options, options.name)
    given = _given(options)
    if options.name == ALL:
        return _run_all(options, out, given)
    _run_one(options.name, options, out, given)
    _write_page([out], out, f"sumpool: study {options.name}")
    return 0


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps."""
    return finished_cells(results_folder(options, options.name))


def _given(options: Namespace) -> dict[str, Any]:
    """Return the given study-specific options; raise if no selected study accepts one."""
    from sumpool.training import ConfigError

    given = {key: options[key] for key in OPTIONS if options[key] is not None}
    for key in given:
        able = [name for name, study in STUDIES.items() if key in study.options()]
        if not able or options.name not in (ALL, *able):
            raise ConfigError(
                f"the study {options.name} does not accept --{key}; "
                + (f"these do: {', '.join(able)}" if able else "no study does")
            )
    return given


def _run_one(name: str, options: Namespace, out: Path, given: Mapping[str, Any]) -> None:
    from sumpool.studies.page import refuse_foreign_files, tables_of, write_files

    refuse_foreign_files(out, overwrite=options.overwrite)
    study = get_study(name)
    taken = study.options()
    more = {key: value for key, value in given.items() if key in taken}
    with sole_writer(out):
        study.run(out, seeds=options.seeds, quick=options.quick, force=options.force, **more)
        print("\n\n".join(table.text() for table in tables_of(out)))
        write_files(out)


def _run_all(options: Namespace, out: Path, given: Mapping[str, Any]) -> int:
    from sumpool.report.html_page import refuse_foreign_page

    refuse_foreign_page(out / REPORT, overwrite=options.overwrite)
    with sole_writer(out):
        return _run_each(options, out, given)


def _run_each(options: Namespace, out: Path, given: Mapping[str, Any]) -> int:
    finished: list[Path] = []
    failed: list[str] = []
    for name in STUDIES:
        print(f"\n== {name} ==")
        try:
            _run_one(name, options, out / name, given)
        except Exception as error:  # the others must still run; reported here and at the end
            if describe(error) is None:
                traceback.print_exc()
            print(f"sumpool: error: study {name}: {_in_a_line(error)}", file=sys.stderr)
            failed.append(name)
        else:
            finished.append(out / name)
    if finished:
        _write_page(finished, out, "sumpool: all studies")
    if failed:
        listed = ", ".join(failed)
        print(f"sumpool: {len(failed)} of {len(STUDIES)} studies failed: {listed}", file=sys.stderr)
    return 1 if failed else 0


def _write_page(folders: list[Path], out: Path, title: str) -> None:
    from sumpool.studies.page import write_page

    print(f"\npage: {write_page(folders, out / REPORT, title)}")


def _in_a_line(error: Exception) -> str:
    return describe(error) or f"{type(error).__name__}: {error}"
