"""Tables, figures and pages, drawn from stored results alone."""

from sumpool.report.exhibit_files import read_exhibits, write_exhibits
from sumpool.report.exhibits import Exhibits
from sumpool.report.run_files import Run, read_run
from sumpool.report.store import ResultStore, Row, StoreError, read_arrays, read_rows
from sumpool.report.tables import Table, mean_and_spread

__all__ = [
    "Exhibits",
    "ResultStore",
    "Row",
    "Run",
    "StoreError",
    "Table",
    "mean_and_spread",
    "read_arrays",
    "read_exhibits",
    "read_rows",
    "read_run",
    "write_exhibits",
]
