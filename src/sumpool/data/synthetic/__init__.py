"""Images that are drawn or composed: glyphs and collages."""
