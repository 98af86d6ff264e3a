"""One copy of the parameters on every process, kept equal by DistributedDataParallel."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from graphact.scaleout.agreement import size_and_rank


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
    replicated.register_comm_hook(group, sum_in_order)
    return replicated


def sum_in_order(
    group: dist.ProcessGroup | None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Collect the gradients of all processes and add them in the order of the processes."""
    gradient = bucket.buffer()
    processes = dist.get_world_size(group)
    collected = [torch.empty_like(gradient) for _ in range(processes)]
    work: Any = dist.all_gather(collected, gradient, group=group, async_op=True)

    def add(_: torch.futures.Future[Any]) -> Tensor:
        total = collected[0]
        for other in collected[1:]:
            total = total + other
        return total

    return work.get_future().then(add)
