r"""Certified Lipschitz constants of filters, activations and whole networks.

For two inputs :math:`x, x'` the difference at any point of a network is a matrix times :math:`x - x'`. Every row of
that matrix is an *affine form*: known coefficients of the inputs, plus known coefficients of unknown row vectors
whose 1-norm is at most 1. The forms of all nodes and features are a batch of signals ``(M, N, F)``, one for each of
the M inputs and unknowns; filters and shifts act on it as on any batch. The 1-norm over M bounds the change of the
output when every input changes by at most 1. The proofs are in docs/guarantees.md.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.graph.eager import is_plain
from graphact.graph.graph import check_graph
from graphact.guarantees.layers import (
    Block,
    Blocks,
    get_branches,
    iterate_hops,
    propagate_magnitude,
    read_model,
    resolve_graph,
    split_readout,
    to_scipy,
    widths,
)
from graphact.guarantees.rules import (
    MAX_ENTRIES,
    MAX_GRAM_COLUMNS,
    OPERATIONS,
    POINTWISE,
    find_rule,
    layer_norm_slope,
    longest,
    safe_sqrt,
)
from graphact.spec import Filter, HopMixture, Layer, LayerNorm, Linear, Pointwise, Sum
from graphact.spec.reductions import MAX

Spend = Callable[[float], None]  # called with the number of operations before they are done
MAX_NORM_WORK = 3e10  # products for the norms of single layers, some tens of seconds
SPARSE = 10  # cost of a product of two entries of sparse matrices, in those of dense ones
MAX_ROWS = 512  # of a power at once; as many as there are nodes in the worst case are then held for each
MAX_COEFFICIENTS = (
    MAX_ENTRIES  # of the forms of a layer that are held at once; above this limit affine forms are skipped
)
MAX_SIGNS = 8  # ReLUs of a node whose signs are all tried
MAX_SIGN_WORK = 300_000_000  # coefficients times combinations of signs, some seconds
IN_CACHE = 1 << 19  # numbers; larger tables take several times longer for each
LABELS = {"pointwise": "activation", "hop-mixture": "activation", "layer-norm": "norm"}  # others by their kind


@dataclass(frozen=True, eq=False)
class LipschitzBound:
    r"""A constant L with :math:`\|f(x) - f(x')\|_\infty \le L \|x - x'\|_\infty` for all signals, and its origin.

    Attributes:
        value: the tightest certified constant.
        paper: the constant of the paper's Proposition 2; None for all but the graph-adaptive max activation.
        per_node: ``(N,)``, the same for the output of each node; ``value`` is the largest.
        composed: the product of the constants of the layers.
        layers: name and constant of each layer, from input to output.
        uses_forms: True if affine forms were used; False if they need too much memory, and ``value`` is the smaller of
            the product of the layers and the sum over all paths, which holds as well and is larger.
    """

    value: float
    paper: float | None
    per_node: Tensor
    composed: float
    layers: tuple[tuple[str, float], ...]
    uses_forms: bool = True

    def __repr__(self) -> str:
        paper = "" if self.paper is None else f", paper={self.paper:.6g}"
        return f"LipschitzBound(value={self.value:.6g}{paper}, composed={self.composed:.6g})"


@torch.no_grad()
def lipschitz_bound(module: nn.Module, graph: Graph) -> LipschitzBound:
    r"""Certify a Lipschitz constant of a module on a graph, in the infinity norm over nodes and features.

    - A filter bank or an FIR: its induced norm, exactly.
    - An activation: Proposition 2's constant as ``paper`` (graph-adaptive max), and a certificate for each node.
    - A network: the product of its layers as ``composed``, and a tighter one from affine forms of differences over the
      actual graph where these have at most 20 million coefficients; otherwise the smaller of the product and of the sum
      of the magnitudes of all paths. ``uses_forms`` says which.

    Everything is computed in float64, and constants of networks are enlarged by bounds of its rounding errors; they are
    infinite where numbers overflow. Rounding in the evaluation of the module is not covered.

    Args:
        module: a module of :mod:`graphact.nn` or one that describes itself, a chain or residual block of these and of
            torch's, or a model or convolution of PyG that docs/guarantees.md lists.
        graph: the graph.

    Raises:
        UnsupportedModelError: nothing is known about a part, such as a function of your own as the activation.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).normalize("spectral")
        >>> activation = graphact.nn.GraphAdaptiveMax(hops=1)
        >>> _ = torch.nn.init.constant_(activation.weights, 0.5)
        >>> graphact.guarantees.lipschitz_bound(activation, path)
        LipschitzBound(value=1.70711, paper=1.70711, composed=1.70711)
        >>> graphact.guarantees.lipschitz_bound(activation, path).per_node
        tensor([1.7071, 1.3536, 1.7071], dtype=torch.float64)
    """
    graph = check_graph("graph", graph).to("cpu", torch.float64)
    layers, features = read_model(module, graph)
    every = layer_constants(layers, features, graph, limit_work(MAX_NORM_WORK))
    constants = [unless_nan(norms, torch.inf).max().item() for norms in every]
    rounding_error = rounding(layers, features, graph)
    outputs, uses_forms = tightest_norms(layers, features, graph, every)
    per_node, composed = (
        unless_nan(outputs + rounding_error, torch.inf).amax(-1),
        math.prod(constants) + rounding_error.max().item(),
    )
    return LipschitzBound(
        value=per_node.max().item(),
        paper=paper_constant(layers, graph),
        per_node=per_node,
        composed=torch.inf if math.isnan(composed) else composed,
        layers=tuple(zip(layer_names(layers), constants, strict=True)),
        uses_forms=uses_forms,
    )


def unless_nan(values: Tensor, otherwise: float) -> Tensor:
    """Replace values that overflow made NaN by a bound that always holds."""
    return torch.where(values.isnan(), otherwise, values)


def tightest_norms(layers: Blocks, features: int, graph: Graph, every: list[Tensor]) -> tuple[Tensor, bool]:
    """Return the constant of every output ``(N, O)``, and whether affine forms were small enough to be used."""
    composed = torch.minimum(composed_norms(every, features, graph), magnitudes(layers, features, graph)[0])
    if not is_affordable(layers, features, graph):
        return composed, False
    return torch.minimum(composed, output_norms(layers, features, graph)), True


def rounding(layers: Blocks, features: int, graph: Graph) -> Tensor:
    """Bound the rounding errors of the constants of a network, ``(N, O)``; one activation is rounded to nearest.

    Every number is a sum of products along paths through the network. Its error is at most the number of roundings on
    the longest path times epsilon times the sum of the magnitudes, which the layers bound by their coefficients without
    signs; after an activation forms and unknowns together are at most three times what it reads. Without graph and
    fractions nothing is rounded.
    """
    total, num_operations = magnitudes(layers, features, graph, 3.0)
    only_one = len(layers) < 2 and all(isinstance(layer, HopMixture | Pointwise) for layer in layers)
    is_local = all(isinstance(layer, Linear | Pointwise | Filter) and not layer.exchanges for layer in layers)
    is_whole = all((array % 1 == 0).all() for layer in layers for array in layer.arrays().values())
    is_exact = only_one or (is_local and is_whole and bool(num_operations * total.max() < 2**52))
    return 0 * total if is_exact else num_operations * torch.finfo(torch.float64).eps * total


def paper_constant(layers: Blocks, graph: Graph) -> float | None:
    r"""Return the constant of Proposition 2, :math:`|\beta| + K C \max_k \|S^k\|_\infty` with :math:`C = \max_k |h_k|`.

    None for anything but one graph-adaptive max, the only case of the proposition.
    """
    only = layers[0] if len(layers) == 1 else None
    if not isinstance(only, HopMixture) or only.operation is not MAX or only.reads != "shifted":
        return None
    graph = resolve_graph(only, graph)
    largest = max(PowerRows(graph, hop + 1).norms.max().item() for hop in range(only.hops))
    return only.beta.abs().item() + only.hops * only.weights.abs().max().item() * largest


def layer_names(layers: Blocks) -> Iterator[str]:
    """Yield the names of layers in tables: filters and activations by their number, and the readout."""
    counts: Counter[str] = Counter()
    body, readout = split_readout(layers)
    for layer in body:
        label = LABELS.get(layer.kind, layer.kind)
        counts[label] += 1
        yield f"{label} {counts[label]}"
    if readout is not None:
        yield "readout"


def certified_norms(layers: Blocks, features: int, graph: Graph) -> Tensor:
    """Return certified constants of every output, ``(N, O)``, cheap enough for training, with gradients."""
    return reduce(torch.minimum, valid_norms(layers, features, graph))


def valid_norms(layers: Blocks, features: int, graph: Graph) -> list[Tensor]:
    """Return certified constants of every output, ``(N, O)`` each, of which the smallest counts.

    Beyond what is affordable: the sum of all coefficients in magnitude and the product of the layers, the latter where
    no filter bank has so many entries that a step of training would take seconds and gigabytes.
    """
    if is_affordable(layers, features, graph):
        composed = composed_norms(layer_constants(layers, features, graph), features, graph)
        return [composed, output_norms(layers, features, graph, thorough=False)]
    paths, entries = magnitudes(layers, features, graph)[0], graph.num_nodes + graph.num_edges
    if any(isinstance(layer, Filter) and layer.taps[0].numel() * entries > MAX_ENTRIES for layer in layers):
        return [paths]
    return [paths, composed_norms(layer_constants(layers, features, graph), features, graph)]


def composed_norms(every: list[Tensor], features: int, graph: Graph) -> Tensor:
    """Return the product of the constants of all layers but the last, times those of the last one, ``(N, O)``."""
    unit = torch.ones(graph.num_nodes, features, dtype=torch.float64)
    *before, last = [unit, *every]
    return math.prod((norms.max() for norms in before), start=unit.new_ones(())) * last


def magnitudes(layers: Blocks, features: int, graph: Graph, hop_factor: float = 1.0) -> tuple[Tensor, int]:
    """Sum the magnitudes of all paths to each output ``(N, O)``, in time that grows with the edges.

    Hops count ``hop_factor`` times. Beside it, the number of operations on the longest way through the network.
    Differentiable, where the arrays are. As long as all features of a node move alike, one column stands for them.
    """
    total = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
    num_operations, width = features * graph.num_nodes, features
    for layer, next_width in zip(layers, widths(layers, features), strict=True):
        total, steps = propagate_magnitude(layer, total, graph, hop_factor)
        num_operations, width = num_operations + steps + graph.num_nodes * width + width, next_width
    return total.expand(-1, width), num_operations


def layer_constants(layers: Blocks, features: int, graph: Graph, spend: Spend = lambda _: None) -> list[Tensor]:
    """Return the constants of every output of every layer, ``(N, F)`` each."""
    pairs = zip(layers, widths(layers, features), strict=True)
    return [norms_or_magnitudes(spend, layer, width, graph) for layer, width in pairs]


def norms_or_magnitudes(spend: Spend, layer: Block, width: int, graph: Graph) -> Tensor:
    """Return the constants of a layer, ``(N, F)``: exact or, if that is too much work, without signs."""
    try:
        return exact_norms(layer, width, graph, spend)
    except WorkLimitError:
        unit = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
        return propagate_magnitude(layer, unit, graph)[0].expand(-1, width)


def exact_norms(layer: Block, width: int, graph: Graph, spend: Spend) -> Tensor:
    r"""Return the Lipschitz constant of a layer of that width at every node and feature, ``(N, F)``.

    Of a filter bank, the largest is its induced infinity norm, exactly:

    .. math:: \sum_{j, g} \Big| \Big[\sum_k h_k^{fg} S^k\Big]_{ij} \Big|

    Max, min and median: :math:`|\beta| + \sum_k |h_k| \max_{j \in \mathcal{N}_i} \|e_j^\top S^k\|_1`. The first hop
    and the pointwise term are taken together, since they may read the same input with opposite signs. Kernel: the slope
    of the Gaussian times the largest differences of rows. Localized activations have the identity for :math:`S^k`.

    Raise WorkLimitError where ``spend`` allows no more operations.
    """
    spend(0.0)
    match layer:
        case Filter():
            return bank_norms(layer.taps, resolve_graph(layer, graph), spend)
        case Linear():
            return layer.weight.abs().sum(1).expand(graph.num_nodes, -1)
        case Pointwise():
            return torch.full((graph.num_nodes, width), find_rule(layer).steepest, dtype=torch.float64)
        case LayerNorm():
            slope = layer_norm_slope(layer.features, layer.epsilon).expand(graph.num_nodes, width)
            return slope if layer.weight is None else slope * layer.weight.abs()
        case Sum():
            start, total = layer.in_features or width, torch.zeros(())
            for branch in get_branches(layer):
                total = total + composed_norms(layer_constants(branch, start, graph, spend), start, graph)
            return total
        case HopMixture():
            rule, total = OPERATIONS[layer.operation], layer.beta.abs().expand(graph.num_nodes, width)
            for hop in iterate_hops(layer, graph):
                rows = PowerRows(resolve_graph(layer, graph), layer.shifts[hop.number], spend)
                total = total + hop.reduce_one(partial(rule.constants, layer, hop.number, rows), rows.entries_at_once)
            return total


class WorkLimitError(Exception):
    """The exact norms of a layer would take too many operations."""


def limit_work(max_work: float) -> Spend:
    """Return a function that adds up operations and raises WorkLimitError above a maximum."""
    total = 0.0

    def spend(work: float) -> None:
        nonlocal total
        total += work
        if total > max_work:
            raise WorkLimitError

    return spend


class PowerRows:
    """The rows of :math:`S^k`, sparse and a few at a time."""

    def __init__(self, graph: Graph, power: int, spend: Spend = lambda _: None) -> None:
        self.matrix, self.power, self.num_nodes, self.spend = to_scipy(graph), power, graph.num_nodes, spend

    @property
    def entries_at_once(self) -> int:
        """The numbers that :meth:`longest` holds for each neighbour."""
        return self.num_nodes if self.num_nodes <= MAX_GRAM_COLUMNS else 1

    @cached_property
    def norms(self) -> Tensor:
        """The 1-norm of every row, ``(N, 1)``."""
        unit = scipy.sparse.eye_array(self.num_nodes, format="csr")
        return torch.cat([self._norms_of(unit[i : i + MAX_ROWS]) for i in range(0, self.num_nodes, MAX_ROWS)])[:, None]

    def _norms_of(self, rows: Any) -> Tensor:
        """Return the 1-norms of combinations of rows."""
        for _ in range(self.power):
            rows = self._times(rows)
        return torch.from_numpy(np.asarray(abs(rows).sum(1), dtype=np.float64).ravel())

    def _times(self, rows: Any) -> Any:
        self.spend(SPARSE * rows.nnz * self.matrix.nnz / max(1, self.num_nodes))
        return rows @ self.matrix

    def entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return single entries of a power of at most 1, ``(...)``."""
        if self.power == 0 or rows.numel() == 0:
            return (rows == columns).double()
        shape = torch.broadcast_shapes(rows.shape, columns.shape)
        places = (index.expand(shape).numpy().flatten() for index in (rows, columns))  # copies, as SciPy needs them
        return torch.from_numpy(np.array(self.matrix[tuple(places)], dtype=np.float64)).view(shape)

    def longest(self, nodes: Tensor, table: Tensor) -> Tensor:
        """Apply :func:`graphact.guarantees.rules.longest` to rows of neighbours minus that of a node, ``(n, 1)``."""
        count = table.numel()
        if count == 0:
            return torch.zeros(len(nodes), 1, dtype=torch.float64)
        edge, shape = np.arange(count), (count, self.num_nodes)
        ends = table.flatten().numpy(), nodes.repeat_interleave(table.size(1)).numpy()
        there, here = (scipy.sparse.csr_array((np.ones(count), (edge, end)), shape=shape) for end in ends)
        offsets = there - here
        if self.num_nodes > MAX_GRAM_COLUMNS:
            parts = [self._norms_of(offsets[i : i + MAX_ROWS]) for i in range(0, count, MAX_ROWS)]
            return safe_sqrt(torch.cat(parts).view(table.shape).square().sum(1, keepdim=True))
        for _ in range(self.power):
            offsets = self._times(offsets)
        dense = torch.from_numpy(offsets.toarray()).view(*table.shape, -1)
        return longest(dense.permute(2, 0, 1).unsqueeze(-1))


def bank_entries(graph: Graph, order: int, spend: Spend) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the entries ``(n, K + 1)`` of I, S, ..., S^K where any of them is not 0, and their rows ``(n,)``."""
    matrix, size = to_scipy(graph), graph.num_nodes
    unit = scipy.sparse.eye_array(size, format="csr")
    for first in range(0, size, MAX_ROWS):
        powers = [unit[first : first + MAX_ROWS]]
        for _ in range(order):
            spend(SPARSE * powers[-1].nnz * matrix.nnz / size)
            powers.append(powers[-1] @ matrix)
        found = [power.tocoo() for power in powers]
        places = [each.coords[0].astype(np.int64) * size + each.coords[1] for each in found]
        every, slot = np.unique(np.concatenate(places), return_inverse=True)
        power = np.repeat(np.arange(order + 1), [len(each) for each in places])
        entries = np.zeros((len(every), order + 1))
        entries[slot, power] = np.concatenate([each.data for each in found])
        yield torch.from_numpy(entries), torch.from_numpy(first + every // size)


def bank_norms(taps: Tensor, graph: Graph, spend: Spend = lambda _: None) -> Tensor:
    """Return the 1-norm of every row of a filter bank, ``(N, F_out)``; gradients flow to the taps."""
    used = [number for number, tap in enumerate(taps) if tap.any()] if is_plain(taps) and not taps.requires_grad else []
    if len(used) == 1:  # a matrix over nodes times one over features: the norm of a row is a product
        return PowerRows(graph, used[0], spend).norms * taps[used[0]].abs().sum(0)
    total = taps.new_zeros(graph.num_nodes, taps.size(2))
    step = max(1, MAX_ENTRIES // max(1, taps[0].numel()))
    for entries, rows in bank_entries(graph, taps.size(0) - 1, spend):
        for part, row in zip(entries.split(step), rows.split(step), strict=True):
            spend(float(len(part) * taps.numel()))
            total = total.index_add(0, row, (part @ taps.flatten(1)).view(-1, *taps.shape[1:]).abs().sum(1))
    return total


def output_norms(layers: Blocks, features: int, graph: Graph, *, thorough: bool = True) -> Tensor:
    """Bound the change of each output ``(N, O)`` when every input changes by at most 1.

    The readout may hold any rows, such as differences of classes. A thorough search tries all signs of up to 8 of a
    node's last ReLUs, as many as a fixed number of operations allows, and compares all pairs of columns for the kernel;
    otherwise the result is larger and comes sooner.
    """
    body, readout = split_readout(layers)
    units = torch.eye(graph.num_nodes * features, dtype=torch.float64).view(-1, graph.num_nodes, features)
    output, weight = propagate_differences(body, units, graph, thorough), None if readout is None else readout.weight
    return output.norms(weight, thorough) if isinstance(output, Differences) else row_norms(read_out(output, weight))


def row_norms(forms: Tensor) -> Tensor:
    """Return the 1-norm of each form, ``(M, N, F)`` to ``(N, F)``."""
    return forms.abs().sum(0)


@dataclass(frozen=True)
class Differences:
    """Forms after a nonlinearity: ``forms + d * rectified``, up to ``spread``, with any d between the slopes."""

    forms: Tensor  # (M, N, F)
    spread: Tensor  # (N, F), the size of a further unknown at every node and feature
    rectified: Tensor  # (M, N, F), the input of the pointwise function
    slopes: tuple[float, float]  # the least and the largest of that function

    def settle(self) -> Tensor:
        """Return forms with a fresh unknown at every node and feature, for the spread and for the slope."""
        forms, spread = self.halfway()
        return torch.cat([forms, torch.diag(spread.flatten()).view(-1, *spread.shape)])

    def norms(self, readout: Tensor | None, thorough: bool) -> Tensor:
        """Return the largest 1-norm of every form, ``(N, F)``, or after a readout ``(O, F)``, ``(N, O)``."""
        size = None if readout is None else readout.abs()
        if thorough:
            return self.over_slopes(readout) + read_out(self.spread, size)
        forms, spread = self.halfway()
        return row_norms(read_out(forms, readout)) + read_out(spread, size)

    def halfway(self) -> tuple[Tensor, Tensor]:
        """Return the forms for the slope in the middle, and the spread including that of other slopes."""
        low, high = self.slopes
        forms = self.forms + (low + high) / 2 * self.rectified
        return forms, self.spread + (high - low) / 2 * row_norms(self.rectified)

    def over_slopes(self, readout: Tensor | None) -> Tensor:
        """Return the largest 1-norm over slopes of a node's features: it is convex in them, so at the ends.

        Behind a readout only the features that weigh most are tried, as many as :func:`slopes_tried` allows.
        """
        if readout is None:
            return torch.maximum(*(row_norms(self.forms + slope * self.rectified) for slope in self.slopes))
        low, high = self.slopes
        norms, count = row_norms(self.rectified), slopes_tried(readout, self.forms[..., 0].numel())
        choices = torch.tensor(list(itertools.product(self.slopes, repeat=count)), dtype=torch.float64)
        step = max(1, IN_CACHE // max(1, self.forms.size(0) * len(choices)))
        best = []
        for row in readout:
            chosen = (row.abs() * norms.amax(0)).topk(count).indices
            rest = row.scatter(0, chosen, 0.0)
            fixed = self.forms @ row + self.rectified @ rest * ((low + high) / 2)
            scaled = choices * row[chosen]
            parts = zip(fixed.split(step, 1), self.rectified[..., chosen].split(step, 1), strict=True)
            largest = [(part.unsqueeze(-1) + free @ scaled.T).abs().sum(0).amax(-1) for part, free in parts]
            best.append(torch.cat(largest) + (high - low) / 2 * (norms @ rest.abs()))
        return torch.stack(best, -1)


def slopes_tried(readout: Tensor, coefficients: int) -> int:
    """Return for how many features of a node all combinations of slopes are tried, for a readout ``(O, F)``.

    ``coefficients`` is the number of forms of a feature times that of their columns.
    """
    if readout.numel() == 0:
        return 0
    affordable = int(math.log2(max(1, MAX_SIGN_WORK // max(1, coefficients * len(readout)))))
    return min(affordable, MAX_SIGNS, int((readout != 0).sum(1).max()))


def read_out(forms: Tensor, readout: Tensor | None) -> Tensor:
    """Return forms after the linear map that all nodes share."""
    return forms if readout is None else forms @ readout.T


def propagate_differences(layers: Blocks, forms: Tensor, graph: Graph, thorough: bool) -> Tensor | Differences:
    """Return differences after layers, from the forms ``(M, N, F)`` before them."""
    output: Tensor | Differences = forms
    for layer in layers:
        output = _differences(layer, output.settle() if isinstance(output, Differences) else output, graph, thorough)
    return output


def _differences(layer: Block, forms: Tensor, graph: Graph, thorough: bool) -> Tensor | Differences:
    centre, spread = torch.zeros_like(forms), torch.zeros_like(forms[0])
    match layer:
        case Filter():
            return graph_filter(forms, resolve_graph(layer, graph), layer.taps)
        case Linear():
            return read_out(forms, layer.weight)
        case Pointwise():
            return Differences(centre, spread, forms, find_rule(layer).slopes)
        case LayerNorm():  # nothing is known of the direction
            moved = row_norms(forms).amax(-1, keepdim=True) * layer_norm_slope(layer.features, layer.epsilon)
            moved = moved.expand_as(spread) if layer.weight is None else moved * layer.weight.abs()
            return Differences(centre, moved, centre, (0.0, 0.0))
        case Sum():
            outputs = [propagate_differences(branch, forms, graph, thorough) for branch in get_branches(layer)]
            branches = [output.settle() if isinstance(output, Differences) else output for output in outputs]
            shared = forms.size(0)  # then come the unknowns of each branch
            total = torch.stack([branch[:shared] for branch in branches]).sum(0)
            return torch.cat([total, *(branch[shared:] for branch in branches)])
        case HopMixture():
            rule = OPERATIONS[layer.operation]
            for hop in iterate_hops(layer, graph, forms):
                select = partial(rule.differences, layer, hop.signals[0], thorough)
                middle, deviation = hop.reduce(select, forms.size(0) * forms.size(-1))
                weight = layer.weights[hop.number]
                centre, spread = centre + weight * middle, spread + weight.abs() * deviation
            return Differences(centre, spread, forms * layer.beta, POINTWISE["relu"].slopes)


def form_sizes(layers: Blocks, features: int, graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield for each layer before the readout the coefficients of its forms, without and with its unknowns."""
    columns = graph.num_nodes * features
    body, _ = split_readout(layers)
    before = features
    for layer, width in zip(body, widths(body, features), strict=True):
        unknowns, widest = count_unknowns(layer, before, width)
        outputs, unknowns = graph.num_nodes * widest, graph.num_nodes * unknowns
        if isinstance(layer, Sum):  # its branches hold their unknowns before they are added
            columns, unknowns = columns + unknowns, 0
        yield columns * outputs, (columns + unknowns) * outputs
        columns, before = columns + unknowns, width


def count_unknowns(layer: Layer, before: int, width: int) -> tuple[int, int]:
    """Return the unknowns of a node after a layer, and the most features on the way."""
    if not isinstance(layer, Sum):
        return (width if isinstance(layer, Pointwise | HopMixture | LayerNorm) else 0), width
    unknowns, widest = 0, width
    for branch in get_branches(layer):
        inner = before
        for part, after in zip(branch, widths(branch, before), strict=True):
            more, wide = count_unknowns(part, inner, after)
            unknowns, widest, inner = unknowns + more, max(widest, wide), after
    return unknowns, widest


def is_affordable(layers: Blocks, features: int, graph: Graph) -> bool:
    """Return True if the affine forms of all layers fit into memory."""
    return all(size <= MAX_COEFFICIENTS for size, _ in form_sizes(layers, features, graph))
