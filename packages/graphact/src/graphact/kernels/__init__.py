"""Passes over the neighbours: the reference, its Numba and Triton backends, and the operators around them."""
