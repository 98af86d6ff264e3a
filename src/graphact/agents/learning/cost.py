r"""What a step of learning costs, exactly, without loss.

With M directed edges, L ordered pairs of neighbours (L = M on an undirected graph), P trained parameters, and the
rounds and message sizes of an inference (:mod:`graphact.agents.cost`): the gradient takes the rounds of all layers but
a first filter (whose exchanges the preparation saves) along the M edges, and those of all layers but the first against
them, in messages of the same size. Mixing then takes messages of :math:`56 + 8 P` bytes over the L pairs: one for
D-PSGD, two for push-pull, two and an acknowledgement of 64 bytes for gradient tracking.
"""

import numpy as np

from graphact.agents.cost import Cost
from graphact.agents.learning.exchanges import PIECE
from graphact.agents.learning.gradient import first_filter, num_trained
from graphact.agents.learning.settings import Learning
from graphact.agents.messages import datagram_bytes
from graphact.agents.model import Model

VECTORS = {"d-psgd": 1, "gradient-tracking": 2, "push-pull": 2}


def cost_of_step(
    model: Model,
    learning: Learning,
    num_edges: int,
    num_pairs: int,
    batch: int,
    *,
    slot: float = 0.18,
    features: int | None = None,
) -> Cost:
    """The cost of one step.

    Args:
        model: the model.
        learning: how nodes learn.
        num_edges: directed edges between different nodes, as :attr:`graphact.Graph.num_edges` counts them.
        num_pairs: ordered pairs of nodes with an edge in either direction.
        batch: samples in this step.
        slot: time for one round.
        features: features of the signal, where the model takes any number.
    """
    widths, first = model.widths(features), model.layers[0].exchanges
    travelling = widths[first:] * 2 if first_filter(model) else widths + widths[first:]
    exchanged = sum(datagram_bytes((batch, width), model.dtype) for width in travelling)
    size = num_trained(model)
    pieces = [min(PIECE, size - start) for start in range(0, size, PIECE)] * VECTORS[learning.algorithm]
    acknowledgements = int(learning.algorithm == "gradient-tracking")
    mixed = sum(datagram_bytes((piece,), float) for piece in pieces) + acknowledgements * datagram_bytes((1,), np.int64)
    mixing = len(pieces) + acknowledgements
    rounds = len(travelling) + mixing
    messages = num_edges * len(travelling) + num_pairs * mixing
    return Cost(rounds, messages, num_edges * exchanged + num_pairs * mixed, rounds * slot)
