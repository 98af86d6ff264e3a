"""The description of a network: frozen specifications of its layers, in the order in which a signal passes them.

Modules describe themselves (``module.layers()``); files, fleets, guarantees and cost models interpret the description
and never look at classes or attributes of a module. Parameters are arrays, torch tensors or NumPy arrays
alike, and nothing here imports torch.

A description is true or refused: what is not known raises :class:`UnsupportedModelError`.
"""

from graphact.spec.kinds import (
    Activation,
    AdaptiveFilter,
    Convolution,
    Filter,
    HopMixture,
    LayerNorm,
    Linear,
    NamedLayer,
    Nested,
    OnGraph,
    Pointwise,
    Sum,
)
from graphact.spec.layer import Layer, UnsupportedModelError, map_arrays, structure
from graphact.spec.scaling_layers import InputScaling, OutputScaling
from graphact.spec.stored import is_registered, to_json

__all__ = [
    "Activation",
    "AdaptiveFilter",
    "Convolution",
    "Filter",
    "HopMixture",
    "InputScaling",
    "Layer",
    "LayerNorm",
    "Linear",
    "NamedLayer",
    "Nested",
    "OnGraph",
    "OutputScaling",
    "Pointwise",
    "Sum",
    "UnsupportedModelError",
    "is_registered",
    "map_arrays",
    "structure",
    "to_json",
]
