"""How benchmarks report: a line at a time, at once."""

import sys


def say(line):
    """Write a line and do not keep it back."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
