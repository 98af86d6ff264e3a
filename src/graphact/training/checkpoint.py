"""Half-finished training on disk: parameters, state of Adam, best parameters so far. One safetensors file, atomic.

A checkpoint belongs to the models, samples, seeds and settings it was made with; only the number of epochs may grow, as
long as the learning rate does not depend on it.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.files import write_atomically
from graphact.training.settings import TrainingSettings

if TYPE_CHECKING:
    from graphact.training.loop import Selection

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")


def write_checkpoint(
    path: Path,
    origin: str,
    parameters: list[Tensor],
    optimizer: torch.optim.Optimizer,
    selection: "Selection",
    epoch: int,
    seconds: float,
) -> None:
    """Write everything that the next epoch depends on, and the seconds spent so far."""
    from safetensors.torch import save

    tensors = {
        "epoch": torch.tensor(epoch),
        "seconds": torch.tensor(seconds, dtype=torch.float64),
        "selection.metric": selection.metric,
        "selection.epoch": selection.epoch,
    }
    for number, (parameter, best) in enumerate(zip(parameters, selection.parameters, strict=True)):
        tensors[f"{number}.value"] = parameter.detach()
        tensors[f"{number}.best"] = best
        for name in ADAM_STATE:
            tensors[f"{number}.{name}"] = torch.as_tensor(optimizer.state[parameter][name])
    on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(on_cpu, metadata={"origin": origin}))


def read_checkpoint(
    path: Path,
    origin: str,
    epochs: int,
    parameters: list[Tensor],
    optimizer: torch.optim.Optimizer,
    selection: "Selection",
) -> int:
    """Restore what :func:`write_checkpoint` wrote; return the number of epochs done, at most ``epochs``.

    A file that does not fit changes nothing, and 0 is returned.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("origin") != origin:
                return 0
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError:
        return 0
    if not fits(tensors, parameters, selection) or tensors["epoch"] > epochs:
        return 0
    _restore(tensors, parameters, optimizer, selection)
    return int(tensors["epoch"])


def origin_of(settings: TrainingSettings, identity: str) -> str:
    """What a checkpoint depends on."""
    return f"{identity} {replace(settings, epochs=1) if settings.schedule == 'constant' else settings}"


def fits(tensors: dict[str, Tensor], parameters: list[Tensor], selection: "Selection") -> bool:
    """Whether all tensors of a checkpoint are there, in the shapes and types of what they are to replace."""
    expected = {"epoch": torch.tensor(0), "seconds": torch.tensor(0.0, dtype=torch.float64)}
    expected |= {"selection.metric": selection.metric, "selection.epoch": selection.epoch}
    for number, parameter in enumerate(parameters):
        expected |= {f"{number}.{name}": parameter for name in ("value", "best", "exp_avg", "exp_avg_sq")}
        expected[f"{number}.step"] = torch.tensor(0.0)
    return tensors.keys() == expected.keys() and all(
        tensors[name].shape == tensor.shape and tensors[name].dtype == tensor.dtype for name, tensor in expected.items()
    )


def _restore(
    tensors: dict[str, Tensor], parameters: list[Tensor], optimizer: torch.optim.Optimizer, selection: "Selection"
) -> None:
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
    selection.seconds_before = float(tensors["seconds"])
