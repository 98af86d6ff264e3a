"""Activations inside models that call them with the signal alone, as the models of PyG do."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_integer
from graphact.graph import Graph
from graphact.graph.advice import how_to_build, kind_of
from graphact.graph.eager import outside_compiled_code
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.call import CURRENT, ModelCall, accepts_batch, current_call, remedy, resolve_graph, with_batch
from graphact.nn.description import Edges, describe_part, described_edges, package_of, register_kinds
from graphact.nn.module import GraphModule
from graphact.spec import Layer, OnGraph, UnsupportedModelError


class PassGraph(nn.Module):
    """A model whose activations of graphact are called with ``x`` alone and take the graph of the model's call.

    PyG's ready models (``GCN``, ``GraphSAGE``, ``GIN``, ``GAT``, ...) and whatever takes ``act=`` call it as
    ``act(x)``. Around such a model, this module builds the graph once a forward pass, from the ``edge_index`` and
    ``edge_weight`` that it passes on, and every activation inside that is called without a graph takes it. A ``Graph``
    that exists already (:class:`graphact.pyg.AttachGraph`) is given as ``graph=`` and used unchanged. The graph is
    known during the call only, to the thread that makes it; an activation outside raises. A part of the model that runs
    again later, as under ``torch.utils.checkpoint``, keeps the graph through :func:`bind_graph`. ``batch=`` tells the
    graphs of several side by side apart, for activations that take means over a graph, and goes on to a model that
    takes one.

    PyG's resolver does not know our names: instead of ``act="max-ga"`` give the module,
    ``act=graphact.nn.make_activation("max-ga", features=64)``. PyG's models use one ``act`` after every layer; for
    parameters of its own in each, give :class:`PerLayer`.

    Graphs of one kind of nodes only: bipartite inputs, ``to_hetero`` and trimmed layers are refused.

    Args:
        model: any module called as ``model(x, edge_index, ...)``.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`. A ``Graph``
            or a sparse tensor is used unchanged.

    Shapes:
        x: ``(N, F)``; edge_index: ``(2, E)``, or sparse ``(N, N)``; result: what the model gives.

    Example:
        >>> import torch, graphact
        >>> from torch_geometric.nn import GCN
        >>> act = graphact.nn.GraphAdaptiveMax(features=16)
        >>> model = graphact.pyg.PassGraph(GCN(3, 16, num_layers=3, out_channels=2, act=act))
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> model(torch.randn(3, 3), edge_index).shape
        torch.Size([3, 2])
    """

    def __init__(self, model: nn.Module, *, normalize: Normalization | None = "symmetric") -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        check_takes_edges(model)
        self.model = model
        self.normalize = check_normalize(normalize)
        self.passes_batch = accepts_batch(model, with_any=True)  # as models of PyG do, to norms over a graph

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        *arguments: Any,
        graph: GraphLike | None = None,
        batch: Tensor | None = None,
        **options: Any,
    ) -> Any:
        check_inputs(x, edge_index, options)
        if graph is None:
            graph = self.graph_of(x, edge_index, edge_weight, batch)
        elif not hasattr(graph, "one_hop"):
            raise TypeError(f"graph must be a graphact.Graph, got {kind_of(graph)}{how_to_build(graph)}")
        else:
            graph = with_batch(graph, batch)
        if batch is not None and self.passes_batch:
            options["batch"] = batch
        if arguments or edge_weight is not None:  # not every model takes one
            arguments = (edge_weight, *arguments)
        return ModelCall(graph).run(self.model, x, edge_index, *arguments, **options)

    @outside_compiled_code("an edge_index is sorted outside: give graph=, or build a graphact.Graph once")
    def graph_of(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> GraphLike:
        """Return the graph that a call with these arguments passes to the activations."""
        return resolve_graph(x, edge_index, edge_weight, self.normalize, batch)

    def reset_parameters(self) -> None:
        """Initialize the parameters of the model again, and those of its activations, which PyG's models omit."""
        reset(self.model)
        for module in self.model.modules():
            if isinstance(module, GraphModule):
                module.reset_parameters()

    def extra_repr(self) -> str:
        shown = f"normalize={self.normalize!r}"
        if "\n" in repr(self.model):  # which shows its parts
            return shown
        inside = dict.fromkeys(repr(part) for part in self.model.modules() if isinstance(part, GraphModule))
        return ", ".join([shown, *(f"activation={part}" for part in inside)])


class PerLayer(nn.Module):
    """An activation with parameters of its own in each layer of a model that calls one ``act`` after all of them.

    Within one forward pass of the surrounding :class:`PassGraph`, call i uses copy i. PyG's models call ``act``
    ``num_layers - 1`` times, and ``num_layers`` times with ``jk=...``; ``GIN`` also in the network inside each layer,
    which is left pointwise by ``conv.nn.act = torch.nn.ReLU()`` for each ``conv`` of its ``convs``.

    Args:
        activation: the first copy; the others are initialized again.
        layers: the number of copies.

    Example:
        >>> import torch, graphact
        >>> from torch_geometric.nn import GCN
        >>> act = graphact.pyg.PerLayer(graphact.nn.GraphAdaptiveMax(features=16), layers=2)
        >>> model = graphact.pyg.PassGraph(GCN(3, 16, num_layers=3, act=act))
        >>> len(act)
        2
        >>> model(torch.randn(3, 3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 16])
    """

    def __init__(self, activation: nn.Module, layers: int) -> None:
        super().__init__()
        others = [copy.deepcopy(activation) for _ in range(check_integer("layers", layers, minimum=1) - 1)]
        for other in others:
            reset(other)
        self.copies = nn.ModuleList([activation, *others])

    def __len__(self) -> int:
        return len(self.copies)

    def __getitem__(self, layer: int) -> nn.Module:
        return self.copies[layer]

    def reset_parameters(self) -> None:
        """Initialize the parameters of all copies again."""
        for activation in self.copies:
            reset(activation)

    def forward(self, x: Tensor) -> Tensor:
        call = current_call()
        if call is None:
            raise TypeError(f"PerLayer counts the layers of a call, and it is outside of one: {remedy()}")
        layer = call.count_use(self)
        if layer >= len(self.copies):
            raise ValueError(
                f"layers must be at least the number of calls in one forward pass, got {len(self.copies)}: PyG's "
                "models call act num_layers - 1 times, num_layers times with jk=..., and GIN also inside each "
                "layer, unless that has one of its own (for conv in model.convs: conv.nn.act = torch.nn.ReLU())"
            )
        return self.copies[layer](x)


def bind_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Bind a part of a model to the graph of the running :class:`PassGraph` call, so that it may run outside of it.

    ``torch.utils.checkpoint`` computes a part again in the backward pass, when the call is over and another may be
    running. Bound where it is used, the part finds the graph of its call and, in :class:`PerLayer`, the same copies.
    Both kinds of checkpoints work, and backward passes in other threads. Outside of a call the function is returned
    unchanged.

    Args:
        function: a module or function, called with the same arguments.

    Raises:
        TypeError: function is not callable.
        RuntimeError: on a call of what is returned, if another call of a model is running, or if it uses ``PerLayer``
            and runs for the second time in its call: bind it again for every use.

    Example:
        >>> import torch, graphact
        >>> from torch.utils.checkpoint import checkpoint
        >>> class Model(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.act = graphact.nn.GraphAdaptiveMax(features=4)
        ...
        ...     def forward(self, x, edge_index):
        ...         return checkpoint(graphact.pyg.bind_graph(self.act), x, use_reentrant=False)
        >>> model, x = graphact.pyg.PassGraph(Model()), torch.randn(3, 4, requires_grad=True)
        >>> model(x, torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).sum().backward()
        >>> x.grad.shape
        torch.Size([3, 4])
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {type(function).__name__}")
    call = current_call()
    if call is None:
        return function
    start = dict(call.uses)

    def bound(*arguments: Any, **options: Any) -> Any:
        if not call.is_over and call.is_of_this_pass():
            if call.uses != start:
                raise RuntimeError(
                    "function must be bound again for every use: a PerLayer was used since bind_graph(function), and a "
                    "recomputation could not tell which of its copies were meant"
                )
            return call.run_part(function, *arguments, **options)
        if current_call() is not None:
            raise RuntimeError(
                "function must be bound in the call that runs it, got one that was bound in an earlier call of "
                "PassGraph: call bind_graph(function) in the forward of the model, where the result is used"
            )
        return ModelCall(call.graph, start).run(function, *arguments, **options)

    return bound


def reset(module: nn.Module) -> None:
    """Initialize the parameters of a module again if it can."""
    reset = getattr(module, "reset_parameters", None)
    if callable(reset):
        reset()


def check_takes_edges(model: nn.Module) -> None:
    """Raise if a model takes only the signal."""
    try:
        signature = inspect.signature(getattr(model, "_orig_mod", model).forward)  # of torch.compile
    except (TypeError, ValueError):  # compiled code has none
        return
    try:
        signature.bind_partial("x", "edge_index")
    except TypeError:
        raise TypeError(
            f"model must be called as model(x, edge_index), got {type(model).__name__}, whose forward takes "
            f"{signature}; a chain of layers and activations is graphact.nn.Sequential(...), called with the graph"
        ) from None


def check_inputs(x: Any, edge_index: Any, options: dict[str, Any]) -> None:
    """Raise if a call is not on a single set of nodes."""
    if isinstance(x, torch.fx.Proxy):
        raise TypeError(
            "PassGraph cannot be traced by torch.fx, which to_hetero does: each kind of node would need a shift "
            "operator of its own; call the activations with a graph in a model of HeteroConv layers"
        )
    if isinstance(x, dict) or isinstance(edge_index, dict):
        raise TypeError(
            "x and edge_index must be tensors, got dictionaries: several kinds of nodes (HeteroData) have no single "
            "shift operator"
        )
    if hasattr(edge_index, "one_hop"):
        raise TypeError("edge_index must be what the model takes, got a Graph, which is given as graph=")
    if options.get("num_sampled_nodes_per_hop") is not None:
        raise ValueError(
            "num_sampled_nodes_per_hop must be left out: layers that are trimmed to fewer nodes are other graphs"
        )


def call_pass_graph(module: PassGraph, x: Tensor, graph: GraphLike, edges: Edges | None) -> Tensor:
    """Call a model with an edge_index and, where it takes one, an edge_weight."""
    options = {} if graph.whole is None else {"batch": graph.whole.batch}
    return call_with_edges(module, module.model, x, graph, edges, **options)


def call_with_edges(
    module: nn.Module, inner: nn.Module, x: Tensor, graph: GraphLike, edges: Edges | None, **options: Any
) -> Tensor:
    """Call a module with edges as ``inner``, the module itself or the model in a :class:`PassGraph`, takes them."""
    if edges is None:
        if not hasattr(graph, "to_edge_index"):
            raise UnsupportedModelError("", f"a {type(module).__name__} takes an edge_index, which a part lacks")
        edges = graph.to_edge_index()
    edge_index, edge_weight = edges
    return module(x, edge_index, *((edge_weight,) if is_called_with_weights(inner) else ()), **options)


def is_called_with_weights(model: nn.Module) -> bool:
    """Return whether a model of PyG takes an edge_weight after the edge_index."""
    if not any(kind.__module__.startswith("torch_geometric.") for kind in type(model).__mro__):
        return False
    from graphact.pyg.describe import accepts_weights

    return accepts_weights(model)


def describe_pass_graph(module: PassGraph) -> tuple[Layer, ...]:
    """Return convolutions on the edges as given, and activations on their normalised graph.

    Around a model of PyG that takes no edge_weight, the weights of that graph are 1.
    """
    graph = described_edges()
    layers = ModelCall(graph).describe(describe_part, module.model, "model")  # a call of its own counts PerLayer again
    if package_of(module.model) == "torch_geometric" and not is_called_with_weights(module.model):
        graph = with_unit_weights(graph)
    return (OnGraph((layers,), graph if module.normalize is None else graph.normalize(module.normalize)),)


def with_unit_weights(graph: Graph) -> Graph:
    """Return the graph with the weight 1 for each edge."""
    edge_index, weight = graph.to_edge_index()
    return Graph.from_edge_index(edge_index, torch.ones_like(weight), graph.num_nodes)


def describe_per_layer(module: PerLayer) -> tuple[Layer, ...]:
    """Return the layers of the copy that the next call would use."""
    if CURRENT.described is None:
        raise UnsupportedModelError("", "PerLayer counts the layers of a call, and there is no model around it")
    layer = CURRENT.described.count_use(module)
    if layer >= len(module):
        raise UnsupportedModelError("", f"it is called more often than it has layers, {len(module)}")
    return describe_part(module[layer], f"copies.{layer}")


register_kinds({PassGraph: describe_pass_graph}, call_pass_graph)
register_kinds({PerLayer: describe_per_layer})
