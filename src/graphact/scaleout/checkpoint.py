"""Half-finished training on disk: parameters, state of Adam, losses so far. One safetensors file, atomic."""

import hashlib
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from graphact.files import write_atomically
from graphact.scaleout.agreement import PartitionError

ADAM_STATE = ("step", "exp_avg", "exp_avg_sq")
DIGEST = "sha256"


def write_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
    """Write everything that the next epoch depends on; the file is complete or, if interrupted, the former one."""
    from safetensors.torch import save

    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for entry in ADAM_STATE:
            tensors[f"adam.{entry}.{name}"] = torch.as_tensor(optimizer.state[parameter][entry])
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save({**tensors, DIGEST: digest(tensors)}))


def restore_checkpoint(path: Path, content: bytes, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """Restore what :func:`write_checkpoint` wrote to ``path``; return the loss of each epoch done.

    Raises:
        PartitionError: the file is damaged or belongs to another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
    except SafetensorError as error:
        raise PartitionError(f"{path} is not a readable checkpoint, perhaps truncated: {error}") from error
    recorded = tensors.pop(DIGEST, None)
    if recorded is None or not torch.equal(recorded, digest(tensors)):
        raise PartitionError(f"{path} is no checkpoint, or has been altered: its SHA-256 differs from the one recorded")
    expected = {f"model.{name}": value.shape for name, value in model.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("model.")}
    if expected != found:
        raise PartitionError(f"{path} belongs to another model: its parameters have other names or shapes")
    model.load_state_dict({name.removeprefix("model."): tensors[name] for name in expected})
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            entry: tensors[f"adam.{entry}.{name}"].to("cpu" if entry == "step" else parameter.device)
            for entry in ADAM_STATE
        }
    losses: list[float] = tensors["losses"].tolist()
    return losses


def digest(tensors: dict[str, Tensor]) -> Tensor:
    """SHA-256 over names, types, shapes and bytes."""
    summary = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        summary.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        summary.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(summary.digest()), dtype=torch.uint8)
