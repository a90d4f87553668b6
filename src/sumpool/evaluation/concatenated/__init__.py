"""Retrieval with the concatenated embeddings of several models."""
