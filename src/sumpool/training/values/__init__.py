"""Accepted values of options: names, types and limits as plain data, and exclusions."""
