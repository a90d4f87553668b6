"""HTML report of a search, built from its stored trials alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sumpool.report.html_page import write_page
from sumpool.report.plots import picture
from sumpool.report.run.folder import REPORT
from sumpool.report.run.labels import duration
from sumpool.report.section import NOTHING
from sumpool.report.tables import Table
from sumpool.tune.figures import draw_importances, draw_scores
from sumpool.tune.result import Result, result_of
from sumpool.tune.sampling import distributions, import_optuna
from sumpool.tune.space import option_text
from sumpool.tune.store import Trial, TuneStore

#: Minimum number of complete trials for estimating the importance of options.
FEWEST = 6


def write_tune_page(folder: Path, out: Path | None = None) -> Path:
    """Write the report of the search in ``folder`` to ``out``, by default its ``report.html``.

    Raises:
        StoreError: If ``folder`` holds no search.
    """
    result = result_of(TuneStore(folder))
    pictures = [picture(draw_scores(result), "Validation score of every trial and the best so far")]
    shares = importances(result)
    if shares:
        listed = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
        pictures.append(picture(draw_importances(shares), f"Shares of the spread: {listed}"))
    return write_page(
        out or folder / REPORT,
        "tune.html",
        title="sumpool: tune",
        verdict=result.verdict(),
        counts=result.counts(),
        command=result.command,
        space=[str(it) for it in result.space],
        pictures=pictures,
        explained=bool(shares),
        fewest=FEWEST,
        table=trial_table(result),
        failures=[f"Trial {it.number}: {it.error}" for it in result.trials if it.error],
    )


def trial_table(result: Result) -> Table:
    """Return a table of all started trials, the best in bold."""
    shown = [it for it in result.trials if it.state != "waiting"]
    names = [it.name for it in result.space]
    rows = [
        [
            f"{it.number} (default)" if it.number == 0 else str(it.number),
            NOTHING if it.score is None else f"{100 * it.score:.1f}",
            it.state,
            str(max(it.curve, default=NOTHING)),
            NOTHING if it.seconds is None else duration(it.seconds),
            *(option_text(it.params[name]) if name in it.params else "default" for name in names),
        ]
        for it in shown
    ]
    strong = {(row, 1) for row, it in enumerate(shown) if it == result.best}
    header = ["trial", f"{result.label} [%]", "state", "last step", "time", *names]
    return Table(header, rows, "Trials; the score of a pruned one is its best until then", strong)


def importances(result: Result) -> dict[str, float]:
    """Return each option's share of the scores' spread (fANOVA); empty for too few trials."""
    optuna = import_optuna("the page of a search")
    space = distributions(result.space)
    placed = [it for it in result.trials if _counts(it, space)]
    if len(placed) < FEWEST or len({it.score for it in placed}) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    for it in placed:
        study.add_trial(
            optuna.trial.create_trial(params=dict(it.params), distributions=space, value=it.score)
        )
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return found


def _counts(trial: Trial, space: dict[str, Any]) -> bool:
    return (
        trial.state == "complete"
        and trial.score is not None
        and trial.params.keys() == space.keys()
    )
