"""What a network sees of an image: boxes, crops, preprocessing."""
