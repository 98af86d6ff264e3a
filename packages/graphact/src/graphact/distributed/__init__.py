"""One graph over many processes, on torch.distributed."""

from graphact.distributed.cost import HaloExchange, StepCost, exchanges_of, step_cost
from graphact.distributed.halo import Traffic
from graphact.distributed.partition import Part, assign_nodes, divide, read_manifest, write_partition
from graphact.distributed.partitioned import PartitionedGraph
from graphact.distributed.process_group import PartitionError, connect, disconnect, replicate
from graphact.distributed.training import DistributedSettings, train

__all__ = [
    "DistributedSettings",
    "HaloExchange",
    "Part",
    "PartitionError",
    "PartitionedGraph",
    "StepCost",
    "Traffic",
    "assign_nodes",
    "connect",
    "disconnect",
    "divide",
    "exchanges_of",
    "read_manifest",
    "replicate",
    "step_cost",
    "train",
    "write_partition",
]
