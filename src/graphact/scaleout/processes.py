"""Joining the other processes of a run."""

import atexit
import gc
import os
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

from graphact._checks import check_positive
from graphact.scaleout.agreement import size_and_rank

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
ADVICE = (
    "torchrun shares its own store with the processes, and with gloo a restart after a failure then often hangs: "
    "start torchrun with the environment variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
)


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
