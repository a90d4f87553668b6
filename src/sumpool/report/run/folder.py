"""The names of the files in the folder of a run."""

CONFIG, RUN = "config.yaml", "run.json"
LOG, VALIDATION, PROBLEMS = "log.csv", "validation.csv", "problems.csv"
MODEL, CHECKPOINTS = "model", "checkpoints"
EVALUATION, METRICS = "evaluation", "metrics.json"
#: Named after what the gallery was called first: folders on disk stay readable.
GALLERY = "exhibits"
REPORT = "report.html"
