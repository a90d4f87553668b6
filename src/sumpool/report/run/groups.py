"""Groups of runs that differ only in the seed, named by the options that distinguish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sumpool.report.run.files import Run, read_run
from sumpool.report.run.option_names import WHERE_IT_RUNS, flatten
from sumpool.report.section import NOTHING

#: Options that do not define another experiment: where it runs, and the seed.
IGNORED_OPTIONS = WHERE_IT_RUNS | {"seed", "hardware.workers"}
#: Options that are named before others, and by their value alone.
FIRST = ("pool", "loss", "backbone")


def group_runs(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Group the folders of runs by their configurations, in the order given.

    Runs belong to one group if their configurations agree in all but the seed and where they ran.
    Groups are named by the options that distinguish them.
    """
    runs = [read_run(folder) for folder in folders]
    options = [flatten(run.config) for run in runs]
    names = list(dict.fromkeys(name for known in options for name in known))
    apart = [
        name
        for name in [*FIRST, *(name for name in names if name not in FIRST)]
        if name not in IGNORED_OPTIONS and len({repr(known.get(name)) for known in options}) > 1
    ]
    kept: list[str] = []
    for name in apart:  # an option that splits no group further is redundant in the names
        if len(_parts(options, [*kept, name])) > len(_parts(options, kept)):
            kept.append(name)
    kept = kept or ["pool"]
    groups: dict[str, list[Path]] = {}
    for run, known in zip(runs, options, strict=True):
        named = [name for name in kept if known.get(name) is not None] or kept
        label = ", ".join(_word(name, known.get(name)) for name in named)
        groups.setdefault(label, []).append(run.folder)
    return groups


def seed_of(run: Run) -> str:
    """Return the seed of a run as text."""
    seed = run.facts.get("seed", run.option("seed"))
    return NOTHING if seed is None else str(seed)


def _parts(options: Sequence[Mapping[str, Any]], names: Sequence[str]) -> set[str]:
    return {repr([known.get(name) for name in names]) for known in options}


def _word(name: str, value: Any) -> str:
    if name in ("pool", "loss") and value is not None:
        return str(value).upper()
    return str(value) if name in FIRST else f"{name} {value}"
