"""Source localization."""
