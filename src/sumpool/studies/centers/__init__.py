"""Regularizers of class centers."""
