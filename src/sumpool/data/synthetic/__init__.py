"""Generated and composite images: glyphs, collages, photographs with clutter."""
