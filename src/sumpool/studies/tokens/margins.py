"""Margins study: how the outcome of the token study depends on the margin of its loss.

The sources do not give the margins. The token study uses the largest m⁻ that sixteen points on a
grid can keep in the square, 0.2. This study repeats it with smaller margins, where average pooling
fares better, and with 0.3841, which the sources use for bird images and the square cannot hold.

    sumpool study margins           (3 seeds)
    sumpool study margins --quick   (1 seed, 500 steps each)

Cost: about 5 minutes on one core. Expected over 3 seeds: MAP@R of GAP falls with the margin, from
0.92 at 0.05 to 0.30 at 0.3841, where its classes overlap; that of GSP is 0.99 up to 0.2 and 0.90
at 0.3841. Numbers in docs/results/margins/README.md.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from sumpool.studies.shared.seeds import seed_range
from sumpool.studies.shared.token_problem import TokenSettings
from sumpool.studies.tokens.experiment import QUICK, fill
from sumpool.system.rows import ResultStore, Row

#: Margins m⁻.
MARGINS = (0.05, 0.1, 0.2, 0.3841)


def run(
    out_dir: Path,
    *,
    seeds: int | None = None,
    quick: bool = False,
    progress: bool = True,
    force: bool = False,
) -> list[Row]:
    """Run the study into ``out_dir``; see :class:`~sumpool.studies.shared.study.RunStudy`."""
    settings = TokenSettings(**(QUICK if quick else {}))
    shared = {name: value for name, value in asdict(settings).items() if name != "negative_margin"}
    store = ResultStore(out_dir, "margins", shared, force=force)
    rows = []
    for margin in MARGINS:
        rows += fill(
            store,
            replace(settings, negative_margin=margin),
            seed_range(seeds, quick, default=3),
            {"margin": margin},
            progress=progress,
        )
    return rows
