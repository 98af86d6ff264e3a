"""Studies are scripts that import each other by name."""

import sys

from support.data import real_data  # noqa: F401
from support.places import ROOT

sys.path.insert(0, str(ROOT / "studies"))
