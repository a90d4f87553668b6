"""Class centres and covers of point sets."""

from sumpool.transport.k_center import greedy_k_center

__all__ = ["greedy_k_center"]
