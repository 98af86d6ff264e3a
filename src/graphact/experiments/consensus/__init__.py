"""Finite-time consensus."""
