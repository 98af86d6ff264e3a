"""Graphs in PyG's data objects: attached by a transform, joined by its loaders, moved with the other attributes."""

import copy
import copyreg
import functools
from typing import Any

from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph import Graph
from graphact.graph.normalize import Normalization, check_normalize

try:
    from torch_geometric.data import Batch, Data, HeteroData
    from torch_geometric.data.storage import GlobalStorage
    from torch_geometric.transforms import BaseTransform
except ImportError as error:
    raise ImportError("AttachGraph and GraphData need PyG: pip install 'graphact[pyg]'") from error


class JoiningStorage(GlobalStorage):
    """The attributes of a batch: PyG collates what it does not know to a list, and a list of graphs is joined here."""

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, list) and value and isinstance(value[0], Graph):
            value = Graph.union(value)
        super().__setitem__(key, value)


class _ClassOfGraphData(type(Data)):  # type: ignore[misc]
    """The metaclass of classes that hold graphs, which lets pickle find them."""


class _HoldsGraphs(metaclass=_ClassOfGraphData):
    """Mixin that lets the batches of a class of data join graphs."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if issubclass(cls, Batch):  # PyG makes the class of batches, with its own methods first
            cls.get_example = _get_example

    def stores_as(self, data: Any) -> Any:
        """PyG calls this on a new, empty object before it fills in what it collates."""
        stored = super().stores_as(data)  # type: ignore[misc]
        if isinstance(self, Batch):
            object.__setattr__(stored._store, "__class__", JoiningStorage)
        return stored


class GraphData(_HoldsGraphs, Data):
    """PyG's ``Data`` whose batches join the graphs that it holds: ``batch.graph`` is one :class:`~graphact.Graph`.

    :class:`AttachGraph` makes it from a ``Data``. Attributes that are graphs move with ``data.to``, ``.cuda``,
    ``.pin_memory`` and ``.share_memory_``; ``batch.to_data_list()`` and ``batch[i]`` give every graph back.

    Example:
        >>> import torch, graphact
        >>> from torch_geometric.data import Batch
        >>> graph = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
        >>> data = graphact.pyg.GraphData(x=torch.ones(2, 3), graph=graph)
        >>> Batch.from_data_list([data, data, data]).graph
        Graph(num_nodes=6, num_edges=6, is_directed=False, dtype=torch.float32, device=cpu)
    """


class AttachGraph(BaseTransform):
    """A PyG transform that attaches the :class:`~graphact.Graph` of a ``Data`` as ``data.graph``.

    The graph is built once a sample, in the workers of a ``DataLoader`` if it has any; a batch joins the graphs of its
    samples without sorting anything. The result is a :class:`GraphData`, or, from your own class, a subclass
    of that class with the same abilities. Attach graphs last: later transforms that change edges or nodes do not change
    the graph.

    Args:
        normalize: normalization of the graph, see :meth:`graphact.Graph.normalize`; None keeps its weights.

    Weights are those of :meth:`graphact.Graph.from_pyg`, in the precision of ``data.x`` where that is float32 or
    float64.

    Example:
        >>> import graphact
        >>> from torch_geometric.datasets import FakeDataset
        >>> from torch_geometric.loader import DataLoader
        >>> dataset = FakeDataset(num_graphs=8, avg_num_nodes=20, transform=graphact.pyg.AttachGraph())
        >>> batch = next(iter(DataLoader(dataset, batch_size=4)))
        >>> batch.graph.num_nodes == batch.num_nodes
        True
    """

    def __init__(self, normalize: Normalization | None = "symmetric") -> None:
        self.normalize = check_normalize(normalize)

    def forward(self, data: Any) -> Any:
        """The data with its graph; PyG calls this with a shallow copy."""
        if isinstance(data, HeteroData):
            raise TypeError(
                "data must be a homogeneous Data, got HeteroData: several kinds of nodes have no single shift "
                "operator; build Graph.from_edge_index of each relation that connects nodes of one kind"
            )
        graph = Graph.from_pyg(data)
        x = data.get("x")
        if isinstance(x, Tensor) and x.is_floating_point() and x.dtype not in HALF_PRECISION:
            graph = graph.to(x.dtype)
        if not isinstance(data, (_HoldsGraphs, Batch)):
            kind: Any = type(data)
            object.__setattr__(data, "__class__", class_with_graphs(kind))
        data.graph = graph if self.normalize is None else graph.normalize(self.normalize)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(normalize={self.normalize!r})"


@functools.cache
def class_with_graphs(base: type) -> type:
    """A class of data like ``base`` whose batches join graphs."""
    return GraphData if base is Data else _ClassOfGraphData(f"Graph{base.__name__}", (_HoldsGraphs, base), {})


def _pickle_class(cls: type) -> Any:
    """Classes made for a class of the user are made again where they are unpickled."""
    made = cls.__bases__[0] is _HoldsGraphs and cls is not GraphData
    return (class_with_graphs, (cls.__bases__[1],)) if made else cls.__qualname__


def _get_example(batch: Any, index: int) -> Any:
    """One sample of a batch, with its part of each joined graph."""
    rest = copy.copy(batch)
    graphs = {key: value for key, value in batch._store.items() if isinstance(value, Graph)}
    for key in graphs:
        del rest[key]
    data = Batch.get_example(rest, index)
    start, stop = (int(bound) for bound in batch.ptr[index : index + 2])
    for key, graph in graphs.items():
        data[key] = part_of(graph, start, stop)
    return data


def part_of(graph: Graph, start: int, stop: int) -> Graph:
    """The graph of the nodes from ``start`` to ``stop - 1``, which have no edges to others."""
    edge_index, edge_weight = graph.to_edge_index()
    inside = (edge_index[1] >= start) & (edge_index[1] < stop)
    part = Graph.from_edge_index(edge_index[:, inside] - start, edge_weight[inside], stop - start)
    if graph.batch is None or (graph.batch[start:stop] == graph.batch[start]).all():
        return part
    return part.with_batch(graph.batch[start:stop] - graph.batch[start:stop].min())  # itself a union


copyreg.pickle(_ClassOfGraphData, _pickle_class)
