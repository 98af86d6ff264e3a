"""Output of benchmarks, a line at a time and unbuffered."""

import sys


def echo(line):
    """Write a line and do not keep it back."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
