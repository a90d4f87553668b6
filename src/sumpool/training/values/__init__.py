"""What options take: names and types as plain data, and what excludes what."""
