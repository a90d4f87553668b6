"""The page of a run, and the page that compares several."""
