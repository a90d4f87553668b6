"""The results of a benchmark on disk."""
