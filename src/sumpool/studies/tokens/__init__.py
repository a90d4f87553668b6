"""Tokens learned through average and generalized sum pooling."""
