"""Where the cells of a grid run: local processes or a Ray cluster."""
