"""Readers: published data sets, folders and CSV files."""
