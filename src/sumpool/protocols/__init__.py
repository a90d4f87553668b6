"""Protocols: which runs make a result, how each is configured, and what they add up to.

:data:`PROTOCOLS` holds them as data. :meth:`Protocol.members` lists the runs,
:meth:`Protocol.configure` makes the configuration of one, :func:`aggregate` turns their results
into scores. The page docs/protocols.md has the formulas.
"""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use: listing protocols needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
