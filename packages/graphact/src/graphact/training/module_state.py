"""The state of a module: parameters, buffers, and everything else that its answers depend on.

Registered is what ``named_modules`` reaches. Hidden is the rest, such as a module that is kept in a tuple.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from graphact.nn.unchanged import original_class
from graphact.storage import digest

PLAIN = (bool, int, float, complex, str, bytes, set, frozenset, range, torch.device, torch.Size, torch.dtype)
State = dict[str, Tensor]


def trained_parameters(model: nn.Module) -> State:
    """Return the parameters that require gradients, by name; raise if there are none."""
    trained: State = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise ValueError(f"model must have parameters to train, got {type(model).__name__} with none")
    return trained


def untrained_tensors(model: nn.Module) -> State:
    """Return frozen parameters and buffers, by name."""
    frozen: State = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    return {**frozen, **dict(model.named_buffers())}


def state_of(model: nn.Module) -> State:
    """Return parameters and buffers, trained ones first, by name."""
    return {**trained_parameters(model), **untrained_tensors(model)}


def check_extra_state(model: nn.Module) -> None:
    """Raise if a module keeps a state of its own besides parameters and buffers: it would not go back with these."""
    for module in model.modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise ValueError(f"model must keep its state in buffers, got get_extra_state of {type(module).__name__}")


def shapes_of(model: nn.Module) -> dict[str, str]:
    """Describe each parameter and buffer by its shape, and by whether it is trained."""
    trained = trained_parameters(model)
    return {
        name: f"{'trained' if name in trained else 'untrained'} {tuple(tensor.shape)}"
        for name, tensor in state_of(model).items()
    }


def attributes(module: nn.Module) -> dict[str, Any]:
    """Return all that a call of a registered module depends on but the values of parameters and buffers, and its mode.

    Registered modules in it stand for themselves: they are hashed on their own.
    """
    found = hidden_attributes(module)
    del found["training"]
    for kind in ("_parameters", "_buffers"):
        found[kind] = [(name, tensor is None) for name, tensor in found[kind].items()]
    return found


def hidden_attributes(module: nn.Module) -> dict[str, Any]:
    """Return all that a call of a hidden module depends on."""
    return {name: value for name, value in vars(module).items() if "state_dict" not in name}


def components(value: Any) -> list[Any] | None:
    """Take a container, a bound method or an object apart; None if it cannot be, or stands for itself."""
    if isinstance(value, FunctionType | ModuleType | type):
        return None
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if type(value) in (dict, OrderedDict):
        return [item for pair in value.items() for item in pair]
    if type(value) in (list, tuple):
        return list(value)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return None
    if isinstance(reduced, str):
        return None
    return [list(part) if isinstance(part, Iterator) else part for part in reduced]


def fingerprint(model: nn.Module) -> str:
    """Return a SHA-256 over the classes and attributes of all modules, hidden ones and their values included.

    It is the same in another process. Values of registered parameters and buffers are left out, and so is what cannot
    be taken apart; of functions it covers names and what they enclose, not their code.
    """
    return Fingerprint(model).sha256.hexdigest()


class Fingerprint:
    """The hash of a model, attribute by attribute; what was met before is named by its number."""

    def __init__(self, model: nn.Module) -> None:
        named = chain(model.named_modules(), model.named_parameters(), model.named_buffers())
        self.names = {id(part): name for name, part in named}
        self.sha256, self.seen = hashlib.sha256(), dict[int, tuple[int, Any]]()
        for name, module in model.named_modules():
            self.add(name)
            self.add(original_class(module))
            self.add(attributes(module))

    def write(self, *words: Any) -> None:
        self.sha256.update((" ".join(map(str, words)) + "\n").encode())

    def add(self, value: Any) -> None:
        words, parts = self.describe(value)
        self.write(*words)
        for part in parts:
            self.add(part)

    def describe(self, value: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """Return words for a value, and the parts of it that are still to be hashed."""
        if id(value) in self.names:
            return ("registered", self.names[id(value)]), []
        if value is None or isinstance(value, PLAIN):
            return (repr(sorted(map(repr, value)) if isinstance(value, set | frozenset) else value),), []
        if id(value) in self.seen:
            return ("met before", self.seen[id(value)][0]), []
        self.seen[id(value)] = len(self.seen), value
        if isinstance(value, Tensor):
            return (digest_of_any(value),), []
        if isinstance(value, FunctionType):
            enclosed = [cell.cell_contents for cell in value.__closure__ or ()]
            return (value.__module__, value.__qualname__), enclosed
        if isinstance(value, type):
            return (value.__module__, value.__qualname__), []
        if isinstance(value, nn.Module):
            return ("hidden",), [original_class(value), hidden_attributes(value)]
        parts = components(value) or []
        return (type(value).__qualname__, len(parts)), parts


def digest_of_any(tensor: Tensor) -> str:
    """Return the digest of a tensor's type, shape and values, or its layout where these cannot be read."""
    try:
        return digest(tensor.detach().cpu().contiguous())
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # not yet initialized, or sparse
        return f"{type(tensor).__qualname__} {tensor.layout}"
