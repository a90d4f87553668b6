"""Web pages and a JSON API for an index of images, and a client."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: `sumpool --help` needs no Starlette.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
