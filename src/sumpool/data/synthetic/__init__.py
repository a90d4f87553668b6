"""Images that are drawn or composed: glyphs, collages, photographs with clutter."""
