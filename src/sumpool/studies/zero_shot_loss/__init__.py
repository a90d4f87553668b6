"""Variants of the zero-shot loss."""
