"""Protocols: which trainings make a result, how each is configured, and what they add up to.

:data:`PROTOCOLS` holds them as data. :meth:`Protocol.members` lists the trainings,
:meth:`Protocol.configure` makes the configuration of one, :func:`aggregate` makes scores of what
they left. The page docs/protocols.md has the formulas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sumpool.protocols.catalogue import PROTOCOLS, get_protocol
from sumpool.protocols.errors import MissingMemberError, ProtocolError
from sumpool.protocols.protocol import Member, Protocol

if TYPE_CHECKING:
    from sumpool.protocols.combining import Combined, MemberScore, aggregate, combine
    from sumpool.protocols.gains import PairedGain, gains_between, paired_gain
    from sumpool.protocols.judged import JudgedMember, read_member

__all__ = [
    "PROTOCOLS",
    "Combined",
    "JudgedMember",
    "Member",
    "MemberScore",
    "MissingMemberError",
    "PairedGain",
    "Protocol",
    "ProtocolError",
    "aggregate",
    "combine",
    "gains_between",
    "get_protocol",
    "paired_gain",
    "read_member",
]

# Where the names are that need torch or numpy: listing protocols and members does without.
_HOMES = {
    "Combined": "combining",
    "JudgedMember": "judged",
    "MemberScore": "combining",
    "PairedGain": "gains",
    "aggregate": "combining",
    "combine": "combining",
    "gains_between": "gains",
    "paired_gain": "gains",
    "read_member": "judged",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
