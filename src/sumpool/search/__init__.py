"""Search in an index of images, by image, image region or prototype, with explained matches."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: `sumpool --help` needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
