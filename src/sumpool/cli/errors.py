"""The errors whose message is all that a user needs."""

from __future__ import annotations


def expected_errors() -> tuple[type[Exception], ...]:
    """The errors that the command reports in one line, without a traceback."""
    # Imported here: they live beside code that needs torch, which `--help` does not.
    from sumpool.bench.executors.ray_nodes import ClusterError
    from sumpool.data import DataError
    from sumpool.models import ModelError
    from sumpool.protocols import ProtocolError
    from sumpool.system.files import StoreError
    from sumpool.training import ConfigError, RunError

    return (ClusterError, ConfigError, DataError, ModelError, ProtocolError, RunError, StoreError)
