"""Flocking: a team steers itself with messages between neighbours; the only closed loop among the experiments."""
