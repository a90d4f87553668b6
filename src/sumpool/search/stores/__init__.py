"""Vector indexes: faiss in this process, or Milvus."""
