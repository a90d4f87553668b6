"""Search: an index of images on disk, queries by image, part or prototype, and why images match."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: `sumpool --help` needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
