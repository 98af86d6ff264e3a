"""The graph: one frozen, validated sparse shift operator."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from graphact._checks import (
    HALF_PRECISION,
    check_choice,
    check_generator,
    check_probability,
    converting_to,
)
from graphact.graph import build, convert, edges, generators, normalize, sensors, union
from graphact.graph.advice import how_to_build, kind_of
from graphact.graph.eager import BUILT_OUTSIDE, is_plain, may_have_derivative, outside_transforms
from graphact.graph.handles import new_key
from graphact.graph.neighborhoods import (
    Neighborhoods,
    hop_pattern,
    inverse_permutation,
    map_tensors,
)
from graphact.graph.normalize import Normalization
from graphact.graph.protocol import GraphLike, Pass, Walk

if TYPE_CHECKING:
    import networkx
    import scipy.sparse


class OtherName:
    """A name that other libraries use for one of our constructors; the error names the constructor.

    A metaclass would cover any name, but torch.compile does not construct objects of a class that has one.
    """

    def __init__(self, name: str, meant: str) -> None:
        self.name, self.meant, self.__doc__ = name, meant, None

    def __get__(self, graph: object, kind: type) -> Any:
        message = f"type object {kind.__name__!r} has no attribute {self.name!r}; did you mean {self.meant!r}?"
        raise AttributeError(message, name=self.name)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Graph:
    r"""A graph, given by its shift operator S.

    A shift computes :math:`[Sx]_i = \sum_j S_{ij} x_j`. The neighbourhood of node i is
    :math:`\mathcal{N}_i = \{j \ne i : (i, j) \text{ is an edge}\}`: its in-neighbours. A diagonal entry of S (a
    Laplacian has them, and so does a self-loop) takes part in the shift and is not a neighbour. An edge whose weight
    is zero is still an edge.

    All sorting, checking and transposing happens here, once. Use the constructors: :meth:`from_edge_index`,
    :meth:`from_dense`, :meth:`from_sparse`, :meth:`from_scipy`, :meth:`from_networkx`, :meth:`from_pyg`,
    :meth:`stochastic_block_model`, :meth:`nearest_neighbors`, :meth:`union`, :meth:`load`.

    Attributes:
        incoming: for every node, its in-neighbours.
        outgoing: for every node, its out-neighbours (the rows of the transpose of S).
        weight: ``(E,)``, the off-diagonal entries of S in the order of ``incoming``.
        outgoing_weight: the same entries in the order of ``outgoing``.
        diagonal: ``(N,)``, the diagonal of S, or None where it is zero.
        is_directed: whether S differs from its transpose.
        incoming_slot: ``(E,)``, for each edge in the order of ``outgoing`` its slot in its ``incoming`` list.
        batch: ``(N,)``, the graph to which each node belongs, where several stand side by side (:meth:`union`,
            :meth:`with_batch`), as in PyG; None for one graph. Means over a graph are taken over each of them.
        key: an empty tensor whose shape tells compiled code the number of the graph, see :mod:`graphact.graph.handles`.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> path
        Graph(num_nodes=3, num_edges=4, is_directed=False, dtype=torch.float32, device=cpu)
        >>> path.degree
        tensor([1, 2, 1])
    """

    incoming: Neighborhoods
    outgoing: Neighborhoods
    weight: Tensor
    outgoing_weight: Tensor
    diagonal: Tensor | None
    is_directed: bool
    incoming_slot: Tensor
    batch: Tensor | None
    _patterns: dict[tuple[int, bool, bool], Neighborhoods]

    if TYPE_CHECKING:

        @property
        def key(self) -> Tensor: ...

    def __init__(self, *parts: Any, **named: Any) -> None:
        """Set the attributes, all but the last two of which must be given; constructors compute them."""
        given = {"batch": None, "_patterns": {}, **dict(zip(self.__dataclass_fields__, parts, strict=False)), **named}
        if given.keys() != self.__dataclass_fields__.keys():
            advice = how_to_build(parts[:2] if len(parts) > 1 else parts[0] if parts else None)
            advice = advice or ": write graphact.Graph.from_edge_index(edge_index), .from_dense or another"
            kind = kind_of(parts[0] if parts else None)
            raise TypeError(f"Graph is built by its constructors, not from {kind}{advice}")
        for name, value in {**given, "key": self._new_key(given["incoming"], given["outgoing"])}.items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes but the hop patterns, which are computed again on first use."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "_patterns": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle, which ``torch.load(weights_only=True)`` reads; its indices are checked as others are."""
        if not build.is_consistent(state):
            raise ValueError("the pickle does not hold a graph: sizes or indices do not fit together")
        self.__dict__.update(state, key=self._new_key(state["incoming"], state["outgoing"]))

    def _new_key(self, incoming: Neighborhoods, outgoing: Neighborhoods) -> Tensor:
        """Return the key by which compiled code knows the graph."""
        return new_key(self, incoming.max_degree, incoming.fits_one_launch and outgoing.fits_one_launch)

    # Constructors

    @classmethod
    def from_edge_index(
        cls, edge_index: Any, edge_weight: Any = None, num_nodes: int | None = None, *, is_coalesced: bool = False
    ) -> "Graph":
        """Build a graph from PyG's edge list.

        Args:
            edge_index: integers of shape ``(2, E)``. Row 0 holds the source j, row 1 the target i: the edge j -> i
                with weight w is ``S[i, j] = w``, and j is a neighbour of i. Repeated edges are summed. An
                ``EdgeIndex`` of PyG gives the number of nodes, too.
            edge_weight: real, finite numbers of shape ``(E,)``; ones when left out. Gradients flow back to it.
            num_nodes: number of nodes; the largest index plus one when left out. On a GPU, finding it means waiting
                for the device once more.
            is_coalesced: whether edges are known to be sorted by source, then by target (as
                ``torch_geometric.utils.coalesce`` leaves them), without repetition, their indices below ``num_nodes``
                and their weights finite. Then nothing of this is checked: if it is not true, neither is the result.

        Raises:
            TypeError: edge_index does not hold integers, or edge_weight does not hold real numbers.
            ValueError: wrong shape, device or node index, weights that are not finite, or no node at all.
        """
        return cls(*build.from_edges(edges.as_edges(edge_index, edge_weight, num_nodes), is_coalesced))

    @classmethod
    @BUILT_OUTSIDE
    def from_dense(cls, matrix: Any) -> "Graph":
        """Build a graph from a dense shift operator of shape ``(N, N)``; entries that are not zero are edges."""
        return cls._from_entries(*convert.entries_of_dense(matrix))

    @classmethod
    @BUILT_OUTSIDE
    def from_sparse(cls, matrix: Any) -> "Graph":
        """Build a graph from a sparse torch tensor (COO, CSR, CSC, BSR or BSC), or a ``torch_sparse.SparseTensor``.

        The tensor is the shift operator: its entry ``[i, j]`` is the weight of the edge j -> i. That is PyG's ``adj_t``
        (row: target, column: source). Stored entries are edges, zeros too; repeated ones are summed.

        Example:
            >>> import torch, graphact
            >>> adj_t = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()  # the edge 1 -> 0
            >>> graphact.Graph.from_sparse(adj_t).to_edge_index()
            (tensor([[1],
                    [0]]), tensor([2.]))
        """
        return cls.from_edge_index(*convert.edges_of_sparse(matrix))

    @classmethod
    @BUILT_OUTSIDE
    def from_scipy(cls, matrix: "scipy.sparse.sparray | scipy.sparse.spmatrix") -> "Graph":
        """Build a graph from a SciPy sparse shift operator; stored entries are edges, as in `scipy.sparse.csgraph`."""
        return cls._from_entries(*convert.entries_of_scipy(matrix))

    @classmethod
    @BUILT_OUTSIDE
    def from_networkx(cls, graph: "networkx.Graph", weight: str = "weight") -> "Graph":
        """Build a graph from a NetworkX graph, nodes in its order.

        An edge u -> v of a directed graph becomes ``S[v, u]``; edges without the attribute ``weight`` weigh one.
        """
        edge_index, edge_weight, num_nodes = convert.edges_of_networkx(graph, weight)
        return cls.from_edge_index(edge_index, edge_weight, num_nodes)

    @classmethod
    @BUILT_OUTSIDE
    def from_pyg(cls, data: Any) -> "Graph":
        """Build a graph from a PyG ``Data`` or ``Batch`` with an ``edge_index`` or, without one, an ``adj_t``.

        Its edge_weight, or an edge_attr that holds one real number an edge, gives the weights; any other edge_attr
        (vectors, integer categories) is ignored and edges weigh one. The graphs of a ``Batch`` are told apart by its
        ``batch``.
        """
        edge_index, edge_weight, num_nodes = convert.edges_of_pyg(data)
        graph, batch = cls.from_edge_index(edge_index, edge_weight, num_nodes), getattr(data, "batch", None)
        return graph.with_batch(batch) if isinstance(batch, Tensor) and batch.shape == (num_nodes,) else graph

    @classmethod
    @BUILT_OUTSIDE
    def stochastic_block_model(
        cls, sizes: Sequence[int], p: float, q: float, *, generator: torch.Generator | None = None
    ) -> "Graph":
        """Draw an undirected, unweighted graph of communities.

        Args:
            sizes: number of nodes of each community; nodes are numbered community after community.
            p: probability of an edge between two nodes of one community.
            q: probability of an edge between nodes of two communities.
            generator: source of randomness, on the CPU.
        """
        edge_index, num_nodes = generators.stochastic_block_model(sizes, p, q, generator)
        return cls.from_edge_index(edge_index, num_nodes=num_nodes)

    @classmethod
    @BUILT_OUTSIDE
    def nearest_neighbors(cls, coordinates: Any, k: int, *, scale: float | None = None) -> "Graph":
        r"""Connect each point with its k nearest ones; weighted and symmetric.

        Two points at distance d are connected when either is among the k nearest of the other, with the weight
        :math:`\exp(-d^2 / (2 \cdot \text{scale}^2))`.

        Args:
            coordinates: points of shape ``(N, D)``, Euclidean.
            k: number of neighbours, from 1 to N - 1.
            scale: width of the Gaussian; the mean distance over all chosen pairs when left out.
        """
        return cls.from_edge_index(*generators.nearest_neighbors(coordinates, k, scale))

    @classmethod
    @BUILT_OUTSIDE
    def within_radius(cls, coordinates: Any, radius: float, *, scale: float | None = None) -> "Graph":
        r"""Connect the points that are at most a radius apart; weighted and symmetric.

        The weight at distance d is :math:`\exp(-d^2 / (2 \cdot \text{scale}^2))`.

        Args:
            coordinates: points of shape ``(N, D)``, Euclidean; :func:`graphact.graph.points_on_earth` makes them of
                degrees.
            radius: the largest distance of neighbours.
            scale: width of the Gaussian; half the radius when left out.
        """
        return cls.from_edge_index(*sensors.within_radius(coordinates, radius, scale))

    @classmethod
    @BUILT_OUTSIDE
    def from_correlations(cls, readings: Any, k: int) -> "Graph":
        """Connect each sensor with the k whose readings go together with its own most; weighted and symmetric.

        Two sensors are connected when either is among the k most correlated of the other, with Pearson's correlation,
        if it is positive, as the weight. Take the readings of the training part alone.

        Args:
            readings: ``(T, N)``, NaN where one is missing.
            k: number of neighbours, from 1 to N - 1.
        """
        return cls.from_edge_index(*sensors.correlated(readings, k))

    @classmethod
    @BUILT_OUTSIDE
    def from_named_edges(cls, path: str | os.PathLike[str], nodes: Sequence[Any], *, directed: bool = False) -> "Graph":
        """Read a CSV file of edges between named nodes, in rows ``source,target`` or ``source,target,weight``.

        Args:
            path: the file; its first row may hold names of columns.
            nodes: the names of all nodes in their order, such as the columns of a table of readings.
            directed: an edge leads from its source to its target alone.
        """
        return cls.from_edge_index(*sensors.read_named_edges(Path(path), nodes, directed))

    @classmethod
    @BUILT_OUTSIDE
    def union(cls, graphs: Iterable["Graph"]) -> "Graph":
        """Put graphs side by side, without edges between them, nodes in the given order.

        The lists are concatenated, not sorted again, and nothing waits for a device. The ``batch`` of the result holds
        the graph of each node, and so do its normalisations, copies and pickles. A list of its edges, or a file that
        :meth:`save` writes, does not.

        Example:
            >>> import graphact
            >>> pair = graphact.Graph.from_edge_index([[0, 1], [1, 0]])
            >>> graphact.Graph.union([pair, pair, pair]).batch
            tensor([0, 0, 1, 1, 2, 2])
        """
        if isinstance(graphs, Graph):
            raise TypeError("graphs must list graphact.Graph objects, got one Graph")
        graphs = list(graphs)
        if not graphs:
            raise ValueError("graphs must hold at least one graph, got none")
        first = graphs[0]
        for graph in graphs:
            if not isinstance(graph, Graph):
                raise TypeError(f"graphs must hold graphact.Graph objects, got {type(graph).__name__}")
            if graph.dtype != first.dtype or graph.device != first.device:
                raise ValueError(
                    f"graphs must agree in dtype and device, got {first.dtype} on {first.device} "
                    f"and {graph.dtype} on {graph.device}"
                )
        return cls(*union.join(graphs))

    @classmethod
    @BUILT_OUTSIDE
    def load(cls, path: str | os.PathLike[str]) -> "Graph":
        """Read a graph from a file: SciPy's ``.npz``, which holds S, or a list of edges.

        A list of edges (``.txt``, ``.csv``, ``.edges``) has a line ``source target [weight]`` for each directed edge,
        separated by spaces or commas; a line ``# nodes N`` gives the number of nodes where the last ones have no edge.
        Weights of a list take torch's default dtype, those of an ``.npz`` file keep their own.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the ending is unknown, or the file does not hold a graph; more than ten million nodes and
                a thousand for each edge are taken for a damaged number.
        """
        return cls._from_entries(*convert.read_entries(Path(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a file that :meth:`load` reads; the ending of its name gives the format.

        Weights in half precision are written in float32, which holds the same numbers.
        """
        convert.write_entries(Path(path), *self._entries(), self.num_nodes)

    @classmethod
    def _from_entries(cls, target: Tensor, source: Tensor, weight: Tensor, num_nodes: int) -> "Graph":
        """Build a graph from checked entries ``S[target, source] = weight``."""
        return cls(*build.from_entries(target, source, weight, num_nodes))

    # Facts

    @property
    def num_nodes(self) -> int:
        return self.incoming.order.numel()

    @property
    def num_edges(self) -> int:
        """The number of directed edges between two different nodes (an undirected edge counts twice)."""
        return self.weight.numel()

    @property
    def degree(self) -> Tensor:
        """The number of neighbours of each node, ``(N,)``."""
        return self.incoming.degree

    @property
    def device(self) -> torch.device:
        return self.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    def __repr__(self) -> str:
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, is_directed={self.is_directed}, "
            f"dtype={self.dtype}, device={self.device})"
        )

    # Passes over the neighbours: the protocol that graphact.functional is written for

    @property
    def whole(self) -> "Graph":
        """See :class:`GraphLike <graphact.graph.protocol.GraphLike>`."""
        return self

    def check_signal(self, x: Any) -> Tensor:
        """Return ``x`` if it is a signal on this graph: floating point, ``(..., N, F)``, its dtype and device."""
        return check_values(x, self)

    def one_hop(self, x: Tensor, pass_: Pass, *arguments: Any) -> tuple[Tensor, ...]:
        """See :meth:`GraphLike.one_hop <graphact.graph.protocol.GraphLike.one_hop>`."""
        return pass_(x, self, *arguments)

    def k_hop(
        self, x: Tensor, hops: int, closed: bool, term: Callable[[Tensor, Any], Tensor], walk: Walk | None = None
    ) -> Sequence[Tensor]:
        """See :meth:`GraphLike.k_hop <graphact.graph.protocol.GraphLike.k_hop>`."""
        if walk is not None:
            return walk(x, self, hops, closed)
        return [term(x, HopPattern(self, k, closed) if closed or k > 1 else self) for k in range(1, hops + 1)]

    def hop_pattern(self, hops: int, *, closed: bool = False, turned: bool = False) -> Neighborhoods:
        """The nodes that walks of exactly ``hops`` edges lead to, self-loops not counted as edges.

        With ``closed=True`` a walk may also rest, which gives all nodes within that many hops; with ``turned=True``
        the walks go against the edges. The lists are computed on first use and kept.
        """
        key = (hops, closed, turned)
        if key not in self._patterns:
            if torch.compiler.is_compiling():
                raise RuntimeError(
                    f"call graph.hop_pattern({hops}, closed={closed}, turned={turned}) once before torch.compile or "
                    "torch.export: the neighbours of several hops are found on first use, which cannot be compiled"
                )
            lists = self.outgoing if turned else self.incoming
            # lists that are kept serve training, too, for which tensors made in inference mode cannot be saved
            with torch.inference_mode(False), outside_transforms(lists.rowptr, lists.col) as (rowptr, col):
                self._patterns[key] = hop_pattern(rowptr, col, hops, closed)
        return self._patterns[key]

    # Transformations

    def normalize(self, kind: Normalization) -> "Graph":
        r"""Rescale the shift operator.

        - ``"spectral"``: S divided by its largest eigenvalue magnitude.
        - ``"symmetric"``: :math:`R^{-1/2} S C^{-1/2}` with the row and column sums R and C of \|S\|.
        - ``"gcn"``: :math:`D^{-1/2} (S + I) D^{-1/2}` with the row sums D of S + I: the operator of PyG's
          ``GCNConv``. A node that has a self-loop keeps it, every other one gets one of weight 1.
        - ``"random_walk"``: each row divided by its sum of magnitudes.
        - ``"laplacian"``: :math:`\mathrm{diag}(S \mathbf{1}) - S`.

        Nodes without edges keep their empty rows. Gradients with respect to edge weights flow through all of them,
        the eigenvalue taken as a constant.

        Raises:
            ValueError: unknown ``kind``, or ``"spectral"`` for a graph with edges whose eigenvalues are all zero, or
                whose largest one cannot be trusted, as weights differ too much.
        """
        check_choice("kind", kind, tuple(normalize.KINDS))
        # weights that need gradients are equal by chance, and row sums make even a symmetric S directed
        stays_symmetric = not (self.is_directed or may_have_derivative(self.weight) or kind == "random_walk")
        operator = self.incoming, self.weight, self.diagonal
        if kind == "symmetric":
            return self._with_weights(*normalize.symmetric(*operator, stays_symmetric), stays_symmetric)
        return self._with_weights(*normalize.KINDS[kind](*operator), stays_symmetric)

    @BUILT_OUTSIDE
    def permute(self, perm: Any) -> "Graph":
        """Renumber the nodes: node a of the result is node ``perm[a]`` of this graph."""
        perm = edges.as_integers("perm", perm).to(self.device)
        nodes = torch.arange(self.num_nodes, device=self.device)
        if perm.shape != nodes.shape or not torch.equal(perm.sort().values, nodes):
            raise ValueError(f"perm must hold each of 0 to {self.num_nodes - 1} once, got {perm.tolist()[:10]}")
        position = inverse_permutation(perm)
        target, source, weight = self._entries()
        moved = self._from_entries(position[target], position[source], weight, self.num_nodes)
        return moved.with_batch(None if self.batch is None else self.batch[perm])

    def with_batch(self, batch: Tensor | None) -> "Graph":
        """Mark the graph as several side by side: ``batch`` holds the number of the graph of each node, as in PyG.

        Numbers start at 0. They may leave some out, those of graphs without nodes, and nodes of a graph need not stand
        together. None takes all nodes for one graph.

        Raises:
            ValueError: not one whole number for each node, on the device of the graph, or a negative one (on a GPU,
                which would have to be waited for, negative numbers name graphs like others).
        """
        return self if batch is self.batch else replace(self, batch=check_batch(batch, self))

    @BUILT_OUTSIDE
    def drop_edges(self, p: float, *, generator: torch.Generator | None = None) -> "Graph":
        """Remove each link with probability ``p``, in both directions together; weights and diagonal are unchanged."""
        p = check_probability("p", p)
        check_generator(generator)
        target, source, weight = self._entries()
        names = torch.minimum(target, source) * self.num_nodes + torch.maximum(target, source)
        links, link = torch.unique(names, return_inverse=True)
        kept = torch.rand(links.numel(), generator=generator).to(self.device) >= p
        keep = kept[link] | (target == source)
        kept_graph = self._from_entries(target[keep], source[keep], weight[keep], self.num_nodes)
        return kept_graph.with_batch(self.batch)

    def to(
        self,
        device: torch.device | str | int | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> "Graph":
        """Return the graph on another device or with another floating-point type; itself if both already fit.

        A directed graph stays one, even if its weights are symmetric when they are rounded.

        With ``non_blocking=True`` copies from pinned memory (:meth:`pin_memory`) to a CUDA device are asynchronous.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating-point torch.dtype, got {dtype!r}")
        device = self.device if device is None else torch.device(device)
        dtype = self.dtype if dtype is None else dtype
        if (device, dtype) == (self.device, self.dtype):
            return self
        moved = map_tensors(
            self, lambda part: part.to(device, dtype if part.is_floating_point() else None, non_blocking=non_blocking)
        )
        if dtype.itemsize < self.dtype.itemsize and device.type != "meta":
            for entries in (moved.weight, *([] if moved.diagonal is None else [moved.diagonal])):
                edges.check_finite(f"weights in {dtype}", entries)
        return moved

    def cpu(self) -> "Graph":
        """Return the graph in the memory of the CPU."""
        return self.to("cpu")

    def cuda(self, device: torch.device | str | int | None = None, non_blocking: bool = False) -> "Graph":
        """Return the graph on a CUDA device, by default the current one."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self) -> "Graph":
        """Return the graph in page-locked memory, for asynchronous copies by ``to(device, non_blocking=True)``."""
        return map_tensors(self, Tensor.pin_memory)

    def share_memory_(self) -> "Graph":
        """Move the tensors to memory that processes share, in place; sent to another process, none is copied."""
        map_tensors(self, Tensor.share_memory_)
        return self

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory from reuse until the work queued on ``stream`` is done, as ``Tensor.record_stream`` does."""

        def record(part: Tensor) -> Tensor:
            part.record_stream(stream)
            return part

        map_tensors(self, record)

    def to_dense(self) -> Tensor:
        """Return the shift operator as a dense matrix, ``(N, N)``."""
        target, source, weight = self._entries()
        dense = weight.new_zeros(self.num_nodes, self.num_nodes)
        return dense.index_put((target, source), weight)

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """Return PyG's ``(edge_index, edge_weight)``, self-loops included, sorted by target, then by source."""
        target, source, weight = self._entries()
        order = torch.argsort(target * self.num_nodes + source)
        return torch.stack([source[order], target[order]]), weight[order]

    def to_pyg(self) -> Any:
        """Return a PyG ``Data`` with ``num_nodes`` and with the edges and weights of :meth:`to_edge_index`.

        For several graphs side by side it has their ``batch``.

        Example:
            >>> import graphact
            >>> graphact.Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3).to_pyg()
            Data(edge_index=[2, 2], edge_weight=[2], num_nodes=3)
        """
        from torch_geometric.data import Data

        edge_index, edge_weight = self.to_edge_index()
        batch = {} if self.batch is None else {"batch": self.batch}
        return Data(edge_index=edge_index, edge_weight=edge_weight, num_nodes=self.num_nodes, **batch)

    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return all entries of S as target, source and weight: the edges, then the diagonal."""
        rows, col = self.incoming.rows, self.incoming.col
        if self.diagonal is None:
            return rows, col, self.weight
        everywhere = torch.arange(self.num_nodes, device=self.device)
        loops = everywhere if may_have_derivative(self.diagonal) else self.diagonal.nonzero().squeeze(1)
        return torch.cat([rows, loops]), torch.cat([col, loops]), torch.cat([self.weight, self.diagonal[loops]])

    def _with_weights(self, weight: Tensor, diagonal: Tensor | None, is_symmetric: bool) -> "Graph":
        """Return the same edges with other weights; ``is_symmetric`` if S is known to stay symmetric."""
        weight_t, is_directed = weight, False
        if not is_symmetric:
            edge_t = self.incoming.rowptr[self.outgoing.col] + self.incoming_slot
            weight_t, is_directed = build.transposed_weights(weight, edge_t, self._has_symmetric_pattern)
        lists = self.incoming, self.outgoing
        return Graph(*lists, weight, weight_t, diagonal, is_directed, self.incoming_slot, self.batch)

    @property
    def _has_symmetric_pattern(self) -> bool:
        """True if each edge goes both ways; copies made leaf by leaf hold equal lists twice."""
        one, other = self.incoming, self.outgoing
        if one is other or one.groups != other.groups:
            return one is other
        return torch.equal(one.rowptr, other.rowptr) and torch.equal(one.col, other.col)


OTHER_NAMES = {
    "from_adjacency": "from_dense",
    "from_edges": "from_edge_index",
    "from_numpy": "from_dense",
    "from_nx": "from_networkx",
}
for other_name, constructor in OTHER_NAMES.items():
    setattr(Graph, other_name, OtherName(other_name, constructor))


class HopPattern(NamedTuple):
    """k-hop neighbours of a graph in both directions, each computed on first use."""

    graph: Graph
    hops: int
    closed: bool

    @property
    def incoming(self) -> Neighborhoods:
        """For every node, the nodes from which walks of k edges lead to it."""
        return self.graph.hop_pattern(self.hops, closed=self.closed)

    @property
    def outgoing(self) -> Neighborhoods:
        """For every node, the nodes to which walks of k edges lead."""
        return self.graph.hop_pattern(self.hops, closed=self.closed, turned=True)


def check_graph(name: str, value: Any) -> Graph:
    """Return ``value`` if it is a graph."""
    if not isinstance(value, Graph):
        raise TypeError(f"{name} must be a graphact.Graph, got {kind_of(value)}{how_to_build(value)}")
    return value


def check_batch(batch: Tensor | None, graph: GraphLike) -> Tensor | None:
    """Return the graph of each node; raise if they are not whole numbers from 0 on, one for each node."""
    if batch is None:
        return None
    if not isinstance(batch, Tensor) or batch.dtype not in build.INTEGERS or batch.shape != (graph.num_nodes,):
        is_tensor = isinstance(batch, Tensor)
        got = f"the shape {tuple(batch.shape)} in {batch.dtype}" if is_tensor else type(batch).__name__
        raise ValueError(
            f"batch must hold the number of a graph for each of {graph.num_nodes} nodes, in int64 or int32, got {got}"
        )
    if batch.device != graph.device:
        raise ValueError(f"batch must be on the device of the graph, {graph.device}, got {batch.device}")
    if batch.device.type == "cpu" and is_plain(batch) and (lowest := int(batch.amin())) < 0:
        raise ValueError(f"batch must hold numbers of graphs from 0 on, got {lowest}")
    return batch


def check_signal(x: Any, graph: GraphLike) -> Tensor:
    """Return ``x`` if it is a signal on ``graph``, local or distributed."""
    if not hasattr(graph, "one_hop"):
        check_graph("graph", graph)
    return graph.check_signal(x)


def check_values(x: Any, graph: GraphLike) -> Tensor:
    """Return ``x`` if shape, dtype and device fit a graph; every graph's ``check_signal`` comes here."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point numbers, got {x.dtype}")
    if x.dim() < 2 or x.size(-2) != graph.num_nodes:
        raise ValueError(
            f"x must have the shape (..., N, F) with N = {graph.num_nodes}, the number of nodes of the graph, "
            f"got {tuple(x.shape)}"
        )
    if x.device != graph.device:
        raise ValueError(f"x must be on the device of the graph, {graph.device}, got {x.device}")
    if x.dtype != graph.dtype and x.dtype not in HALF_PRECISION:
        raise TypeError(
            f"x must have the dtype of the graph, {graph.dtype} (or half precision), got {x.dtype}: "
            f"convert one of them, with x.{converting_to(graph.dtype)} or graph.to({x.dtype})"
        )
    return x


torch.export.register_dataclass(Neighborhoods, serialized_type_name="graphact.Neighborhoods")
torch.export.register_dataclass(Graph, serialized_type_name="graphact.Graph")
torch.serialization.add_safe_globals([Graph, Neighborhoods])
