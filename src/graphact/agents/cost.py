r"""What an inference costs, exactly: messages and bytes without loss, rounds and time with it.

With N nodes, M directed edges (an undirected link counts twice), the layers' filter orders :math:`K_l`, hops
:math:`H_l` and widths :math:`F_0, F_1, \ldots`:

.. math:: R = \sum_l (K_l + A_l) \qquad\text{with}\qquad
    A_l = H_l + 1 \text{ (graph-adaptive)}, \; 1 \text{ (localized)}, \; 0 \text{ (ReLU)}

rounds, hence :math:`R\,M` messages. A message that carries F features of B signals in numbers of s bytes has
:math:`52 + 4d + s\,B\,F` bytes, with d the number of dimensions of the array (1 for one signal, 2 for a batch); the
filter of layer l exchanges :math:`F_{l-1}` features, its activation :math:`F_l`.
"""

from dataclasses import dataclass

from graphact.agents.messages import datagram_bytes
from graphact.agents.model import Model


@dataclass(frozen=True)
class Cost:
    """The cost of one inference.

    Attributes:
        rounds: exchanges.
        messages: data messages of all nodes together, without loss.
        bytes: their bytes, as handed to the transport (lower layers add theirs, 28 for UDP over IPv4).
        longest: seconds after which the inference has ended at every node at the latest, whatever happens.
    """

    rounds: int
    messages: int
    bytes: int
    longest: float


def cost_of_inference(
    model: Model, num_edges: int, batch: tuple[int, ...] = (), *, slot: float = 0.18, features: int | None = None
) -> Cost:
    """The cost of one inference.

    Args:
        model: the model.
        num_edges: directed edges between different nodes, as :attr:`graphact.Graph.num_edges` counts them.
        batch: the batch shape of the signals; ``()`` for one signal.
        slot: time for one round.
        features: features of the signal, where the model takes any number.

    Example:
        >>> import graphact
        >>> from graphact.agents.cost import cost_of_inference
        >>> from graphact.agents.split import plain_model
        >>> model = graphact.nn.GCNN(features=[1, 8], order=2, activation="max-ga", hops=1).double()
        >>> cost_of_inference(plain_model(model), num_edges=4)  # 2 rounds of 1 feature, 2 rounds of 8
        Cost(rounds=4, messages=16, bytes=1472, longest=0.72)
    """
    widths = model.widths(features)
    sizes = [datagram_bytes((*batch, width), model.dtype) for width in widths]
    return Cost(len(widths), len(widths) * num_edges, num_edges * sum(sizes), len(widths) * slot)
