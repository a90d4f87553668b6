"""Benchmarks: grids of runs under a protocol, run in parallel and stored row by row."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use, since they need torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
