"""What all modules share: how they are called, and how they describe themselves."""

import inspect
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import chain
from threading import local
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from graphact._checks import HALF_PRECISION, check_tensor
from graphact.graph import Graph
from graphact.graph.advice import how_to_build, kind_of
from graphact.graph.cache import BuildCache
from graphact.graph.eager import outside_compiled_code
from graphact.graph.edges import plain_edge_index
from graphact.graph.normalize import Normalization
from graphact.graph.protocol import GraphLike
from graphact.nn.originals import is_from_template, is_in_packages, replaced_in_class
from graphact.spec import Layer, Linear, Pointwise, UnsupportedModelError


class GraphModule(nn.Module):
    """A module called as ``module(x, graph)`` or, as in PyG, ``module(x, edge_index, edge_weight)``.

    A sparse tensor in the place of the edge_index is a shift operator (:meth:`Graph.from_sparse
    <graphact.Graph.from_sparse>`).

    A :class:`~graphact.Graph` is sorted and checked once, when it is built. From an edge_index a graph is built on the
    first call, and again when its numbers have changed; modules that are called with the same tensors share it. Its
    weights are normalised as the module's ``normalize`` says; a ``Graph`` or a sparse tensor is taken as it is. Changes
    of an edge_index that torch does not count, through ``edge_index.data`` or a NumPy array that shares its memory, go
    unnoticed: call :func:`clear_graph_cache` after them, or give a new tensor. The numbers of an edge_weight are
    compared in every call; on a CUDA device this waits for the work queued before, which a ``Graph`` spares.

    Several graphs side by side matter to activations that take means over a graph (``grelu``, ``digraf``). A
    :meth:`graphact.Graph.union` knows them; with an edge_index, networks and chains are told by ``batch``, the graph of
    each node, as in PyG: ``network(x, edge_index, edge_weight, batch)``.

    A subclass describes what its ``forward`` computes by overriding ``describe``. A class that overrides ``forward``
    alone has no description, and whatever interprets descriptions (files, fleets, guarantees, agents) refuses it.
    """

    normalize: Normalization | None = "symmetric"
    unshown: ClassVar[Mapping[str, Any]] = MappingProxyType({"normalize": "symmetric", "start": "zero"})
    """Settings that a repr leaves out where they are these."""
    _described_forward: ClassVar[Callable[..., Tensor] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "describe" in vars(cls):
            cls._described_forward = cls.forward

    def layers(self) -> tuple[Layer, ...]:
        """What this module computes: the frozen specifications of its layers, in order, holding its parameters.

        Raises:
            UnsupportedModelError: the description would not be true of the module as it is now, or there is none.
        """
        return describe(self)

    def describe(self) -> tuple[Layer, ...]:
        """The layers of an unchanged module of this class; called by :meth:`layers`."""
        raise UnsupportedModelError("", f"{type(self).__name__} does not describe what it computes")

    def reset_parameters(self) -> None:
        """Draw all parameters anew; a module without parameters has nothing to draw."""

    def config(self) -> dict[str, Any]:
        """The arguments that construct a module like this one, as JSON values."""
        raise TypeError(f"{type(self).__name__} has no configuration of its own")

    def extra_repr(self) -> str:
        config = {} if type(self).config is GraphModule.config else self.config()
        shown = {name: value for name, value in config.items() if self.unshown.get(name, ...) != value}
        return ", ".join(f"{name}={short(value)}" for name, value in shown.items() if not describes_parts(value))


def short(value: Any) -> str:
    """A setting in a repr; of a function or a class its name is enough."""
    return getattr(value, "__qualname__", None) or repr(value)


def describes_parts(value: Any) -> bool:
    """Whether a setting is a mapping for each part, which a repr shows anyway."""
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


TORCH_LAYERS: dict[type[nn.Module], Callable[[Any], tuple[Layer, ...]]] = {
    nn.Identity: lambda _: (),
    nn.Linear: lambda module: (Linear(module.weight, module.bias),),
    nn.ReLU: lambda _: (Pointwise("relu"),),
    nn.LeakyReLU: lambda module: (Pointwise(f"leaky_relu({float(module.negative_slope)!r})"),),
    nn.ELU: lambda module: (Pointwise(f"elu({float(module.alpha)!r})"),),
    nn.Tanh: lambda _: (Pointwise("tanh"),),
    nn.Sigmoid: lambda _: (Pointwise("sigmoid"),),
    nn.SiLU: lambda _: (Pointwise("silu"),),
    nn.GELU: lambda module: (Pointwise("gelu" if module.approximate == "none" else "gelu approximated by tanh"),),
}
BUILT: BuildCache[Graph] = BuildCache()


def clear_graph_cache() -> None:
    """Forget the graphs that modules built from an edge_index, so that the next call builds them anew.

    Only needed after changes of an edge_index, a batch or integer weights that torch does not count: through ``.data``,
    or through a NumPy array that shares their memory.

    Example:
        >>> import numpy, torch, graphact
        >>> edges = numpy.array([[1, 2], [0, 0]])  # node 0 hears 1 and 2
        >>> edge_index, x = torch.from_numpy(edges), torch.tensor([[0.0], [1.0], [5.0]])
        >>> hears = graphact.nn.LocalizedMax(start="uniform")
        >>> before = hears(x, edge_index)[0]
        >>> edges[:, 1] = edges[:, 0]  # the array that edge_index was made from
        >>> graphact.nn.clear_graph_cache()
        >>> torch.equal(hears(x, edge_index)[0], before)
        False
    """
    BUILT.clear()


def describe(
    module: nn.Module, part: str = "", known: dict[type[nn.Module], Callable[[Any], tuple[Layer, ...]]] = TORCH_LAYERS
) -> tuple[Layer, ...]:
    """The layers of a module of graphact or of a torch module that it may hold, under the name ``part``.

    Raise UnsupportedModelError if it is of another class, its ``forward`` was overridden, or it carries hooks.
    """
    try:
        check_unchanged(module, known)
        if isinstance(module, GraphModule):
            return module.describe()
        return known[original_class(module)](module)
    except UnsupportedModelError as error:
        raise (error.inside(part) if part else error) from None


def check_unchanged(module: nn.Module, known: Container[type[nn.Module]] = TORCH_LAYERS) -> None:
    """Raise if a call of the module does other things than its class describes."""
    kind = original_class(module)
    if isinstance(module, GraphModule):
        described = type(module)._described_forward
        if described is None or type(module).forward is not described:
            raise UnsupportedModelError("", f"{kind.__name__} does not describe the forward that it defines")
    elif kind not in known:
        reason = f"nothing is known about what a {kind.__name__} computes (a GraphModule may describe itself)"
        raise UnsupportedModelError("", reason)
    check_untouched(module)


def check_untouched(module: nn.Module) -> None:
    """Raise if methods of a module were replaced, hooks were added to it, or it waits for a first call to get its size.

    Whatever its class computes, a call of the module does other things then.
    """
    kind = original_class(module)
    if any(map(is_lazy, module.parameters(recurse=False))):
        reason = f"the size of this {kind.__name__} is not known before the model is called for the first time: call it"
        raise UnsupportedModelError("", reason)
    if replaced := next(chain(replaced_methods(module), replaced_in_class(kind)), None):
        reason = f"the {replaced} of this {kind.__name__} was replaced; override it in a subclass that describes itself"
        raise UnsupportedModelError("", reason)
    # PyG's convolutions have further ones, such as _message_forward_hooks
    hooks = (value for name, value in vars(module).items() if name.endswith(("ward_hooks", "ward_pre_hooks")))
    if any(hooks) or torch.nn.modules.module._has_any_global_hook():
        reason = f"this {kind.__name__} carries hooks, which may change what it computes: remove them first"
        raise UnsupportedModelError("", reason)


def replaced_methods(module: nn.Module) -> Iterator[str]:
    """Methods that something else stands in for, in this module alone; PyG compiles some of its own that way."""
    kind = type(module)
    caller = next(each for each in kind.__mro__ if "__call__" in vars(each))
    if not is_in_packages(caller.__module__):  # aggregations of PyG define their own
        yield "forward"
    for name, value in vars(module).items():
        if callable(getattr(kind, name, None)) and not is_compiled_by_pyg(module, name, value):
            yield name


def is_compiled_by_pyg(module: nn.Module, name: str, value: Any) -> bool:
    """Whether a method is one that PyG makes: the forward of its Sequential, the propagate of decomposed layers."""
    function, kind = getattr(value, "__func__", None), type(module)
    if function is None or value.__self__ is not module or not kind.__module__.startswith("torch_geometric."):
        return False
    if name == "forward":
        return is_from_template(function, f"{kind.__module__}_{kind.__name__}_")
    return name == "propagate" and function in (
        getattr(kind, "_orig_propagate", None),
        getattr(kind, "_jinja_propagate", None),
    )


def original_class(module: nn.Module) -> type[nn.Module]:
    """The class of a module before :mod:`torch.nn.utils.parametrize` put its own in the place."""
    from torch.nn.utils import parametrize

    kind = type(module)
    return kind.__mro__[1] if parametrize.is_parametrized(module) else kind


@outside_compiled_code("activations are called with x alone inside a PassGraph that is not compiled: compile that")
def current_backward_pass() -> int:
    """Return the number of the backward pass that this thread works on; -1 outside of one."""
    return torch._C._current_graph_task_id()


class ModelCall:
    """One forward pass of a :class:`~graphact.nn.PassGraph`, or its description: its graph, and how often it used each
    ``PerLayer``."""

    def __init__(self, graph: GraphLike, uses: Mapping[int, int] = MappingProxyType({})) -> None:
        self.graph = graph
        self.uses = dict(uses)
        self.is_over = False
        self.is_traced = torch.compiler.is_compiling()
        self.backward_pass = -1 if self.is_traced else current_backward_pass()

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function whose activations take the graph of this call, which is over then."""
        try:
            return self.run_part(function, *arguments, **options)
        finally:
            self.is_over = True

    def run_part(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function whose activations take the graph of this call."""
        if CURRENT.call is self:  # compiled code may not assign inside a checkpoint
            return function(*arguments, **options)
        around, CURRENT.call = CURRENT.call, self
        try:
            return function(*arguments, **options)
        finally:
            CURRENT.call = around

    def is_of_this_pass(self) -> bool:
        """Whether what runs now belongs to the same pass, and not to a backward pass that began during the call.

        What a backward pass computes again, as ``torch.utils.checkpoint`` does, may be a part of any earlier call.
        """
        if self.is_traced and torch.compiler.is_compiling():
            return True  # traced together with its activations
        return self.backward_pass == current_backward_pass()


class Current(local):
    """What runs now, in each thread apart; not a ContextVar, which torch.compile cannot trace."""

    call: ModelCall | None = None
    described: ModelCall | None = None  # on the edges that a model is described for


CURRENT = Current()
SEVERAL_WIDTHS = (
    "a model that calls one act on several widths, as GIN does inside its layers, takes one with features=None, or "
    "pointwise ones there: for conv in model.convs: conv.nn.act = torch.nn.ReLU()"
)


def current_call() -> ModelCall | None:
    """Return the call that this thread is in; None outside of one, and in a recomputation that is not bound to one."""
    call = CURRENT.call
    return call if call is not None and call.is_of_this_pass() else None


def remedy() -> str:
    """Return what to do about an activation that is called with x alone where no graph is known."""
    if current_backward_pass() >= 0:
        return (
            "this is computed again in a backward pass, which does not know the graph of the call: bind it in the "
            "forward pass, as in torch.utils.checkpoint.checkpoint(graphact.nn.bind_graph(function), ...)"
        )
    return (
        "call the activation as module(x, graph), or the model that calls it with x alone through "
        "graphact.nn.PassGraph(model)"
    )


def resolve_graph(
    x: Any,
    graph: GraphLike | Tensor | None,
    edge_weight: Tensor | None,
    normalize: Normalization | None = None,
    batch: Tensor | None = None,
) -> GraphLike:
    """The graph of a module call: as given, built from a sparse tensor, that of the model's call, or built from an edge
    list and normalised; with ``batch``, several graphs side by side."""
    if graph is None:
        call = current_call()
        if call is None:
            raise TypeError(f"graph must be a graphact.Graph or an edge_index tensor, got NoneType: {remedy()}")
        graph = call.graph
    if not isinstance(graph, Tensor) and hasattr(graph, "one_hop"):
        if edge_weight is not None:
            raise TypeError("edge_weight goes with an edge_index; a Graph holds its own weights")
        return with_batch(graph, batch)
    if isinstance(x, (tuple, list)):
        raise TypeError(
            f"x must be one tensor on the nodes of one graph, got {len(x)} of them: the edges of a bipartite pair "
            "(source, target) lead from one set of nodes to another and are no shift operator"
        )
    if isinstance(graph, Tensor) and graph.layout == torch.strided:
        return _build_graph(check_tensor("x", x), graph, edge_weight, normalize, batch)
    if not isinstance(graph, Tensor) and not hasattr(graph, "sparse_sizes"):
        advice = how_to_build(graph)
        raise TypeError(f"graph must be a graphact.Graph or an edge_index tensor, got {kind_of(graph)}{advice}")
    if edge_weight is not None:
        raise TypeError("edge_weight goes with an edge_index; a sparse tensor holds its own weights")
    return with_batch(_graph_of_sparse(graph), batch)


def with_batch(graph: GraphLike, batch: Tensor | None) -> GraphLike:
    """A graph whose nodes belong to several; of one that is not held as a whole, nobody takes means."""
    return graph.with_batch(batch) if batch is not None and isinstance(graph, Graph) else graph


def takes_batch(module: nn.Module, *, with_any: bool = False) -> bool:
    """Whether a call of a module takes ``batch`` by name or, ``with_any``, keywords of any name."""
    original = getattr(module, "_orig_mod", module)  # of torch.compile
    try:
        parameters = inspect.signature(original.forward).parameters
    except (TypeError, ValueError):  # compiled code has none
        return False
    return "batch" in parameters or (with_any and any(p.kind is p.VAR_KEYWORD for p in parameters.values()))


def check_features(x: Tensor, name: str, features: int | None) -> Tensor:
    """Raise if a signal has not the features that a module was made for; None stands for any number."""
    if features is not None and isinstance(x, Tensor) and x.dim() >= 2 and x.size(-1) != features:
        several = "" if CURRENT.call is None else f"; {SEVERAL_WIDTHS}"
        raise ValueError(
            f"x must have the shape (..., N, F) with F = {features}, the {name} of this module, got "
            f"{tuple(x.shape)}{several}"
        )
    return x


@outside_compiled_code("an edge_index is sorted in every call: build a graphact.Graph once and compile with it")
def _build_graph(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    normalize: Normalization | None,
    batch: Tensor | None = None,
) -> Graph:
    if x.dim() < 2:
        raise ValueError(f"x must have the shape (..., N, F), got {tuple(x.shape)}")
    num_nodes, dtype = x.size(-2), None
    if edge_weight is None:
        dtype = torch.float32 if x.dtype in HALF_PRECISION or not x.is_floating_point() else x.dtype
    elif not edge_weight.is_floating_point():
        dtype = torch.get_default_dtype()  # which integers become

    def build() -> Graph:
        ones = torch.ones(edge_index.shape[-1:], dtype=dtype, device=edge_index.device)
        graph = Graph.from_edge_index(edge_index, ones if edge_weight is None else edge_weight, num_nodes)
        graph = graph if batch is None else graph.with_batch(batch)
        return graph if normalize is None else graph.normalize(normalize)

    return BUILT.get((plain_edge_index(edge_index)[0], edge_weight, batch), (num_nodes, dtype, normalize), build)


@outside_compiled_code("a sparse tensor is sorted in every call: build a graphact.Graph once and compile with it")
def _graph_of_sparse(matrix: Any) -> Graph:
    return Graph.from_sparse(matrix)
