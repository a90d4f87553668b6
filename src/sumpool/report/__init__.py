"""Tables, figures and pages, drawn from stored results alone."""

from sumpool.report.run.files import Run, read_run
from sumpool.report.run.gallery import Gallery
from sumpool.report.run.gallery_files import read_gallery, write_gallery
from sumpool.report.tables import Table, mean_and_spread
from sumpool.system.files import StoreError
from sumpool.system.rows import ResultStore, Row, read_arrays, read_rows

__all__ = [
    "Gallery",
    "ResultStore",
    "Row",
    "Run",
    "StoreError",
    "Table",
    "mean_and_spread",
    "read_arrays",
    "read_gallery",
    "read_rows",
    "read_run",
    "write_gallery",
]
