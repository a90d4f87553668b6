"""Average and generalized sum pooling on glyph collages."""

from sumpool.studies.shared.study import Study

STUDY = Study.in_folder(
    __name__,
    "train GAP and GSP on letters among digits: retrieval of letters never seen",
    "about 2 minutes on two cores",
)
