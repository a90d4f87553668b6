"""Seeds of a study."""

from __future__ import annotations


def seed_range(seeds: int | None, quick: bool, default: int = 5) -> range:
    """Return seeds 0 to ``seeds`` − 1; None means ``default`` seeds, or one in quick mode."""
    if seeds is None:
        seeds = 1 if quick else default
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    return range(seeds)
