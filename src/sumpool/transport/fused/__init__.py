"""Fused CUDA kernels of generalized sum pooling, written in Triton."""
