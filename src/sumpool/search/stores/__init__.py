"""Vector indexes: faiss in this process, and Milvus on others."""
