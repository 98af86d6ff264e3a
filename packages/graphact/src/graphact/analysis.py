"""The former name of :mod:`graphact.guarantees`, kept for one release."""

import sys
import warnings

from graphact import guarantees

warnings.warn(
    "graphact.analysis is now graphact.guarantees; the old name goes with version 0.4", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = guarantees
