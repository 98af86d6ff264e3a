"""The state of a module: parameters and buffers, and what tells it from other modules."""

import hashlib
from types import FunctionType

import torch
from torch import Tensor, nn

from graphact.nn.unchanged import original_class

SCALARS = (bool, int, float, complex, str, bytes, range, torch.device, torch.dtype)
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


def fingerprint(model: nn.Module) -> str:
    """Return a SHA-256 over the classes and plain attributes of all modules, the same in another process.

    Values of parameters and buffers are left out; of functions it covers the names.
    """
    summary = hashlib.sha256()
    for name, module in model.named_modules():
        summary.update(f"{name}: {name_of(original_class(module))}\n".encode())
        for attribute, value in vars(module).items():
            if attribute != "training" and is_plain(value):
                summary.update(f"{attribute} {value!r}\n".encode())
            elif isinstance(value, FunctionType | type):
                summary.update(f"{attribute} {name_of(value)}\n".encode())
    return summary.hexdigest()


def is_plain(value: object) -> bool:
    """Return whether a value is made of numbers and words alone."""
    if isinstance(value, dict):
        return is_plain([*value, *value.values()])
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, SCALARS)


def name_of(value: FunctionType | type) -> str:
    """Return the module and the name of a class or function."""
    return f"{value.__module__}.{value.__qualname__}"
