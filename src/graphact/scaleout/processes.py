"""The processes of a run: joining and leaving them, failing together, and equal parameters on all of them."""

import atexit
import gc
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graphact._checks import check_positive

Result = TypeVar("Result")
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
ADVICE = (
    "torchrun shares its own store with the processes, and with gloo a restart after a failure then often hangs: "
    "start torchrun with the environment variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
)


class PartitionError(ValueError):
    """The parts of a graph cannot be used: a file is missing, damaged, or does not fit this run."""


def connect(device: str | torch.device = "cpu", *, timeout: float = 600.0) -> tuple[int, int]:
    """Join the processes that ``torchrun`` started: gloo between CPUs, NCCL between GPUs.

    Args:
        device: ``"cpu"``, or ``"cuda"`` for the GPU that goes with this process.
        timeout: seconds after which a process that waits for another gives up.

    Returns:
        The number of this process and how many there are. A process that nobody else started with is number 0 of 1.

    The process leaves by itself at its end; :func:`disconnect` does so earlier.
    """
    timeout = check_positive("timeout", timeout)
    if not dist.is_initialized() and "RANK" in os.environ:
        on_gpu = torch.device(device).type == "cuda"
        may_restart = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0
        if may_restart and not on_gpu and os.environ.get(AGENT_STORE) == "True":
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
        gc.collect()
        dist.destroy_process_group()
        gc.collect()


def size_and_rank(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """How many processes there are, and which one this is; without ``torch.distributed`` it is the only one."""
    if not (dist.is_available() and dist.is_initialized()):
        return 1, 0
    return dist.get_world_size(group), dist.get_rank(group)


def communication_device(group: dist.ProcessGroup | None) -> torch.device:
    """Where tensors must be to be sent."""
    on_gpu = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def all_gather(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """The value of each process, any object that pickle knows."""
    processes = size_and_rank(group)[0]
    values: list[Any] = [value] * processes
    if processes > 1:
        dist.all_gather_object(values, value, group=group)
    return values


def raise_on_all_ranks(work: Callable[[], Result], group: dist.ProcessGroup | None = None) -> Result:
    """Do the work on every process; if it fails on any of them, raise the same error on all.

    Without this, the processes that are fine would wait for the one that is not.

    Raises:
        PartitionError: the work failed on some process with a ValueError, TypeError or OSError; names it.
    """
    result, message = None, None
    try:
        result = work()
    except (ValueError, TypeError, OSError) as error:
        message = str(error)
    messages = all_gather(message, group)
    problems: dict[str, list[int]] = {}
    for rank, text in enumerate(messages):
        if text is not None:
            problems.setdefault(text, []).append(rank)
    if problems:
        raise PartitionError("; ".join(f"{text}{_found_by(ranks, len(messages))}" for text, ranks in problems.items()))
    return result  # type: ignore[return-value]


def _found_by(ranks: list[int], processes: int) -> str:
    """Which processes found a problem, unless all did."""
    if len(ranks) == processes:
        return ""
    return f" (found by process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))})"


def replicate(model: nn.Module, group: dist.ProcessGroup | None = None) -> nn.Module:
    """Give every process the parameters of the first one, and sum gradients over the processes from now on.

    The loss of each process is its share of one sum over all nodes, so gradients are summed, not averaged. They are
    added in the order of the processes, whatever the network does: a run that is repeated gives the same bits.

    Args:
        model: the module, called as ``model(x, graph)``; its class does not change anything.
        group: the processes; all of them when left out.

    Returns:
        The module to call in training. With a single process it is ``model`` itself.
    """
    if size_and_rank(group)[0] == 1:
        return model
    replicated = DistributedDataParallel(model, process_group=group)
    replicated.register_comm_hook(group, _sum_in_order)
    return replicated


def _sum_in_order(
    group: dist.ProcessGroup | None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Gather the gradients of all processes and add them in the order of the processes."""
    gradient = bucket.buffer()
    gathered = [torch.empty_like(gradient) for _ in range(dist.get_world_size(group))]
    work: Any = dist.all_gather(gathered, gradient, group=group, async_op=True)

    def add(_: torch.futures.Future[Any]) -> Tensor:
        total = gathered[0]
        for other in gathered[1:]:
            total = total + other
        return total

    return work.get_future().then(add)
