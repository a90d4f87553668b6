"""Names of the files in the folder of a run."""

CONFIG, RUN = "config.yaml", "run.json"
LOG, VALIDATION, PROBLEMS = "log.csv", "validation.csv", "problems.csv"
MODEL, CHECKPOINTS = "model", "checkpoints"
EVALUATION, METRICS = "evaluation", "metrics.json"
#: The former name of the gallery, so that existing folders stay readable.
GALLERY = "exhibits"
REPORT = "report.html"
BOARD = "tensorboard"
#: Held by the training process; its presence marks a folder that was created for a run.
LOCK = ".lock"
#: Digests of the files of a finished run, in the format of ``sha256sum``.
DIGESTS = "SHA256SUMS"
#: Everything that a run writes, except the lock.
WRITTEN = (
    *(CONFIG, RUN, LOG, VALIDATION, PROBLEMS, MODEL, CHECKPOINTS, EVALUATION, GALLERY, REPORT),
    *(BOARD, DIGESTS),
)
