"""Recommendation: ratings of films (MovieLens 100K). The paper's Table 2."""
