"""Poolings from the literature, which generalized sum pooling is compared with."""
