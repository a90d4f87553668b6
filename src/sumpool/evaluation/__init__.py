"""Evaluation: embeddings of images, exact nearest neighbors, retrieval metrics."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: metrics of existing embeddings do not
# need torchvision, which takes seconds to import.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
