"""Names of activations by what tests may expect of them."""

from graphact import nn
from graphact.nn.activation import HopMixture
from graphact.registry import COMPARED

PAPER = tuple(COMPARED)

# beta * ReLU(x) + sum_k h_k f_k(x): features apart from each other, any number of them, and a start as the ReLU
FAMILY = tuple(name for name, kind in nn.ACTIVATIONS.items() if kind is nn.ReLU or issubclass(kind, HopMixture))

# of which agents know a program; the others read means over all nodes, or are there for comparison only
ON_AGENTS = (*FAMILY, "mixture-ga", "max-k")
