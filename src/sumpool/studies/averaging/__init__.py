"""What average pooling does."""
