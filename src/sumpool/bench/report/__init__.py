"""Tables, figures and pages of a benchmark."""
