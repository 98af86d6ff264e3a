"""Names of activations by what tests may expect of them."""

from graphact import nn
from graphact.nn.neighborhood_activation import NeighborhoodActivation
from graphact.registry import COMPARED, POINTWISE

PAPER = tuple(COMPARED)

# beta * ReLU(x) + sum_k h_k f_k(x): features apart from each other, any number of them, and a start as the ReLU
FAMILY = tuple(
    name for name, kind in nn.ACTIVATIONS.items() if kind is nn.ReLU or issubclass(kind, NeighborhoodActivation)
)

# features apart from each other, and any number of them
ANY_WIDTH = (*FAMILY, *POINTWISE)

# of which agents know a program; the others read means over all nodes, or are there for comparison only
ON_AGENTS = (*ANY_WIDTH, "mixture-ga", "max-k")

# options of networks with adaptive banks, and with the unshifted term
ADAPTIVE = {
    "bank": {"bank": "adaptive", "ops": ["max", "median", "std", "kernel", "log-mean-exp"]},
    "residual": {"bank": "adaptive", "ops": ["max", "std"], "residual": True, "bias": True},
    "unshifted": {"activation": lambda features: nn.GraphAdaptiveMedian(features, hops=2, unshifted=True)},
}
