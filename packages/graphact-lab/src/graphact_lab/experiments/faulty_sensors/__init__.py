"""Stations with outliers, drift or a stuck value, in a network that estimates what they should read."""
