"""Pooling weights on a small map."""
