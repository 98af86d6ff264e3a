"""Studies are scripts that import each other by name."""

import sys
from pathlib import Path

from support.data import real_data  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
