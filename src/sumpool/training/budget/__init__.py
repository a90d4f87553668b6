"""Time budget of a run: its limit, the time used, and estimates."""
