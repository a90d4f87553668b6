"""Published results as data, each with its source; README.md lists doubtful numbers.

Each of the tables 3.1 to 3.3 and 5.1 to 5.4 of [thesis] is a CSV file next to this module. Scores
in the files are in percent, as printed; here they are shares of 1, like all scores of the package.
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
