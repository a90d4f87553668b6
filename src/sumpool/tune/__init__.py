"""A search over the options of a run: trials on validation classes, stored, resumed, on a page."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: `sumpool --help` needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
