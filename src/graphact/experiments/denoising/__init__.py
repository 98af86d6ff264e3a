"""Distributed regression: denoising of temperatures."""
