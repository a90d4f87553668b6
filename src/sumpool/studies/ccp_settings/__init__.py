"""Which settings chance-constrained proxies need."""
