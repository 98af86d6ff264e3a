"""All tensors of a graph at once: to another device, into pinned or shared memory."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from torch import Tensor

Structure = TypeVar("Structure")
STAYS = {"sizes"}  # read on the CPU, wherever the graph is


def map_tensors(structure: Structure, function: Callable[[Tensor], Tensor]) -> Structure:
    """A graph like ``structure`` whose tensors are ``function(tensor)``; what was shared inside it stays shared."""
    mapped: Structure = _visit(structure, function, {})
    return mapped


def _visit(value: Any, function: Callable[[Tensor], Tensor], done: dict[int, Any]) -> Any:
    """A part of a graph, or what was made of it before; a closure would keep all of it until garbage is collected."""
    if isinstance(value, dict):
        return {key: _visit(part, function, done) for key, part in value.items()}
    if id(value) not in done and isinstance(value, Tensor):
        done[id(value)] = function(value)
    elif id(value) not in done and is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.init and field.name not in STAYS)
        done[id(value)] = replace(value, **{name: _visit(getattr(value, name), function, done) for name in names})
    return done.get(id(value), value)
