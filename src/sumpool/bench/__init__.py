"""The benchmark: grids of runs under a protocol, run in parallel, stored row by row."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use, and torch with them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
