"""Time and memory of a pooling step."""
