"""Time and memory of a pooling step."""

from sumpool.studies.shared.study import Study

STUDY = Study(
    "time and memory of a pooling step against iterations: autodiff, closed form, exact",
    "about half a minute",
    experiment="sumpool.studies.cost.experiment",
    report="sumpool.studies.cost.section",
)
