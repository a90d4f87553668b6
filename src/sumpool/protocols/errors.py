"""Errors about the runs of a protocol."""

from sumpool.system.errors import UserError


class ProtocolError(UserError):
    """Runs do not form a result of a protocol; the message names the member or the folder."""


class MissingMemberError(ProtocolError):
    """Runs that the protocol needs are missing; the message names each by fold and seed."""
