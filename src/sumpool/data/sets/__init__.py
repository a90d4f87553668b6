"""Readers of published data sets, image folders, CSV files and Parquet files."""
