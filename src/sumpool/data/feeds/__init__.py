"""Batches of images on a device, decoded on demand or once."""
