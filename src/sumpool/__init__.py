"""sumpool: deep metric learning with generalized sum pooling."""

import lazy_loader

__version__ = "0.2.0.dev0"

# Names are listed in __init__.pyi and imported on first use: `sumpool --help` and drawing stored
# results need no torch, which takes seconds to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
