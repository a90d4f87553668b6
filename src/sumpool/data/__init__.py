"""Images with classes: data sets, class-disjoint splits, batches and views."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: most need torchvision or matplotlib.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
