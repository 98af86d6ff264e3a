"""The former name of :mod:`graphact.distributed`, kept for one release."""

import sys
import warnings

from graphact import distributed

warnings.warn(
    "graphact.scaleout is now graphact.distributed; the old name goes with version 0.4", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = distributed
