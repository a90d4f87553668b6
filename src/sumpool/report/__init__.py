"""Tables, figures and pages, drawn from stored results alone."""

from sumpool.report.store import ResultStore, Row, StoreError, read_arrays, read_rows
from sumpool.report.tables import Table, mean_and_spread

__all__ = [
    "ResultStore",
    "Row",
    "StoreError",
    "Table",
    "mean_and_spread",
    "read_arrays",
    "read_rows",
]
