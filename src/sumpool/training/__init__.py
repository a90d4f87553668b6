"""Training of embedders, in a loop that can be interrupted and resumed."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: `sumpool train --help` needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
