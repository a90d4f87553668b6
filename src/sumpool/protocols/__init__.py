"""Protocols: which runs make up a result, how each is configured, and how they are scored.

:data:`PROTOCOLS` defines them as data. :meth:`Protocol.members` lists the runs,
:meth:`Protocol.configure` returns the configuration of one, and :func:`aggregate` turns their
results into scores. The formulas are in docs/protocols.md.
"""

import lazy_loader

# Names are listed in __init__.pyi and imported on first use, so listing protocols needs no torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
