"""Average and generalized sum pooling on glyph collages."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "train GAP, GSP and GSP on keys on letters among digits: retrieval of letters never seen",
    "about 4 minutes on two cores",
)
