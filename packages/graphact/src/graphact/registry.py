"""The activations by the names that tables, files and commands use. Imports no torch until a module is asked for.

Others arrive through :func:`register`, or as an entry point ``graphact.activations`` of an installed package.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from graphact._checks import check_choice

ENTRY_POINTS = "graphact.activations"
PACKAGES = {"torch_geometric": "graphact.pyg.describe"}  # modules that register the classes of other packages
Table = dict[str, tuple[str, str]]
"""For each name the class of graphact.nn and a line for lists; there x are values at a node and h trained weights."""

_COMPARED: Table = {  # by the paper
    "relu": ("ReLU", "max(x, 0)"),
    "max-l": ("LocalizedMax", "localized maximum of Ruiz et al.: ReLU plus maxima over the k-hop neighbours"),
    "median-l": ("LocalizedMedian", "localized median: ReLU plus medians over the k-hop neighbours"),
    "max-ga": ("GraphAdaptiveMax", "graph-adaptive maximum: ReLU plus maxima over neighbours, after k shifts"),
    "median-ga": ("GraphAdaptiveMedian", "graph-adaptive median, likewise"),
    "kernel-ga": ("GraphAdaptiveKernel", "graph-adaptive Gaussian kernel of the differences to the neighbours"),
}
_POINTWISE: Table = {  # functions of each value on its own, for comparison with ReLU, whose units can die
    "identity": ("Identity", "x"),
    "leaky-relu": ("LeakyReLU", "max(x, 0) + 0.01 min(x, 0)"),
    "prelu": ("PReLU", "max(x, 0) + a min(x, 0) with trained a"),
    "elu": ("ELU", "x above 0, exp(x) - 1 below"),
    "gelu": ("GELU", "x times the normal distribution function of x"),
    "silu": ("SiLU", "x / (1 + exp(-x)), also called swish"),
    "tanh": ("Tanh", "hyperbolic tangent"),
    "abs": ("Abs", "|x|"),
    "maxout": ("Maxout", "the largest of a few lines with trained slopes and offsets"),
}
_FURTHER: Table = {  # other functions of a neighbourhood, and activations of other authors
    "mean-ga": ("GraphAdaptiveMean", "graph-adaptive mean: linear apart from ReLU, for comparison"),
    "soft-maximum-ga": ("GraphAdaptiveSoftMaximum", "graph-adaptive log-mean-exp, between mean and maximum"),
    "trimmed-mean-ga": ("GraphAdaptiveTrimmedMean", "graph-adaptive mean without the lowest and the highest values"),
    "weighted-mean-ga": ("GraphAdaptiveWeightedMean", "graph-adaptive mean, weighted by nearness to the own value"),
    "mixture-ga": ("GraphAdaptiveMixture", "graph-adaptive maximum, median, minimum and mean for the price of one"),
    "shiftless-max": ("ShiftlessMax", "ablation: the maximum as DiGRAF's comparison ran it: no shift, dense maps"),
    "shiftless-median": ("ShiftlessMedian", "ablation: the median, likewise"),
    "max-k": ("MaxK", "MaxK-GNN (ASPLOS 2024): the k largest features of each node"),
    "grelu": ("GReLU", "GReLU (WWW 2022): a piecewise linear function for each node and channel"),
    "digraf": ("DiGRAF", "DiGRAF (NeurIPS 2024): a diffeomorphism (CPAB) for each graph"),
}
COMPARED, POINTWISE, FURTHER = (
    {name: module for name, (module, _) in table.items()} for table in (_COMPARED, _POINTWISE, _FURTHER)
)
BUILT_IN = COMPARED | POINTWISE | FURTHER
CONVOLUTIONS = {  # classes of graphact.nn, and a line for each
    "GraphFilter": "a bank of polynomial graph filters of any order: sum_k S^k x H_k",
    "AdaptiveFilterBank": "shifts and functions of neighbourhoods, formed from the same exchanges",
    "EdgeNet": "edge-varying filters: coefficients for every edge of one graph (Isufi et al. 2021)",
}
_registered: dict[str, type[Any]] = {}
ModuleT = TypeVar("ModuleT", bound=type[Any])


def register(name: str) -> Callable[[ModuleT], ModuleT]:
    """Register a module as an activation, as a decorator of its class.

    ``GCNN(activation=name)``, files, fleets and agents then know it, and so do ``graphact-lab run`` and
    ``graphact list``, after ``--import MODULE``. The class accepts those of the keywords ``hops``, ``features``,
    ``closed``, ``normalize`` and ``start`` that it needs; see :class:`~graphact.nn.GraphAdaptive` for one that needs
    only its operation.

    Raises:
        ValueError: a class defined elsewhere has that name; one that is defined again replaces itself.

    Example:
        >>> import graphact
        >>> from graphact.spec.reductions import Operation
        >>> @graphact.nn.register("range-ga")
        ... class GraphAdaptiveRange(graphact.nn.GraphAdaptive):
        ...     operation = Operation("range", lambda neighbors, xp: xp.amax(neighbors, -2) - xp.amin(neighbors, -2))
        >>> graphact.nn.GCNN([1, 4], activation="range-ga").activations[0]
        GraphAdaptiveRange(hops=1, features=4, closed=False)
        >>> graphact.nn.unregister("range-ga")
    """

    def add(module: ModuleT) -> ModuleT:
        if name in BUILT_IN or home_of(_registered.get(name, module)) != home_of(module):
            raise ValueError(f"activation names must be unique, and {name!r} is taken")
        _registered[name] = module
        return module

    return add


def unregister(name: str) -> type[Any] | None:
    """Forget an activation that :func:`register` added; return its class, if there was one."""
    return _registered.pop(name, None)


def names() -> tuple[str, ...]:
    """Return the names of all activations: built in, registered, and of installed packages."""
    return tuple(dict.fromkeys([*BUILT_IN, *_registered, *_installed(tuple(sys.path))]))


@cache
def _installed(_: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in entry points of the packages on a path; cached, as it takes milliseconds."""
    from importlib.metadata import entry_points

    return tuple(entry.name for entry in entry_points(group=ENTRY_POINTS))


def find(name: str) -> type[Any]:
    """Return the class of an activation; raise if the name is unknown."""
    if name in _registered:
        return _registered[name]
    if name in BUILT_IN:
        return getattr(importlib.import_module("graphact.nn"), BUILT_IN[name])
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=name):
        return entry.load()
    raise ValueError(f"activation {check_choice('activation', name, names())!r} is listed, and no class has the name")


def line_of(name: str) -> str:
    """Return one line on an activation; for registered ones the first line of the docstring."""
    if name in _registered:
        return (_registered[name].__doc__ or "").strip().partition("\n")[0]
    return (_COMPARED | _POINTWISE | _FURTHER).get(name, ("", ""))[1]


class Activations(Mapping[str, type[Any]]):
    """A read-only view of the registry: the class of each name."""

    def __getitem__(self, name: str) -> type[Any]:
        try:
            return find(name)
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(names())

    def __len__(self) -> int:
        return len(names())


def home_of(function: Callable[..., Any]) -> tuple[str, str]:
    """Return module and qualified name of a function or class."""
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", type(function).__qualname__)
