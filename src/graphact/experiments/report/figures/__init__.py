"""Figures: what they show as plain data, and how matplotlib draws it."""
