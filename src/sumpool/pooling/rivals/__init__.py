"""Pooling methods from the literature, for comparison with generalized sum pooling."""
