"""Number of proxies per class × images that new proxies are picked among [thesis, fig. 3.6].

    sumpool study ccp-pool              (glyphs: 36 runs)
    sumpool study ccp-pool --data DIR   (CIFAR-100 or CUB: for a GPU)

On CUB, the first of three folds is held out and scored, as in the ablations of the thesis.

With a pool as large as the number of proxies, proxies are drawn at random. Expected on CUB: more
proxies and larger pools are better, except for a single proxy, where the choice cannot look back
farther than one step.
"""

from __future__ import annotations

from pathlib import Path

from sumpool.report.labels import dataset_label
from sumpool.report.section import Section, grouped
from sumpool.report.tables import Table
from sumpool.studies.grids.plots import draw_lines, metric_table
from sumpool.studies.shared.ccp import ccp_study, with_method
from sumpool.studies.shared.pooling_study import Level
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row
from sumpool.training import TrainConfig

LEVELS = tuple(
    {"proxies": proxies, "pool": pool}
    for proxies in (1, 4, 8)
    for pool in (1, 4, 8, 12, 16)
    if pool >= proxies
)


def change(config: TrainConfig, cell: Level) -> TrainConfig:
    """Set proxies and pool."""
    return with_method(config, "alternating", proxies=cell["proxies"], candidates=cell["pool"])


run = ccp_study("ccp-pool", LEVELS, change, [{"proxies": 1, "pool": 4}, {"proxies": 4, "pool": 4}])


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate MAP@R by pool (rows) and proxies (columns)."""
    return [metric_table(_by_proxies(rows), "pool", "pool b")]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables and MAP@R against the size of the pool."""
    figure = draw_lines(_by_proxies(rows), "pool", "pool b")
    return study_section(
        rows,
        title="Chance-constrained proxies: how many, picked among how many",
        question=(
            "New proxies of a class are picked among b images, each as far as can be from those "
            "there are. A pool as large as the number of proxies is random drawing. How much "
            f"depends on both on {dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures={
            "MAP@R against the size of the pool, one line per number of proxies, a band "
            "for the standard deviation over seeds.": figure
        },
    )


def _by_proxies(rows: list[Row]) -> dict[str, list[Row]]:
    counts = grouped(rows, lambda row: int(row.cell["proxies"]))
    return {
        "1 proxy" if count == 1 else f"{count} proxies": counts[count] for count in sorted(counts)
    }
