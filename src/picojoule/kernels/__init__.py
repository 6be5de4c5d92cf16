"""Compiled loops: what Numba compiles, on the threads that PyTorch has, and the allocator's settings."""
