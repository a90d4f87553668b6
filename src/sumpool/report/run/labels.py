"""Text and a table on a run: its scores, what was trained on what, why it stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from sumpool.report.run.files import Run
from sumpool.report.section import NOTHING
from sumpool.report.tables import Table
from sumpool.system.wording import counted

#: The main scores, by the name of the metric.
SCORES = {"mean_average_precision_at_r": "MAP@R", "precision_at_1": "P@1"}
#: Headings of the metric table by the name of the metric, all in percent.
PERCENT = {
    "mean_average_precision_at_r": "MAP@R [%]",
    "precision_at_1": "P@1 [%]",
    "recall_at_2": "R@2 [%]",
    "recall_at_4": "R@4 [%]",
    "recall_at_8": "R@8 [%]",
    "r_precision": "R-precision [%]",
}
STOPS = {
    "patience": "It stopped because validation got no better.",
    "max_steps": "It stopped at its last step.",
    "minutes": "It stopped when its time budget was used.",
    "interrupted": "It was interrupted and can be resumed.",
}
#: Shown with the scores of a model that was selected by them.
ON_TEST = "selected on the test set"
UNFINISHED = "It has not finished: it is still training, or was killed and can be resumed."


def score_names(run: Run) -> list[str]:
    """Return the evaluations that have scores: validation, test, then others by name."""
    first = [name for name in ("validation", "test") if run.scores(name) is not None]
    return first + sorted(set(run.evaluations) - set(first))


def main_score(run: Run) -> str | None:
    """Return the main evaluation: test, else validation, else any; None if there is none."""
    names = score_names(run)
    preferred = [name for name in ("test", "validation") if name in names]
    return next(iter([*preferred, *names]), None)


def metric_table(run: Run) -> Table:
    """Tabulate the metrics of every evaluation."""
    listed = []
    for name in score_names(run):
        label = name if name in run.evaluations else f"{name} (step {run.best_step:,})"
        listed.append((label, run.scores(name) or {}))
    if run.before_training is not None:
        listed.append((f"{run.selection}, before training", run.before_training))
    rows = [
        [
            label,
            *(_percent(scores.get(metric)) for metric in PERCENT),
            *(_count(scores.get(name)) for name in ("queries", "queries_without_match")),
        ]
        for label, scores in listed
    ]
    header = ("evaluation", *PERCENT.values(), "queries", "left out: no match")
    return Table(header, rows, f"Retrieval with the best model{selected(run)}")


def selected(run: Run) -> str:
    """Return ", selected on the test set" if the run was, to follow its scores, else nothing."""
    return f", {ON_TEST}" if run.selection == "test" else ""


def headline(run: Run) -> str:
    """State the main scores and what they were measured on."""
    name = main_score(run)
    if name is None:
        return f"Not evaluated yet{selected(run)}."
    scores = run.scores(name) or {}
    alone = int(scores.get("queries_without_match", 0))
    left = f"; {alone:,} more had no match and are left out" if alone else "; none was left out"
    if "queries" not in scores:
        return f"{_both(scores)} ({name}{selected(run)})."
    marked = f"{selected(run)}," if selected(run) else ""
    return f"{_both(scores)}{marked} over {int(scores['queries']):,} {name} queries{left}."


def summary(run: Run) -> str:
    """Describe what was trained on what, for how long, where, and why it stopped."""
    pieces = [piece for piece in (_model(run), _data(run), _effort(run)) if piece]
    stopped = run.facts.get("stopped")
    ending = STOPS.get(str(stopped), f"It stopped: {stopped}.") if stopped else UNFINISHED
    if run.selection == "test":
        ending += (
            " The model that is kept, and the end of training, were selected on the test set: the "
            "scores are better than on images that no choice was made by."
        )
    return f"{', '.join(pieces)}. {ending}" if pieces else ending


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(8.24), duration(75), duration(3700)
        ('8.2 s', '1 min 15 s', '1 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def seconds_of(run: Run) -> float | None:
    """Return the logged duration of a run so far; None before the first log line."""
    ends = [table["seconds"][-1] for table in (run.log, run.validation) if "seconds" in table]
    return float(max(ends)) if ends else None


def _model(run: Run) -> str:
    backbone, pool = run.option("backbone"), run.option("pool")
    parts = [str(backbone)] if backbone else []
    if pool:
        options = run.option("gsp") if "gsp" in str(pool) else None
        given = options if isinstance(options, Mapping) else {}
        symbols = {"prototypes": "m", "mu": "μ", "eps": "ε"}
        values = {it: given[name] for name, it in symbols.items() if given.get(name) is not None}
        inside = ", ".join(f"{it} = {_short(value)}" for it, value in values.items())
        parts.append(f"{str(pool).upper()} pooling" + (f" ({inside})" if inside else ""))
    loss, weight = run.option("loss"), run.option("zero_shot.weight")
    recipe = run.option("recipe")
    if recipe:
        parts.insert(0, f"recipe {recipe}")
    if loss:
        mixed = f" + {_short(weight)} × zero-shot loss" if weight else ""
        parts.append(f"loss {str(loss).upper()}{mixed}")
    return ", ".join(parts)


def _data(run: Run) -> str:
    data = run.option("data")
    name = run.facts.get("data_set") or (PurePath(str(data)).name if data else None)
    classes, images = run.facts.get("classes"), run.facts.get("images")
    counts = [
        f"{parts['train']:,} {what}"
        for what, parts in (("images", images), ("classes", classes))
        if isinstance(parts, Mapping) and isinstance(parts.get("train"), int)
    ]
    if not name and not counts:
        return ""
    of = " of ".join(counts)
    broken = run.facts.get("broken_images")
    if broken:
        of += f"{'; ' if of else ''}{broken} unreadable left out of all images"
    return f"trained on {name or 'data'}" + (f" ({of})" if of else "")


def _effort(run: Run) -> str:
    steps = run.facts.get("steps")
    if steps is None and "step" in run.log:
        steps = int(run.log["step"][-1])
    parts = [] if steps is None else [counted(steps, "step")]
    if run.best_step is not None:
        parts.append(f"best at {run.best_step:,}")
    parts += [f"{name} {run.facts[name]}" for name in ("seed", "device") if name in run.facts]
    seconds = seconds_of(run)
    return ", ".join(parts + ([duration(seconds)] if seconds is not None else []))


def _both(scores: Mapping[str, float]) -> str:
    return " and ".join(f"{label} {_percent(scores.get(name))} %" for name, label in SCORES.items())


def _percent(value: float | None) -> str:
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{int(value):,}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
