"""Half-finished training on disk: parameters, state of Adam, best parameters so far. One safetensors file, atomic."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.files import write_atomically

if TYPE_CHECKING:
    from graphact.training.loop import Selection

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")


def write_checkpoint(
    path: Path, parameters: list[Tensor], optimizer: torch.optim.Optimizer, selection: "Selection", epoch: int
) -> None:
    """Write everything that the next epoch depends on."""
    from safetensors.torch import save

    tensors = {
        "epoch": torch.tensor(epoch),
        "selection.metric": selection.metric,
        "selection.epoch": selection.epoch,
    }
    for number, (parameter, best) in enumerate(zip(parameters, selection.parameters, strict=True)):
        tensors[f"{number}.value"] = parameter.detach()
        tensors[f"{number}.best"] = best
        for name in ADAM_STATE:
            tensors[f"{number}.{name}"] = torch.as_tensor(optimizer.state[parameter][name])
    write_atomically(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}))


def read_checkpoint(
    path: Path, parameters: list[Tensor], optimizer: torch.optim.Optimizer, selection: "Selection"
) -> int:
    """Restore what :func:`write_checkpoint` wrote; return the number of epochs done. A file that does not fit is 0."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
        _restore(tensors, parameters, optimizer, selection)
    except (SafetensorError, KeyError, RuntimeError):
        return 0
    return int(tensors["epoch"])


def _restore(
    tensors: dict[str, Tensor], parameters: list[Tensor], optimizer: torch.optim.Optimizer, selection: "Selection"
) -> None:
    expected = {f"{number}.{name}" for number in range(len(parameters)) for name in ("value", "best", *ADAM_STATE)}
    missing = (expected | {"epoch", "selection.metric", "selection.epoch"}) - tensors.keys()
    if missing or any(
        tensors[f"{number}.value"].shape != parameter.shape for number, parameter in enumerate(parameters)
    ):
        raise KeyError("the checkpoint belongs to another run")
    for number, (parameter, best) in enumerate(zip(parameters, selection.parameters, strict=True)):
        with torch.no_grad():
            parameter.copy_(tensors[f"{number}.value"])
            best.copy_(tensors[f"{number}.best"])
        on_device = parameter.is_cuda
        optimizer.state[parameter] = {
            name: tensors[f"{number}.{name}"].to(parameter.device if on_device or name != "step" else "cpu")
            for name in ADAM_STATE
        }
    selection.metric = tensors["selection.metric"].to(selection.metric.device)
    selection.epoch = tensors["selection.epoch"].to(selection.epoch.device)
