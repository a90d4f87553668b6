"""Chance-constrained proxies in two dimensions."""
