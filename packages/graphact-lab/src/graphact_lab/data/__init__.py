"""Data sets of others: their files (download.py) and readers, one module each."""
