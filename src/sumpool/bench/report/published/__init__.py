"""The figures of the papers' tables as data, each with its source; README.md has what is doubtful.

One CSV file per table lies beside this module: 3.1 to 3.3 and 5.1 to 5.4 of [thesis]. Scores in
the files are percent, as printed; here they are shares of 1, as all scores of the package are.
"""

from sumpool.bench.report.published.figures import (
    PublishedGain,
    PublishedScore,
    PublishedSteps,
    beside,
    find,
    published_gain,
    published_scores,
    published_steps,
)

__all__ = [
    "PublishedGain",
    "PublishedScore",
    "PublishedSteps",
    "beside",
    "find",
    "published_gain",
    "published_scores",
    "published_steps",
]
