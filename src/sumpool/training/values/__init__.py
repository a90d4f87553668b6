"""What options take: names and types, as plain data."""
