"""Code shared by several studies."""
