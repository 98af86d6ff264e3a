"""Parameters that are drawn at random, and drawn anew on demand."""

import math

import torch
from torch import Tensor, nn

from graphact.nn.activation import STARTS
from graphact.nn.base import GraphModule


class DrawnModule(GraphModule):
    """A module that knows how each of its parameters starts."""

    drawn: dict[str, tuple[str, float]] = {}  # noqa: RUF012, each module has its own; a start, and the terms of a sum

    def draw(self, name: str, terms: float, *shape: int, start: str = "uniform") -> None:
        """Register a parameter that starts uniform within one over the root of the terms in its sum, or nearer to 0."""
        self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.drawn = {**self.drawn, name: (start, terms)}

    def reset_parameters(self) -> None:
        for name, (start, terms) in self.drawn.items():
            draw_uniform(getattr(self, name), STARTS[start] / math.sqrt(terms))


def draw_uniform(parameter: Tensor, bound: float) -> None:
    """Fill a parameter; without a bound nothing is drawn."""
    if bound == 0:
        nn.init.zeros_(parameter)
    else:
        nn.init.uniform_(parameter, -bound, bound)
