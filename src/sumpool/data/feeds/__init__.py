"""Feeds: batches of images on a device, decoded on demand or once."""
