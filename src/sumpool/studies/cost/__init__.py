"""Time and memory of a pooling step."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "time and memory of a pooling step against iterations: autodiff, closed form, exact",
    "about half a minute",
)
