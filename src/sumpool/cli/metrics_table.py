"""Metrics as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from sumpool.report.tables import Table

#: Column titles by metric name; those of R@K are derived from the name.
_NAMES = {
    "precision_at_1": "P@1 [%]",
    "r_precision": "R-precision [%]",
    "mean_average_precision_at_r": "MAP@R [%]",
}


def metrics_table(
    evaluations: Mapping[str, Mapping[str, float]], caption: str = "Retrieval"
) -> Table:
    """Tabulate metrics in percent, one row per evaluation; a dash is R@K on too few images."""
    ks = sorted(
        {
            int(name.removeprefix("recall_at_"))
            for metrics in evaluations.values()
            for name in metrics
            if name.startswith("recall_at_")
        }
        - {1}
    )
    columns = ["precision_at_1", *(f"recall_at_{k}" for k in ks)]
    columns += ["r_precision", "mean_average_precision_at_r"]
    header = [_NAMES.get(name, f"R@{name.removeprefix('recall_at_')} [%]") for name in columns]
    lines = [
        [
            name,
            *(f"{100 * metrics[it]:.2f}" if it in metrics else "–" for it in columns),
            f"{metrics['queries']:.0f}",
            f"{metrics['queries_without_match']:.0f}",
        ]
        for name, metrics in evaluations.items()
    ]
    return Table(("images", *header, "queries", "without match"), lines, caption)
