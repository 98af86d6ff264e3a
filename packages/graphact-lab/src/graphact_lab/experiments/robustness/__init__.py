"""Robustness: trained node classifiers on perturbed graphs."""
