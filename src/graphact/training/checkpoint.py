"""Half-finished training on disk: models, state of Adam, best models so far, in one file of :mod:`graphact.storage`.

A checkpoint belongs to the models, samples, seeds and settings it was made with; only the number of epochs may grow, as
long as the learning rate does not depend on it.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.storage import check_tensors, load_tensors, save_tensors
from graphact.training.settings import TrainingSettings

if TYPE_CHECKING:
    from graphact.training.loop import ModelBatch, Selection

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def origin_of(settings: TrainingSettings, identity: str) -> str:
    """What a checkpoint depends on."""
    return f"{identity} {replace(settings, epochs=1) if settings.schedule == 'constant' else settings}"


def write_checkpoint(
    path: Path,
    origin: str,
    batch: "ModelBatch",
    optimizer: torch.optim.Optimizer,
    selection: "Selection",
    epoch: int,
    seconds: float,
) -> None:
    """Write everything that the next epoch depends on, and the seconds spent so far."""
    tensors = {
        "epoch": torch.tensor(epoch),
        "seconds": torch.tensor(seconds, dtype=torch.float64),
        "selection.metric": selection.metric,
        "selection.epoch": selection.epoch,
    }
    values = [*batch.parameters, *batch.untrained()]
    for number, (value, best) in enumerate(zip(values, selection.state, strict=True)):
        tensors |= {f"{number}.value": value.detach(), f"{number}.best": best}
        moments = optimizer.state.get(value, {})  # a parameter that had no gradient yet has none
        tensors |= {f"{number}.{name}": torch.as_tensor(moment) for name, moment in moments.items()}
    on_cpu = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_tensors(path, on_cpu, {"kind": "checkpoint", "origin": origin})


def read_checkpoint(
    path: Path,
    origin: str,
    epochs: int,
    batch: "ModelBatch",
    optimizer: torch.optim.Optimizer,
    selection: "Selection",
) -> int:
    """Restore what :func:`write_checkpoint` wrote; return the number of epochs done, at most ``epochs``.

    A file that does not fit changes nothing, and 0 is returned.
    """
    try:
        header, tensors = load_tensors(path, "pt")
        check_tensors(path, header, tensors)
    except ValueError:
        return 0
    if header.get("origin") != origin or not fits(tensors, batch, selection) or tensors["epoch"] > epochs:
        return 0
    values = [*batch.parameters, *batch.untrained()]
    for number, (value, best) in enumerate(zip(values, selection.state, strict=True)):
        with torch.no_grad():
            value.copy_(tensors[f"{number}.value"])
            best.copy_(tensors[f"{number}.best"])
        if f"{number}.step" in tensors:
            optimizer.state[value] = {
                name: tensors[f"{number}.{name}"].to(value.device if value.is_cuda or name != "step" else "cpu")
                for name in MOMENTS
            }
    selection.metric = tensors["selection.metric"].to(selection.metric.device)
    selection.epoch = tensors["selection.epoch"].to(selection.epoch.device)
    selection.seconds_before = float(tensors["seconds"])
    return int(tensors["epoch"])


def fits(tensors: dict[str, Tensor], batch: "ModelBatch", selection: "Selection") -> bool:
    """Whether all tensors of a checkpoint are there, in the shapes and types of what they are to replace."""
    expected = {"epoch": torch.tensor(0), "seconds": torch.tensor(0.0, dtype=torch.float64)}
    expected |= {"selection.metric": selection.metric, "selection.epoch": selection.epoch}
    for number, value in enumerate([*batch.parameters, *batch.untrained()]):
        expected |= {f"{number}.value": value, f"{number}.best": value}
        if number < len(batch.parameters) and f"{number}.step" in tensors:
            expected |= {f"{number}.step": torch.tensor(0.0), f"{number}.exp_avg": value, f"{number}.exp_avg_sq": value}
    return tensors.keys() == expected.keys() and all(
        tensors[name].shape == tensor.shape and tensors[name].dtype == tensor.dtype for name, tensor in expected.items()
    )
