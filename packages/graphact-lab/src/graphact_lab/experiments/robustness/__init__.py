"""Robustness: node classification with perturbed edges and words."""
