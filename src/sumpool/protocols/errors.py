"""The errors of a protocol."""


class ProtocolError(Exception):
    """Trainings do not make a result of a protocol; the message names the member or the folder."""


class MissingMemberError(ProtocolError):
    """A training that the protocol needs is not there; the message names each by fold and seed."""
