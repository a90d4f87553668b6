"""``sumpool bench``: grids of runs under a protocol, and their results."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.bench_compare import add_compare_options, add_pack_options, run_compare, run_pack
from sumpool.cli.bench_options import (
    GRIDS,
    add_grid_options,
    add_out,
    check_names,
    grid_description,
    grid_of,
)
from sumpool.cli.bench_queue import add_queue_options, queue_parts
from sumpool.cli.bench_table import add_recipe_options, add_table_options, run_recipes, run_table
from sumpool.cli.options import HelpFormatter, check_executor_options, positive, verb_parser
from sumpool.cli.parsing import Parser
from sumpool.system.wording import counted

if TYPE_CHECKING:
    from sumpool.bench import BenchCell, BenchStore, Executor, Summary
    from sumpool.bench.parallelism import Parallelism
    from sumpool.cli.bench_queue import Parts
    from sumpool.training import TrainConfig

SUMMARY = "train grids of methods under published protocols and compare them"

DESCRIPTION = """\
Train many models under one protocol, and compare the results with published numbers.

  sumpool bench fair --data cub --loss c2 --pool gap gsp      train the missing runs of a grid
  sumpool bench queue grids.txt                               run several grids as one
  sumpool bench status                                        show progress, from another terminal
  sumpool bench table                                         tabulate scores as in the papers
  sumpool bench compare --over gap                            compare finished runs in pairs

Every combination of data set, loss, method, fold and seed is a cell: one run, identified by what it
computes. Finished cells have a row in DIR/rows and are never trained again. After an interrupt or a
crash, or with more methods, the same command trains the missing cells and resumes from checkpoints.
Several commands may share one DIR, also on several machines.
"""

STATUS_DESCRIPTION = """\
Show the progress of a benchmark: done, running, failed and waiting cells by group, the step and
speed of the running ones, and an estimate of the remaining time. It only reads DIR.

examples:
  sumpool bench status
  sumpool bench status --out runs/cub --watch
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    return verb_parser(DESCRIPTION, usage="sumpool bench ACTION [options]")


def add_actions(parser: ArgumentParser) -> None:
    """Add the actions of the verb to its parser."""
    actions = parser.add_subcommands(
        dest="action", title="actions", description=None, metavar="ACTION"
    )
    for name, (summary, _) in GRIDS.items():
        grid = verb_parser(grid_description(name), f"sumpool bench {name} --data NAME … [options]")
        add_grid_options(grid)
        actions.add_subcommand(name, grid, help=summary)
    for name, add_options, summary in (
        ("queue", add_queue_options, "run the grids of a file together"),
        ("status", _add_status_options, "show the progress of a benchmark"),
        ("table", add_table_options, "tabulate scores beside published ones"),
        ("compare", add_compare_options, "compare finished runs: means and paired gains"),
        ("pack", add_pack_options, "write the rows of finished runs to one file"),
        ("recipes", add_recipe_options, "write one YAML file per published setting"),
    ):
        own = Parser(formatter_class=HelpFormatter)
        add_options(own)
        actions.add_subcommand(name, own, help=summary)


def _add_status_options(parser: ArgumentParser) -> None:
    parser.usage, parser.description = "sumpool bench status [options]", STATUS_DESCRIPTION
    add_out(parser)
    parser.add_argument("--watch", action="store_true", help="refresh until interrupted")
    parser.add_argument(
        "--every",
        type=positive,
        default=5.0,
        metavar="SECONDS",
        help="seconds between refreshes, with --watch",
    )


def run(options: Namespace) -> int:
    """Run the chosen action."""
    action: str = options.action
    chosen: Namespace = options[action]
    if action in GRIDS:
        return _run_grid(action, chosen)
    if action == "queue":
        return _run_parts(queue_parts(chosen), chosen)
    if action == "status":
        return _show_status(chosen)
    others = {"recipes": run_recipes, "compare": run_compare, "pack": run_pack}
    if action in others:
        return others[action](chosen)
    _score(chosen.out)
    return run_table(chosen)


def interrupt_message(options: Namespace) -> str:
    """Describe what an interrupt keeps."""
    from sumpool.bench import BenchStore

    if options.action not in (*GRIDS, "queue"):
        return "nothing is lost"
    out = options[options.action].out
    rows = len(BenchStore(out).rows())
    return (
        f"{rows} finished {'cell is' if rows == 1 else 'cells are'} kept in {out}, and checkpoints "
        "of unfinished ones; the same command resumes"
    )


def _run_grid(protocol: str, options: Namespace) -> int:
    check_names(options)
    from sumpool.bench import expand

    return _run_parts([(expand(grid_of(protocol, options)), options.set)], options)


def _run_parts(parts: Parts, options: Namespace) -> int:
    """Run the cells of all parts, which are the cells of a grid with its --set options."""
    from sumpool.bench import BenchStore, check_cells, run_bench
    from sumpool.bench.plan import plan_text

    check_executor_options(options, jobs="auto")
    store = BenchStore(options.out.absolute())
    if options.dry_run:
        cells = [cell for part, _ in parts for cell in part]
        check_cells(cells, here=False)
        print(plan_text(store, cells))
        return 0
    with ExitStack() as while_it_runs:
        executor, cells = _executor(store, parts, options, while_it_runs)
        here = options.ray is None
        missing = {cell.data_set for cell in cells if here and store.row(cell.id) is None}
        check_cells(cells, here=here, decode=missing)
        summary = run_bench(store, cells, executor, retries=options.retries)
    _print_summary(store, summary)
    _score(store.folder)
    print(f"results: {options.out}; tabulate them with: sumpool bench table --out {options.out}")
    return 1 if summary.failed else 0


def _executor(
    store: BenchStore, parts: Parts, options: Namespace, while_it_runs: ExitStack
) -> tuple[Executor, list[BenchCell]]:
    """Return the executor, and the cells configured for it."""
    if options.ray is not None:
        from sumpool.bench.parallelism import part_of_a_node
        from sumpool.system.executors.ray_cluster import RayCluster

        cluster = RayCluster(options.ray, gpus=options.gpus, cpus=options.cpus, folder=store.folder)
        parallelism = part_of_a_node(options.gpus, options.cpus)
        return cluster, _fitted(store, parts, parallelism)
    from sumpool.bench import LocalProcesses
    from sumpool.bench.parallelism import auto_jobs
    from sumpool.system.executors.mps import mps_server

    parallelism = auto_jobs()
    if options.jobs != "auto":
        if not parallelism.gpus:
            return LocalProcesses(options.jobs), [cell for part, _ in parts for cell in part]
        parallelism = replace(parallelism, jobs=options.jobs, why="set by --jobs")
    print(f"{counted(parallelism.jobs, 'cell')} in parallel: {parallelism.why}", file=sys.stderr)
    if parallelism.mps:
        print(f"multi-process service: {while_it_runs.enter_context(mps_server()).why}")
    executor = LocalProcesses(parallelism.jobs, parallelism.threads, parallelism.gpus)
    return executor, _fitted(store, parts, parallelism)


def _fitted(store: BenchStore, parts: Parts, parallelism: Parallelism) -> list[BenchCell]:
    """Configure the cells for ``parallelism``, with decoded images shared in the store."""
    from sumpool.bench.settings import parse_settings

    images, group = store.folder / "images", "hardware."

    def fitted(config: TrainConfig, given: list[str]) -> TrainConfig:
        keep = [it.removeprefix(group) for it in parse_settings(given) if it.startswith(group)]
        return parallelism.configure(config, data_set=config.format, cache_dir=images, keep=keep)

    return [
        replace(cell, config=fitted(cell.config, given)) for part, given in parts for cell in part
    ]


def _print_summary(store: BenchStore, summary: Summary) -> None:
    """Print the outcome of a grid, with the end of the log of each failed cell."""
    print(
        f"{counted(len(summary.done), 'cell')} finished, {len(summary.elsewhere)} were finished "
        f"before or elsewhere, {len(summary.failed)} failed"
    )
    for cell, failure in summary.failed:
        log = store.cell_folder(cell.id) / "log.txt"
        tail = "\n".join(f"    {line}" for line in failure.log_tail.splitlines())
        print(
            f"\nfailed in attempt {failure.attempt}: {cell.name}\n  {failure.error}\n"
            f"  end of {log}:\n{tail}",
            file=sys.stderr,
        )


def _show_status(options: Namespace) -> int:
    from sumpool.bench import BenchStore, bench_status

    store = BenchStore(options.out)
    if not options.watch:
        print(bench_status(store).text())
        return 0
    while True:
        text = bench_status(store).text()
        # Clear the screen, but keep the scrollback of the terminal.
        print(f"\x1b[H\x1b[2J{time.strftime('%H:%M:%S')}  {text}", flush=True)
        time.sleep(options.every)


def _score(out: Path) -> None:
    """Score the complete groups, and say why others have no score."""
    from sumpool.bench import BenchStore, score_store

    store = BenchStore(out)
    if not store.rows():
        return  # scores copied without their rows are shown as they are
    for warning in score_store(store, progress=sys.stderr.isatty()).warnings:
        print(f"sumpool: {warning}", file=sys.stderr)
