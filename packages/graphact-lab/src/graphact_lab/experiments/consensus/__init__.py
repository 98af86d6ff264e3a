"""Finite-time consensus: every node should answer the mean of all."""
