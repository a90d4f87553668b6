"""Where work that can be split runs: local processes or a Ray cluster."""
