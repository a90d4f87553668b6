from .cells import BenchCell as BenchCell
from .cells import method_label as method_label
from .datasets import DataSource as DataSource
from .datasets import find_data as find_data
from .execute import (
    CellEnd as CellEnd,
)
from .execute import (
    CellInterruptedError as CellInterruptedError,
)
from .execute import (
    run_cell as run_cell,
)
from .executors.local import LocalProcesses as LocalProcesses
from .grid import Grid as Grid
from .grid import GridError as GridError
from .grid import expand as expand
from .preflight import check_cells as check_cells
from .runner import Executor as Executor
from .runner import Summary as Summary
from .runner import run_bench as run_bench
from .scoring import Scored as Scored
from .scoring import score_store as score_store
from .status import bench_status as bench_status
from .store.rows import BenchRow as BenchRow
from .store.store import BenchFailure as BenchFailure
from .store.store import BenchStore as BenchStore
