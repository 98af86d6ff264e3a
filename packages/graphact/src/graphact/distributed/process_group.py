"""The processes of a run: joining and leaving them, failing together, and equal parameters on all of them."""

import atexit
import functools
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graphact._checks import check_positive
from graphact.spec import UnsupportedModelError

Result = TypeVar("Result")
ADVICE = (
    "torchrun shares its own store with the processes, and with gloo a restart after a failure then often hangs: "
    "start torchrun with the environment variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
)
NETWORK_WORDS = ("gloo", "Connection", "NCCL", "Timed out", "timed out", "Broken pipe")
MIXES_NODES = (
    *(f"torch.nn.modules.{name}" for name in ("batchnorm", "instancenorm", "conv", "pooling", "rnn", "transformer")),
    *(f"torch_geometric.nn.{name}" for name in ("norm", "aggr", "pool")),
)
MIXING_CLASSES = (nn.GroupNorm, nn.LocalResponseNorm, nn.MultiheadAttention)
_gradient_groups: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()


class PartitionError(ValueError):
    """The parts of a graph cannot be used: a file is missing, damaged, or does not fit this run."""


def connect(device: str | torch.device = "cpu", *, timeout: float = 600.0) -> tuple[int, int]:
    """Join the processes that ``torchrun`` started: gloo between CPUs, NCCL between GPUs.

    Args:
        device: ``"cpu"``, or ``"cuda"`` for the GPU that goes with this process.
        timeout: seconds after which a process that waits for another gives up.

    Returns:
        The number of this process and how many there are. A process that was started alone is number 0 of 1.

    The process leaves by itself at its end; :func:`disconnect` does so earlier.
    """
    timeout = check_positive("timeout", timeout)
    if not dist.is_initialized() and "RANK" in os.environ:
        on_gpu = torch.device(device).type == "cuda"
        may_restart = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
        if may_restart and not on_gpu and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            warnings.warn(ADVICE, stacklevel=2)
        if on_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout))
        atexit.register(disconnect)
    processes, rank = size_and_rank(None)
    return rank, processes


def disconnect() -> None:
    """Leave the other processes, in order; does nothing where there are none.

    Replicated models refer to the network in circles. Collecting them first lets the threads of the network end before
    the interpreter does; a process that ends the other way round may abort.
    """
    if dist.is_initialized():
        _gradient_groups.clear()
        gc.collect()
        dist.destroy_process_group()
        gc.collect()


def size_and_rank(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """Return the number of processes and that of this one; without ``torch.distributed`` it is the only one."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1, 0
    return dist.get_world_size(group), dist.get_rank(group)


@contextmanager
def readable_network_errors(rank: int) -> Iterator[None]:
    """Raise a ConnectionError that says what it means where the network reports that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        if not is_network_error(error):
            raise
        raise ConnectionError(
            f"process {rank} lost contact with another process, which failed, was stopped, or waits for something "
            "else: its own output tells why"
        ) from error


def is_network_error(error: BaseException) -> bool:
    """Return whether an error may be due to other processes rather than to this one."""
    words = isinstance(error, RuntimeError) and any(word in str(error) for word in NETWORK_WORDS)
    return words or isinstance(error, dist.DistError | ConnectionError)


def all_gather(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """The value of each process, any object that pickle knows."""
    parts, rank = size_and_rank(group)
    values: list[Any] = [value] * parts
    if parts > 1:
        with readable_network_errors(rank):
            dist.all_gather_object(values, value, group=group)
    return values


def broadcast(value: Any, group: dist.ProcessGroup | None) -> Any:
    """The value of the first process, any object that pickle knows."""
    (parts, rank), values = size_and_rank(group), [value]
    if parts > 1:
        with readable_network_errors(rank):
            dist.broadcast_object_list(values, group=group, group_src=0)
    return values[0]


def raise_on_all_ranks(work: Callable[[], Result], group: dist.ProcessGroup | None) -> Result:
    """Do the work on every process; if it fails on any, raise a PartitionError that names these on all.

    Without this, the processes that are fine would wait for the one that is not.
    """
    result, message = None, None
    try:
        result = work()
    except (ValueError, TypeError, OSError) as error:
        message = str(error)
    messages = all_gather(message, group)
    problems = []
    for text in dict.fromkeys(message for message in messages if message is not None):
        ranks = [str(rank) for rank, message in enumerate(messages) if message == text]
        found_by = f" (found by process{'es' if len(ranks) > 1 else ''} {', '.join(ranks)})"
        problems.append(text if len(ranks) == len(messages) else text + found_by)
    if problems:
        raise PartitionError("; ".join(problems))
    return result  # type: ignore[return-value]


def replicate(model: nn.Module, group: dist.ProcessGroup | None = None) -> nn.Module:
    """Give every process the parameters of the first one, and sum gradients over the processes from now on.

    The loss of each process is its share of one sum over all nodes, so gradients are summed, not averaged. They are
    added in the order of the processes, whatever the network does: a run that is repeated gives the same bits.

    Args:
        model: the module, called as ``model(x, graph)``; its class does not change anything. The loss must depend on
            each of its parameters that is not frozen, on every process.
        group: the processes; all of them when left out.

    Returns:
        The module to call in training. With a single process it is ``model`` itself.

    Raises:
        UnsupportedModelError: a part of the model mixes nodes without the graph, as batch normalisation does.
    """
    check_mixes_no_nodes(model)
    if size_and_rank(group)[0] == 1:
        return model
    gradients = gradient_group(group)
    replicated = DistributedDataParallel(model, process_group=gradients)
    replicated.register_comm_hook(gradients, _sum_in_order)
    return replicated


def gradient_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The same processes once more, for gradients; made when it is first asked for.

    A network matches what processes send by its order alone. Where a pass has parameters, the process decides whether
    their gradient is ready before or after the values of the halo are sent back: one that holds no interior is ready
    earlier. In a group of their own, gradients cannot be taken for such values, nor wait for them.
    """
    parent = dist.group.WORLD if group is None else group
    assert parent is not None
    if parent not in _gradient_groups:
        timeout = None  # that of torch, half an hour, where a backend does not tell its own
        with suppress(RuntimeError, AttributeError):
            device = torch.device("cuda" if dist.get_backend(parent) == "nccl" else "cpu")
            timeout = parent._get_backend(device).options._timeout
        ranks = None if group is None else dist.get_process_group_ranks(parent)
        made = dist.new_group(ranks, timeout=timeout, use_local_synchronization=ranks is not None)
        _gradient_groups[parent] = made
    return _gradient_groups[parent]


def check_mixes_no_nodes(model: nn.Module) -> None:
    """Raise if a part of a model is known to mix nodes other than through the graph.

    Each process would mix the nodes that it holds, and the result would depend on how the graph was cut.
    """
    for name, part in model.named_modules():
        if mixes_nodes(part):
            reason = f"a {type(part).__name__} mixes nodes without the graph, and each process would mix its own alone"
            raise UnsupportedModelError(name, f"{reason}; normalise each node instead (torch.nn.LayerNorm(features))")


def mixes_nodes(part: nn.Module) -> bool:
    """Return whether a module is known to let the value at one node depend on others; its own class decides."""
    if isinstance(part, nn.LayerNorm | nn.RMSNorm):
        return len(part.normalized_shape) > 1
    if isinstance(part, nn.Softmax | nn.LogSoftmax | nn.Softmin):
        return part.dim != -1
    if isinstance(part, nn.modules.batchnorm._NormBase):  # in use, with the statistics that it has, it mixes nothing
        return part.training or part.running_mean is None
    if type(part).__module__.startswith("torch_geometric.nn.norm"):
        inner = getattr(part, "module", None)  # a batch norm of PyG holds one of torch
        return not (getattr(part, "mode", "") == "node" or (isinstance(inner, nn.Module) and not mixes_nodes(inner)))
    known = (base.__module__.startswith(MIXES_NODES) for base in type(part).__mro__)
    return isinstance(part, MIXING_CLASSES) or any(known)


def _sum_in_order(
    group: dist.ProcessGroup | None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Gather the gradients of all processes and add them in the order of the processes.

    The sum is done when this returns. A callback on the future would run, and be freed, on a thread of the network,
    and such a thread that asks for the interpreter while it ends takes the whole process down.
    """
    gradient = bucket.buffer()
    gathered = [torch.empty_like(gradient) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, gradient, group=group)
    on_gpu = gradient.device.type == "cuda"
    future: torch.futures.Future[Tensor] = torch.futures.Future(devices=[gradient.device] if on_gpu else None)
    future.set_result(functools.reduce(torch.add, gathered))
    return future
