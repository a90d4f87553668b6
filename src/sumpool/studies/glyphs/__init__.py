"""Average and generalized sum pooling on glyph collages."""
