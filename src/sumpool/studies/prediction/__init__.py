"""Zero-shot prediction of class embeddings from attributes."""
