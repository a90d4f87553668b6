"""Studies of one or two factors: a list of levels and shared plots."""
