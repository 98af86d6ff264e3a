"""Flocking: a team that steers itself by messages between neighbours."""
