"""Network inputs from images: boxes, crops and preprocessing."""
