"""Training through the interfaces of other libraries."""
