"""Names that are imported when they are first used, so that what needs no torch does not load it."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(module: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose names are defined elsewhere.

    Args:
        module: ``__name__`` of the module.
        homes: for each module that defines some of them, their names.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return find
