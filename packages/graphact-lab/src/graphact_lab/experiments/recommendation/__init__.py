"""Recommendation: what will a user think of a film, from the user's ratings of other films."""
