"""Executors of parallel work: local processes or a Ray cluster."""
