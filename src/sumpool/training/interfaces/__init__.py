"""Training behind the interfaces of other libraries."""
