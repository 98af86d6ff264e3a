"""Checkpoints: files that hold everything the next epoch of a training depends on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from graphact.storage import check_tensors, load_tensors, save_tensors
from graphact.training.loop import ModelBatch, Selection
from graphact.training.settings import TrainingSettings

KIND = "checkpoint"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors on any device and a header of JSON values; the file is complete or, if interrupted, the former."""
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_tensors(path, on_cpu, {"kind": KIND, **header})


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors of a file, all of them checked; a damaged file raises a ValueError."""
    header, tensors = load_tensors(path)
    check_tensors(path, header, tensors)
    return header, tensors


def moments_of(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what Adam remembers, by names of parameters; nothing of those that had no gradient yet."""
    return {
        f"{name}.{kind}": torch.as_tensor(value)
        for name, parameter in parameters.items()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def restore_moments(optimizer: Optimizer, parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Give Adam what :func:`moments_of` returned."""
    for name, parameter in parameters.items():
        if f"{name}.step" in tensors:
            place = {"step": parameter.device if parameter.is_cuda else "cpu"}
            optimizer.state[parameter] = {
                kind: tensors[f"{name}.{kind}"].to(place.get(kind, parameter.device), copy=True)
                for kind in ("step", "exp_avg", "exp_avg_sq")
            }


class FileCheckpoint:
    """The checkpoint of a fleet; a file that is damaged or belongs to another training is ignored.

    Args:
        path: the file.
        identity: tells these models, samples and seeds from others.
        settings: a checkpoint goes on to more epochs as long as the learning rate does not depend on their number.
        is_due: asked after each epoch whether to write now.
    """

    def __init__(self, path: Path, identity: str, settings: TrainingSettings, is_due: Callable[[], bool]) -> None:
        known = replace(settings, epochs=1) if settings.schedule == "constant" else settings
        self.path, self.origin, self.epochs, self._is_due = path, f"{identity} {known}", settings.epochs, is_due

    def is_due(self, epoch: int) -> bool:  # noqa: ARG002, the caller decides by time
        return self._is_due()

    def write(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection, epoch: int, seconds: float) -> None:
        spent = {"epoch": torch.tensor(epoch), "seconds": torch.tensor(seconds, dtype=torch.float64)}
        moments = moments_of(optimizer, numbered(batch))
        write_tensors(self.path, {**spent, **self.tensors(batch, selection), **moments}, {"origin": self.origin})

    @torch.no_grad()
    def read(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection) -> int:
        try:
            header, tensors = read_tensors(self.path)
        except (FileNotFoundError, ValueError):
            return 0
        restored, expected = self.tensors(batch, selection), set(tensors)
        for number, parameter in numbered(batch).items():
            if f"{number}.step" in tensors:
                restored |= {f"{number}.exp_avg": parameter, f"{number}.exp_avg_sq": parameter}
                expected.discard(f"{number}.step")
        fits = restored.keys() | {"epoch", "seconds"} == expected and all(
            tensors[name].shape == tensor.shape and tensors[name].dtype == tensor.dtype
            for name, tensor in restored.items()
        )
        if header.get("origin") != self.origin or not fits or int(tensors["epoch"]) > self.epochs:
            return 0
        for name, tensor in self.tensors(batch, selection).items():
            tensor.copy_(tensors[name])
        restore_moments(optimizer, numbered(batch), tensors)
        selection.seconds_before = tensors["seconds"].item()
        return int(tensors["epoch"])

    @staticmethod
    def tensors(batch: ModelBatch, selection: Selection) -> dict[str, Tensor]:
        """The state of models and selection, by the names in the file."""
        named = {"selection.metric": selection.metric, "selection.epoch": selection.epoch}
        for number, (value, best) in enumerate(zip(batch.state(), selection.state, strict=True)):
            named |= {f"{number}.value": value, f"{number}.best": best}
        return named


def numbered(batch: ModelBatch) -> dict[str, Tensor]:
    """The parameters of a batch, by their numbers."""
    return {str(number): parameter for number, parameter in enumerate(batch.parameters)}
