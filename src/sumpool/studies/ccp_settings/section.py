"""Report section on the settings of chance-constrained proxies."""

from __future__ import annotations

from pathlib import Path

from sumpool.report.labels import dataset_label, loss_name, losses
from sumpool.report.section import NOTHING, Section, grouped, measured, over_seeds, seeds_label
from sumpool.report.tables import Table
from sumpool.studies.ccp_settings.experiment import BASE, LABELS
from sumpool.studies.ccp_settings.figures import draw_curves, draw_scores, validations, variants_in
from sumpool.studies.shared.ccp_labels import PROBLEMS, note
from sumpool.studies.shared.reporting import Column, averages, differences, headings, signed
from sumpool.studies.shared.sections import study_section
from sumpool.system.rows import Row

#: Variants whose validations are drawn as curves.
CURVES = (BASE, "thesis", "last weights", "last weights, patience 10")
_COLUMNS: dict[str, Column] = {
    "precision_at_1": ("P@1 [%]", 1, 100.0),
    "validation_map_at_r": ("validation MAP@R [%]", 1, 100.0),
    "best_step": ("best step", 0, 1.0),
    **PROBLEMS,
}


def tables(rows: list[Row]) -> list[Table]:
    """Tabulate scores, gains and statistics of the problems by loss and variant."""
    cells = grouped(rows, lambda row: (loss_name(row), str(row.cell["variant"])))
    columns = measured(rows, _COLUMNS)
    lines = [
        [
            f"{loss}, {LABELS.get(variant, variant)}",
            over_seeds(own, "map_at_r", 1, 100),
            NOTHING if variant == BASE else signed(differences(own, cells.get((loss, BASE), []))),
            *averages(own, columns),
        ]
        for loss in losses(rows)
        for variant in variants_in(rows)
        if (own := cells.get((loss, variant), []))
    ]
    header = ["training", "MAP@R [%]", "gain [points]", *headings(columns)]
    caption = f"Test images of {dataset_label(rows[0].settings)}, {seeds_label(rows)}"
    return [Table(header, lines, caption)]


def section(folder: Path, rows: list[Row]) -> Section:
    """Build the section: tables, scores as bars and, if stored, validation by step."""
    figures = {
        "Test MAP@R of each variant as a bar, one panel per loss, whiskers for the standard "
        "deviation over seeds; a dashed line for the base loss.": draw_scores(rows)
    }
    curves = validations(folder, rows, CURVES)
    if curves:
        figures[
            "MAP@R on the validation classes by step, one line per run and one panel per loss; a "
            "dot at the best."
        ] = draw_curves(curves)
    return study_section(
        rows,
        title="Chance-constrained proxies: which settings they need",
        question=(
            "Proxies with the settings of the thesis, going back to the best weights of a "
            "problem, and with some of them changed: "
            "which setting decides whether they gain over the loss inside batches on "
            f"{dataset_label(rows[0].settings)}?"
        ),
        tables=tables(rows),
        figures=figures,
        notes=[
            "Gain: against the base loss with the same seed. Rate of proxies: their learning rate "
            "over that of the network, 1 otherwise. Unit vectors: embeddings v/‖v‖; otherwise "
            "v/max(1, ‖v‖) with proxies, and v/‖v‖ with the base loss. Last weights: a problem "
            "ends with its last weights; otherwise with those of its best validation.",
            note(rows),
        ],
    )
