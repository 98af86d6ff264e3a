"""Operations of a user, for torch models and for agents."""

import numpy as np

from graphact.spec.reductions import OPERATIONS, Operation, register_operation
from graphact_agents import operations


def registering():
    """Registers operations with torch models and with agents, and forgets them."""
    before = dict(OPERATIONS), dict(operations.OPERATIONS)

    def register(name, function, in_numpy, **parameters):
        register_operation(Operation(name, function, parameters))
        operations.register_operation(name, in_numpy)

    yield register
    for table, content in zip((OPERATIONS, operations.OPERATIONS), before, strict=True):
        table.clear()
        table.update(content)


def soft_max(neighbors, xp, t):
    return t * xp.log(xp.mean(xp.exp(neighbors / t), -2))


def soft_max_in_numpy(own, neighbors, t):
    return t * np.log(np.exp(neighbors / t).mean(-2))
