"""Hyperparameter search on validation classes, with stored, resumable trials and a report."""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use, so `sumpool --help` needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
