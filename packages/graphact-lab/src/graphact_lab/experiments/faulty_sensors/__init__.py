"""Faulty sensors: estimates at weather stations, some with outliers, drift or a stuck value."""
