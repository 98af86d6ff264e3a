r"""Affine forms of differences on graphs of any size: the coefficients of a few inputs or unknowns at a time.

The forms ``(M, N, F)`` of :mod:`graphact.analysis.lipschitz` pass through a network column by column: filters act on
every column alone, and so does the middle of what a nonlinearity can do. Columns meet only in sums of magnitudes,
which are added up block by block. No more than a block is held, and only at the nodes that its columns have reached.

A block may also be given up behind any activation: its coefficients are replaced by a fresh unknown at every node and
feature, as large as their sum of magnitudes. This keeps the forms valid and makes them cover more, and is what happens
where the budget does not suffice for following all columns to the outputs.
"""

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact.analysis.description import Block, Blocks, graph_of, split_readout, widths
from graphact.analysis.rules import OPERATIONS, POINTWISE, GaussianKernel, layer_norm_slope, rule_of, slopes_tried
from graphact.graph import Graph
from graphact.layers import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum, map_arrays

Progress = Callable[[float], None]  # called with the share of the columns that are done
Array = np.ndarray[Any, Any]
MOST_WORK = 1.5e11  # products and differences that are computed where no time is given; some minutes
MOST_NEEDED = 1.5e11  # the same for one layer of all coefficients, without which nothing can be merged
MOST_NORM_WORK = 3e10  # the same for the norms of single layers
SECOND = 7e8  # of these, one core does in a second, in about
BLOCK_SECONDS = 1.5e-3  # for each block beside its operations, in about
UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
LONG = 20.0  # seconds after which somebody wonders what happens
BLOCK = {"cpu": 1 << 18, "cuda": 1 << 26}  # coefficients of a block of columns
WIDE = 0.4  # of all nodes: above, a block lives on the whole graph
MOST_CHOICES = 64  # combinations of slopes times outputs that are tried for every node, however large a network is


def is_compiled(device: torch.device) -> bool:
    """Whether Numba can take the passes over neighbours."""
    return device.type == "cpu" and find_spec("numba") is not None


def in_words(seconds: float) -> str:
    """About how long, in a unit that fits."""
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= 2 * size or size == 1)
    return f"about {max(1, round(seconds / size)):,} {unit}"


class OutOfTimeError(Exception):
    """The budget does not suffice for what cannot be left out."""


class Budget:
    """How much may be computed: seconds, or a fixed number of operations, so that the result depends on no clock.

    ``asker`` is the function that writes a line to standard error before it takes long; None where that is known.
    """

    def __init__(self, seconds: float | None, asker: str | None = None) -> None:
        self.asker = asker
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.half = None if seconds is None else time.monotonic() + seconds / 2  # of it is for norms of single layers
        self.norm_work = 0.0
        self.work = 0.0  # operations that were not needed for a valid bound
        self.seconds = {True: 0.0, False: 0.0}  # spent on what is needed, and on what is not
        self.operations = {True: 1.0, False: 1.0}
        self.columns = 0  # that what is needed was computed for
        self.blocks = 0.0  # of columns, in about

    def allows(self, work: float, columns_left: int) -> bool:
        """Whether a block may be followed further, with enough left for one layer of all other columns."""
        if self.deadline is None:
            if self.work + work > MOST_WORK:
                return False
        else:
            needed = 1.1 * columns_left * self.seconds[True] / max(1, self.columns)
            kind = self.operations[False] < 2  # nothing known yet about the rate of what is not needed
            expected = work * self.seconds[kind] / self.operations[kind]
            if time.monotonic() + needed + expected > self.deadline:
                return False
        self.work += work
        return True

    def spend(self, needed: bool, work: float, since: float) -> None:
        self.seconds[needed] += time.monotonic() - since
        self.operations[needed] += work
        late = self.operations[True] > 2 * MOST_NEEDED if self.deadline is None else time.monotonic() > self.deadline
        if needed and late:
            raise OutOfTimeError

    def spend_on_norms(self, work: float) -> None:
        """Raise OutOfTimeError where the norms of single layers have taken their part."""
        self.norm_work += work
        late = self.norm_work > MOST_NORM_WORK if self.half is None else time.monotonic() > self.half
        if late:
            raise OutOfTimeError

    def reserve(self, needed: float, every: float) -> None:
        """Raise OutOfTimeError at once where what is needed takes too many operations, by an estimate."""
        if self.deadline is not None:
            return
        if needed > MOST_NEEDED:
            self._announce(
                f"would take {in_words(every / SECOND)} of one core to follow all coefficients, so the constant is "
                "only the smaller of the product of the layers and of the sum of all magnitudes; budget= allows more"
            )
            raise OutOfTimeError
        seconds = (needed + min(every - needed, MOST_WORK)) / SECOND + self.blocks * BLOCK_SECONDS
        if seconds > LONG:
            self._announce(f"takes {in_words(seconds)} of one core; budget= limits the seconds, for a larger constant")

    def _announce(self, text: str) -> None:
        if self.asker is not None:
            sys.stderr.write(f"graphact: {self.asker} {text}; certified_radius certifies single nodes without it\n")
            sys.stderr.flush()


@dataclass(frozen=True)
class Lists:
    """CSR rows of the whole graph: what every node reads, with weights where it is a shift."""

    rowptr: Array
    col: Array
    weight: Array

    @classmethod
    def of(cls, matrix: "scipy.sparse.csr_array") -> "Lists":
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)

    @property
    def rows(self) -> Array:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.rowptr) - 1), np.diff(self.rowptr))

    def entries(self, rows: Array) -> tuple[Array, Array]:
        """The positions of the entries of some rows, and how many each row has."""
        counts = self.rowptr[rows + 1] - self.rowptr[rows]
        first = np.repeat(self.rowptr[rows] - np.concatenate([[0], counts.cumsum()[:-1]]), counts)
        return first + np.arange(counts.sum()), counts


class Operator:
    """Some rows of a sparse matrix, acting on the signals ``(n, m, F)`` of a window."""

    def __init__(self, lists: Lists, rows: Array, place: Array, size: int, device: torch.device) -> None:
        entries, counts = lists.entries(rows)
        rowptr = np.concatenate([[0], counts.cumsum(), np.full(size - len(rows), counts.sum())])
        self.entries, self.shape = torch.from_numpy(entries).to(device), (size, size)
        self.csr = rowptr, place[lists.col[entries]], lists.weight[entries]
        self.device = device

    @cached_property
    def matrix(self) -> Any:
        """For SciPy on the CPU, whose product with many columns is fast, and for torch elsewhere."""
        if self.device.type == "cpu":
            rowptr, col, weight = self.csr
            return scipy.sparse.csr_array((weight, col, rowptr), shape=self.shape)
        rows, columns, values = (torch.from_numpy(part).to(self.device) for part in self.csr)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
            return torch.sparse_csr_tensor(rows, columns, values, self.shape, check_invariants=False)

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Row and column of every entry."""
        rowptr, col, _ = self.csr
        row = np.repeat(np.arange(self.shape[0]), np.diff(rowptr))
        return torch.from_numpy(row).to(self.device), torch.from_numpy(col).to(self.device)

    def __matmul__(self, x: Tensor) -> Tensor:
        flat = x.reshape(x.size(0), -1)
        product = torch.from_numpy(self.matrix @ flat.numpy()) if self.device.type == "cpu" else self.matrix @ flat
        return product.view(x.shape)

    def read(self, y: Tensor, own: bool) -> tuple[Tensor, Tensor]:
        """The mean over what every row reads, ``(n, m, F)``, and the 1-norm over m of every entry less it, ``(E, F)``.

        ``own`` takes the row's own value in the place of the mean.
        """
        if is_compiled(self.device):
            from graphact.analysis.compiled import mean_and_apart

            mean, apart = torch.zeros_like(y), y.new_zeros(len(self.entries), y.size(2))
            mean_and_apart(*self.csr[:2], y.contiguous(), mean, apart, own)
            return mean, apart
        middle = y if own else self @ y
        rows, columns = self.ends
        step = max(1, BLOCK[self.device.type] // max(1, y[0].numel()))
        parts = [
            y.index_select(0, column).sub_(middle.index_select(0, row)).abs_().sum(1)
            for row, column in zip(rows.split(step), columns.split(step), strict=True)
        ]
        return middle, torch.cat(parts)


class Surroundings:
    """The whole graph: its shifts, and for each hop of each activation what every node reads.

    A layer may have a graph of its own, such as the operator of a convolution; values pass along the edges of all.
    """

    def __init__(self, graph: Graph, layers: Blocks, device: torch.device) -> None:
        self.graph = graph = graph.to("cpu", torch.float64)
        self.num_nodes, self.device = graph.num_nodes, device
        size = (self.num_nodes, self.num_nodes)
        everything = scipy.sparse.eye_array(self.num_nodes, dtype=bool, format="csr")
        self.shifts: dict[int, Lists] = {}  # by the id of their graph
        for each in {id(own): own for own in (graph, *(graph_of(layer, graph) for layer in layers))}.values():
            (source, target), weight = (part.numpy() for part in each.to_edge_index())
            ones = np.ones(len(weight), dtype=bool)
            self.shifts[id(each)] = Lists.of(scipy.sparse.csr_array((weight, (target, source)), shape=size))
            everything = everything + scipy.sparse.csr_array((ones, (target, source)), shape=size)
        self.reads: dict[tuple[int, int, bool], Lists] = {}
        for layer in layers:
            if isinstance(layer, HopMixture):
                graph = graph_of(layer, self.graph)
                for hop in range(layer.hops):
                    key = self.key(layer, hop)
                    _, hops, closed = key
                    near = graph.hop_pattern(hops, closed=closed) if hops > 1 else graph.incoming
                    ones = np.ones(len(near.col))
                    pattern = scipy.sparse.csr_array((ones, near.col.numpy(), near.rowptr.numpy()), shape=size)
                    if closed and hops == 1:
                        pattern = (pattern + scipy.sparse.eye_array(self.num_nodes, format="csr")).tocsr()
                    pattern.data = 1 / np.repeat(np.diff(pattern.indptr), np.diff(pattern.indptr)).astype(float)
                    self.reads[key] = Lists.of(pattern)
                    if hops > 1:  # two nodes that read each other over several hops count as neighbours of one
                        everything = everything + pattern.astype(bool)
        self.everything, self.reached = Lists.of(everything.tocsr()), Lists.of(everything.T.tocsr())
        self.all = Window(self, np.arange(self.num_nodes), np.arange(self.num_nodes))

    def key(self, layer: HopMixture, hop: int) -> tuple[int, int, bool]:
        """On which graph and by how many hops a term reads, and whether a node reads itself."""
        return id(graph_of(layer, self.graph)), (1 if layer.reads == "shifted" else hop + 1), layer.closed

    def spread(self, nodes: Array, lists: Lists, hops: int = 1) -> Array:
        """All nodes within that many hops, in order."""
        mask = np.zeros(self.num_nodes, dtype=bool)
        for _ in range(hops):
            mask[lists.col[lists.entries(nodes)[0]]] = True
            nodes = np.flatnonzero(mask)
        return nodes

    def window(self, nodes: Array, hops: int) -> "Window":
        """Where columns of these nodes can be, that many hops on."""
        rows = self.spread(nodes, self.reached, hops)
        if len(rows) >= WIDE * self.num_nodes:
            return self.all
        read = self.spread(rows, self.everything)
        return Window(self, rows, np.concatenate([rows, np.setdiff1d(read, rows, assume_unique=True)]))

    def clusters(self, size: int) -> Iterator[Array]:
        """All nodes in groups of neighbours, so that what they reach overlaps."""
        free, lists = np.ones(self.num_nodes, dtype=bool), self.everything
        for seed in range(self.num_nodes):
            if free[seed]:
                group = np.array([seed])
                for _ in range(4 if size > 1 else 0):
                    group = self.spread(group, lists)
                    group = group[free[group]]
                    if len(group) >= size:
                        break
                group = np.unique(np.concatenate([[seed], group[:size]]))
                free[group] = False
                yield group


class Window:
    """The nodes that a block of columns has reached, and behind them those that these read, whose values are 0."""

    def __init__(self, graph: Surroundings, rows: Array, nodes: Array) -> None:
        self.graph, self.rows, self.nodes = graph, rows, nodes
        self.place = np.full(graph.num_nodes, -1)
        self.place[nodes] = np.arange(len(nodes))
        self.index = torch.from_numpy(nodes).to(graph.device)
        self._reads: dict[tuple[int, int, bool], Operator] = {}
        self._shifts: dict[int, Operator] = {}

    def shift(self, layer: Block) -> Operator:
        """The shift operator of the graph that a layer acts on."""
        key = id(graph_of(layer, self.graph.graph))
        if key not in self._shifts:
            self._shifts[key] = self._operator(self.graph.shifts[key])
        return self._shifts[key]

    def reads(self, layer: HopMixture, hop: int) -> Operator:
        """The mean over what a hop reads."""
        key = self.graph.key(layer, hop)
        if key not in self._reads:
            self._reads[key] = self._operator(self.graph.reads[key])
        return self._reads[key]

    def _operator(self, lists: Lists) -> Operator:
        return Operator(lists, self.rows, self.place, len(self.nodes), self.graph.device)

    @cached_property
    def operations(self) -> int:
        """What one hop costs for one column and feature."""
        lists = self.graph.everything
        return int((lists.rowptr[self.rows + 1] - lists.rowptr[self.rows]).sum()) + 4 * len(self.rows)

    def add(self, total: Tensor, x: Tensor) -> None:
        """The norms of a block ``(n, m, F)`` to those of all columns ``(N, F)``."""
        if self is self.graph.all:
            total += x.abs().sum(1)
        else:
            total.index_add_(0, self.index[: len(self.rows)], x[: len(self.rows)].abs().sum(1))

    def widen(self, x: Tensor, before: "Window") -> Tensor:
        """Signals of a smaller window on this one."""
        if before is self:
            return x
        wider = x.new_zeros(len(self.nodes), *x.shape[1:])
        wider[torch.from_numpy(self.place[before.rows]).to(x.device)] = x[: len(before.rows)]
        return wider


@dataclass
class Segment:
    """Linear layers and the activation behind them, and what was summed up there over all columns so far."""

    layers: Blocks
    activation: HopMixture | Pointwise | LayerNorm
    norms: Tensor  # of what the pointwise function reads, (N, F)
    apart: list[Tensor]  # for each hop the norms of differences of what is read, (E, F)
    merged: Tensor = field(init=False)  # coefficients of the columns that were given up behind it, (N, F)

    def __post_init__(self) -> None:
        self.merged = torch.zeros_like(self.norms)

    @property
    def slopes(self) -> tuple[float, float]:
        if isinstance(self.activation, LayerNorm):  # nothing is known of its direction
            return 0.0, 0.0
        rule = rule_of(self.activation) if isinstance(self.activation, Pointwise) else POINTWISE["relu"]
        return rule.slopes

    @property
    def beta(self) -> Tensor:
        one = torch.ones((), dtype=torch.float64, device=self.norms.device)
        return self.activation.beta if isinstance(self.activation, HopMixture) else one

    def advance(self, x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Sum up what the activation reads; the middle of its hops, and what its pointwise function is applied to."""
        window.add(self.norms, x)
        layer, hops, y = self.activation, torch.zeros_like(x), x
        for number, apart in enumerate(self.apart):
            assert isinstance(layer, HopMixture)
            read = window.reads(layer, number)
            y = window.shift(layer) @ y if layer.reads == "shifted" else y
            is_kernel = isinstance(OPERATIONS[layer.operation], GaussianKernel)
            mean, sizes = read.read(y, is_kernel)
            if window is window.graph.all:
                apart += sizes
            else:
                apart.index_add_(0, read.entries, sizes)
            if not is_kernel:
                hops += mean.mul_(layer.weights[number])
        return hops, x * self.beta

    def spread(self, graph: Surroundings) -> tuple[Tensor, Tensor]:
        """How far the hops can be from their middle, and the pointwise function from its own, ``(N, F)`` each."""
        low, high = self.slopes
        total, layer = torch.zeros_like(self.norms), self.activation
        if isinstance(layer, LayerNorm):
            total += layer_norm_slope(layer.features, layer.epsilon).to(total) * self.norms.amax(-1, keepdim=True)
            total = total if layer.weight is None else total * layer.weight.abs().to(total)
        for number, apart in enumerate(self.apart):
            assert isinstance(layer, HopMixture)
            rows = torch.from_numpy(graph.reads[graph.key(layer, number)].rows).to(apart.device)
            size = OPERATIONS[layer.operation].size_of(layer, apart, rows, graph.num_nodes)
            total += layer.weights[number].abs() * size
        return total, (high - low) / 2 * self.beta.abs() * self.norms


def on_device(layers: Blocks, device: torch.device) -> Blocks:
    """Layers with their coefficients where the blocks are; of pointwise functions only the slopes are read, numbers."""
    moved = map_arrays(layers, lambda array: array.to(device))
    pairs = zip(layers, moved, strict=True)
    return cast("Blocks", tuple(old if isinstance(old, Pointwise) else new for old, new in pairs))


def reach(layer: Block) -> int:
    """How many hops a layer carries a value on, at most."""
    match layer:
        case Filter():
            return layer.exchanges
        case HopMixture():
            return layer.hops + 1 if layer.reads == "shifted" else 1
        case _:
            return 0


def pass_linear(layer: Block, x: Tensor, window: Window) -> Tensor:
    """Signals ``(n, m, F)`` behind a filter bank or a linear map."""
    if isinstance(layer, Linear):
        return x @ layer.weight.T
    assert isinstance(layer, Filter)
    total, y = x @ layer.taps[0], x
    for tap in layer.taps[1:]:
        y = window.shift(layer) @ y
        total += y @ tap
    return total


def unit_columns(
    layer: Block | None, nodes: Array, weights: Tensor, chosen: slice, width: int, window: Window
) -> Tensor:
    """Behind the first linear layer: the columns of some nodes and features, of the sizes ``weights`` ``(g, C)``.

    Without one they stay as they are, columns of signals of that width.
    """
    places = torch.from_numpy(window.place[nodes]).to(weights.device)
    unit = weights.new_zeros(len(window.nodes), len(nodes), 1)
    unit[places, torch.arange(len(nodes), device=weights.device)] = 1.0
    match layer:
        case Filter():
            rows = layer.taps
        case Linear():
            rows = layer.weight.T.unsqueeze(0)
        case _:
            rows = torch.eye(width, dtype=torch.float64, device=weights.device).unsqueeze(0)
    total = weights.new_zeros(len(window.nodes), len(nodes), weights.size(1), rows.size(2))
    for number, row in enumerate(rows[:, chosen]):
        unit = window.shift(layer) @ unit if number and layer is not None else unit
        total += unit.unsqueeze(-1) * (weights.unsqueeze(-1) * row)
    return total.flatten(1, 2)


class Outputs:
    """What the outputs can be, summed up over all columns, for choices of a few slopes of the last activation."""

    def __init__(
        self, num_nodes: int, weight: Tensor, tried: Tensor, last: Segment | None, device: torch.device
    ) -> None:
        self.weight, self.tried = weight.to(device), tried.to(device)
        low, high = (0.0, 0.0) if last is None else last.slopes
        self.middle, self.half, count = (low + high) / 2, (high - low) / 2, tried.size(1)
        signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * count) if count else torch.zeros(1, 0)
        self.choices = self.half * signs.view(2**count, count).to(self.weight)
        self.norms = self.weight.new_zeros(num_nodes, self.weight.size(0), len(self.choices))

    def add(self, window: Window, fixed: Tensor, rectified: Tensor | None = None) -> None:
        """Columns behind the network (without its readout), and what slopes multiply."""
        rows = len(window.rows)
        fixed = fixed[:rows] if rectified is None else fixed[:rows] + self.middle * rectified[:rows]
        outputs, index = fixed @ self.weight.T, window.index[:rows]
        if rectified is not None and is_compiled(fixed.device):
            from graphact.analysis.compiled import add_choices

            add_choices(outputs, rectified, self.weight, self.tried, self.choices, self.norms, index)
            return
        for number, tried in enumerate(self.tried):
            values = outputs[..., number, None]
            if rectified is not None and len(tried):
                free = rectified[:rows].index_select(-1, tried) * self.weight[number, tried]
                values = values + free @ self.choices.T
            self.norms[:, number].index_add_(0, index, values.abs_().sum(1))

    def total(self, hops: Tensor, rectified: Tensor) -> Tensor:
        """The largest over all choices, with how far hops and pointwise functions can be from their middle."""
        size = self.weight.abs()
        untried = size.scatter(1, self.tried, 0.0)
        return self.norms.amax(-1) + hops @ size.T + rectified @ untried.T


def features_tried(weight: Tensor, sizes: Tensor, coefficients: int, is_unit: bool) -> Tensor:
    """The features whose slopes are tried, for each output of a readout ``(O, F)``, ``(O, e)``; those that weigh most.

    As many as where forms are held at once, and a few in networks that are much larger; where there is no readout, each
    output has the slope of its own feature.
    """
    few = int(math.log2(max(1, MOST_CHOICES / max(1, len(weight)))))
    used = int((weight != 0).sum(1).max()) if weight.numel() else 0
    count = 1 if is_unit else max(min(used, few), slopes_tried(weight, coefficients))
    return (weight.abs() * sizes).topk(min(count, weight.size(1)), dim=1).indices


def split_segments(body: Blocks, features: int, graph: Surroundings) -> tuple[list[Segment], Blocks]:
    """The layers up to each activation, and those behind the last one."""
    segments, linear = [], []
    for layer, width in zip(body, widths(body, features), strict=True):
        if isinstance(layer, Filter | Linear):
            linear.append(layer)
            continue
        assert not isinstance(layer, Sum)
        zeros = torch.zeros(graph.num_nodes, width, dtype=torch.float64, device=graph.device)
        reads: list[Lists] = []
        if isinstance(layer, HopMixture):
            reads = [graph.reads[graph.key(layer, hop)] for hop in range(layer.hops)]
        segments.append(Segment(tuple(linear), layer, zeros, [zeros.new_zeros(len(each.col), width) for each in reads]))
        linear = []
    return segments, tuple(linear)


def column_norms(
    layers: Blocks,
    features: int,
    graph: Graph,
    budget: Budget,
    device: torch.device,
    progress: Progress,
    sizes: Tensor | None = None,
) -> tuple[Tensor, float]:
    """How far each output ``(N, O)`` moves, at most, when every input moves by 1; the share of columns followed.

    ``sizes`` of the features ``(F,)`` that the last activation reads, in about, say whose slopes are tried. Raise
    OutOfTimeError if the budget does not suffice for one layer at a time.
    """
    with one_thread(device):
        return _column_norms(layers, features, graph, budget, device, progress, sizes)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """A block fits into a cache: waiting for other threads costs more than they help, most on a busy machine."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _column_norms(
    layers: Blocks,
    features: int,
    graph: Graph,
    budget: Budget,
    device: torch.device,
    progress: Progress,
    sizes: Tensor | None,
) -> tuple[Tensor, float]:
    _, readout = split_readout(layers)  # on the CPU, where it is looked at
    layers = on_device(layers, device)
    body, _ = split_readout(layers)
    whole = Surroundings(graph, layers, device)
    segments, behind = split_segments(body, features, whole)
    width = max([features, *widths(body, features)])
    last_width = list(widths(body, features))[-1] if body else features
    weights = torch.ones(graph.num_nodes, features, dtype=torch.float64, device=device)
    last = segments[-1] if segments and not behind else None
    steps: list[tuple[Blocks, Segment | None]] = [(segment.layers, segment) for segment in segments]
    if last is None:
        steps.append((behind, None))
    columns_of = [weights.numel(), *(segment.norms.numel() for segment in segments)][: len(steps)]
    weight = torch.eye(last_width, dtype=torch.float64) if readout is None else readout.weight
    tried = torch.zeros(len(weight), 0, dtype=torch.int64)
    if last is not None:
        sizes = torch.ones(last_width, dtype=torch.float64) if sizes is None else sizes
        tried = features_tried(weight, sizes, sum(columns_of) * graph.num_nodes, readout is None)
    outputs = Outputs(graph.num_nodes, weight, tried, last, device)
    sources = enumerate(columns_of)
    budget.blocks = sum(count / columns_of_block(whole, steps[source:], width) for source, count in sources)
    budget.reserve(*expected_work(whole, steps, columns_of, last_width))
    left, followed = sum(columns_of), 0
    for source in range(len(steps)):
        for nodes, chosen in column_blocks(whole, steps[source:], weights.size(1), width):
            count = len(nodes) * (chosen.stop - chosen.start)
            left -= count
            columns = weights[torch.from_numpy(nodes).to(device)][:, chosen]
            followed += follow(steps[source:], nodes, columns, chosen, budget, left, outputs, whole) * count
            budget.columns += count
            progress(1 - left / sum(columns_of))
        if source < len(segments):
            weights = segments[source].merged + sum(segments[source].spread(whole))
    zero = torch.zeros(graph.num_nodes, last_width, dtype=torch.float64, device=device)
    return outputs.total(*(last.spread(whole) if last else (zero, zero))), followed / max(1, sum(columns_of))


def expected_work(
    whole: Surroundings, steps: list[tuple[Blocks, Segment | None]], columns_of: list[int], last_width: int
) -> tuple[float, float]:
    """Operations for one layer of all columns, and for all layers, in about: from a sample of nodes."""
    some = np.unique(np.linspace(0, whole.num_nodes - 1, 33).astype(int))
    needed = every = 0.0
    for source, columns in enumerate(columns_of):
        hops = 0
        for number, (linear, segment) in enumerate(steps[source:]):
            ahead = hops_of_step(linear, segment)
            hops += ahead
            reached = sum(whole.window(some[i : i + 1], hops).operations for i in range(len(some))) / len(some)
            work = columns * (last_width if segment is None else segment.norms.size(1)) * reached * (1 + ahead)
            needed, every = needed + (work if number == 0 else 0), every + work
    return needed, every


def column_blocks(
    whole: Surroundings, steps: list[tuple[Blocks, Segment | None]], features: int, width: int
) -> Iterator[tuple[Array, slice]]:
    """Groups of nodes and ranges of their features, such that what a block reaches fits into the memory for it."""
    columns = columns_of_block(whole, steps, width)
    step = min(columns, features)
    for nodes in whole.clusters(max(1, columns // max(1, features))):
        for first in range(0, features, max(1, step)):
            yield nodes, slice(first, min(first + step, features))


def columns_of_block(whole: Surroundings, steps: list[tuple[Blocks, Segment | None]], width: int) -> int:
    """How many columns a block has, from what those of a few nodes reach."""
    hops = sum(hops_of_step(*step) for step in steps)
    some = np.unique(np.linspace(0, whole.num_nodes - 1, 9).astype(int))
    size = width * sum(len(whole.window(some[i : i + 1], hops).nodes) for i in range(len(some))) / len(some)
    return max(1, int(BLOCK[whole.device.type] / max(1, size)))


def hops_of_step(linear: Blocks, segment: Segment | None) -> int:
    """How many hops linear layers and the activation behind them carry a value on."""
    return sum(reach(layer) for layer in linear) + (0 if segment is None else reach(segment.activation))


def follow(
    steps: list[tuple[Blocks, Segment | None]],
    nodes: Array,
    weights: Tensor,
    chosen: slice,
    budget: Budget,
    left: int,
    outputs: Outputs,
    whole: Surroundings,
) -> bool:
    """Carry the columns of some nodes and features as far as the budget allows; whether to the outputs."""
    hops, window, x = 0, whole.all, weights
    for number, (linear, segment) in enumerate(steps):
        hops += hops_of_step(linear, segment)
        before, window = window, whole.window(nodes, hops)
        width = outputs.weight.size(1) if segment is None else segment.norms.size(1)
        work = weights.numel() * width * window.operations * (1 + hops_of_step(linear, segment))
        if number and not budget.allows(work, left):
            given_up = steps[number - 1][1]
            assert given_up is not None
            before.add(given_up.merged, x)
            return False
        since = time.monotonic()
        if number == 0:
            x = unit_columns(linear[0] if linear else None, nodes, weights, chosen, width, window)
        else:
            x = window.widen(x, before)
        for layer in linear[int(number == 0) :]:
            x = pass_linear(layer, x, window)
        if segment is None:
            outputs.add(window, x)
        else:
            fixed, rectified = segment.advance(x, window)
            if number == len(steps) - 1:
                outputs.add(window, fixed, rectified)
            else:
                x = fixed.add_(rectified, alpha=sum(segment.slopes) / 2)
        if whole.device.type == "cuda" and budget.deadline is not None:
            torch.cuda.synchronize(whole.device)  # seconds are counted when the work is done, not when it is queued
        budget.spend(number == 0, work, since)
    return True
