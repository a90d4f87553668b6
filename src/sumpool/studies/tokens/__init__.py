"""Tokens learned through average and generalized sum pooling, at one margin or several."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "learn 2-D tokens through average and sum pooling: MAP@R and hulls of the classes",
    "about 2 minutes on one core",
)
MARGINS = Study(
    "the token study at four margins of its loss: what the outcome depends on",
    "about 5 minutes on one core",
    experiment=f"{__name__}.margins",
    report=f"{__name__}.section",
)
