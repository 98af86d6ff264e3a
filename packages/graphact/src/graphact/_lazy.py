"""Imports at first use, so that modules that do without torch do not load it."""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from graphact._checks import did_you_mean


@dataclass(frozen=True)
class Imported:
    """A function by its place, ``package.module:function``, imported when it is called."""

    place: str

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return resolve_name(self.place)(*arguments, **options)


def lazy_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose names are defined elsewhere: ``homes`` has their names by module."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            meant = did_you_mean(name, home_of)
            raise AttributeError(f"module {module!r} has no attribute {name!r}{meant}", name=name)
        value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return find
