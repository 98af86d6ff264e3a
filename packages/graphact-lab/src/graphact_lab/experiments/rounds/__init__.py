"""Source localization at equal rounds: which network makes the most of a number of exchanges."""
