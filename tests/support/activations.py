"""Names of activations by what tests may expect of them."""

from graphact import nn
from graphact.nn.activation import HopMixture

PAPER = ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga")

# beta * ReLU(x) + sum_k h_k f_k(x): features apart from each other, any number of them, and a start as the ReLU
FAMILY = tuple(name for name, kind in nn.ACTIVATIONS.items() if kind is nn.ReLU or issubclass(kind, HopMixture))
