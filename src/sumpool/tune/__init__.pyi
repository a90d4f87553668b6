from .search import run_search as run_search
from .space import Dimension as Dimension
from .space import parse_space as parse_space
from .store import TuneStore as TuneStore
