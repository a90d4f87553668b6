"""The time of a run: what it has, what it has used, and what it will take."""
