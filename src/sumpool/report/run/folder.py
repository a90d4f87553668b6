"""The names of the files in the folder of a run."""

CONFIG, RUN = "config.yaml", "run.json"
LOG, VALIDATION, PROBLEMS = "log.csv", "validation.csv", "problems.csv"
MODEL, CHECKPOINTS = "model", "checkpoints"
EVALUATION, METRICS = "evaluation", "metrics.json"
#: Named after what the gallery was called first: folders on disk stay readable.
GALLERY = "exhibits"
REPORT = "report.html"
BOARD = "tensorboard"
#: Held by the process that trains; its presence says that the folder was made for a run.
LOCK = ".lock"
#: Digests of the files of a finished run, in the format of ``sha256sum``.
DIGESTS = "SHA256SUMS"
#: What a run writes.
WRITTEN = (
    *(CONFIG, RUN, LOG, VALIDATION, PROBLEMS, MODEL, CHECKPOINTS, EVALUATION, GALLERY, REPORT),
    *(BOARD, DIGESTS),
)
