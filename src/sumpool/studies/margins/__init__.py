"""The token study at several margins."""
