"""Means of neighbourhoods: over segments of edges and degree by degree, against plain loops."""

import math

import pytest
import torch

from graphact import Graph
from graphact.functional.neighborhood import evaluate_function, neighborhood
from graphact.functional.segments import evaluate_segments
from graphact.spec.reductions import Operation, find_operation
from support import oracle
from support.graphs import random_case
from support.tolerances import assert_near

NAMES = ("mean", "log-mean-exp", "trimmed-mean", "weighted-mean")
VALUES = {
    "mean": {},
    "log-mean-exp": {"temperature": 0.3},
    "trimmed-mean": {"trim": 0.35},
    "weighted-mean": {"width": 0.7},
}
NAN, INF = math.nan, math.inf


def expected(case, name, closed):
    return oracle.neighborhoods(case.edges, case.x, name, *VALUES[name].values(), closed=closed)


@pytest.mark.parametrize("way", [evaluate_segments, evaluate_function])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, closed, way):
    for seed in range(40):
        case = random_case(seed)
        found = way(case.signal, case.graph.incoming, find_operation(name), VALUES[name], closed)
        assert_near(found, expected(case, name, closed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_lower_precision(name, dtype):
    case = random_case(8)
    found = evaluate_segments(case.signal.to(dtype), case.graph.incoming, find_operation(name), VALUES[name], False)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), torch.from_numpy(expected(case, name, False)), rtol=0.03, atol=0.03)


# 0 hears 1, 2, 3, 4; 1 hears 0 and 2; 2 hears 1; 3 and 4 hear nobody
HEARS = Graph.from_edge_index([[1, 2, 3, 4, 0, 2, 1], [0, 0, 0, 0, 1, 1, 2]], num_nodes=5)
TABLE = [
    ("mean", [5, 1, 4, 2, 3], [2.5, 4.5, 1, 0, 0]),
    ("mean", [0, 1, NAN, 2, 3], [NAN, NAN, 1, 0, 0]),
    ("trimmed-mean", [5, 1, 4, 2, 3], [2.5, 4.5, 1, 0, 0]),
    ("trimmed-mean", [5, -INF, INF, 2, 3], [2.5, INF, -INF, 0, 0]),  # an outlier is cut off, however far it is
    ("trimmed-mean", [0, 1, NAN, 2, 3], [NAN, NAN, 1, 0, 0]),
    ("log-mean-exp", [0, 800, 800, 800, 800], [800, 800 + math.log(0.5), 800, 0, 0]),
    ("log-mean-exp", [0, -INF, -INF, -INF, -INF], [-INF, math.log(0.5), -INF, 0, 0]),
    ("log-mean-exp", [0, INF, 1, 2, 3], [INF, math.log((1 + math.e) / 2), INF, 0, 0]),
    ("log-mean-exp", [0, 1, NAN, 2, 3], [NAN, NAN, 1, 0, 0]),
    ("weighted-mean", [1, 1, 100, -100, 1], [1, 1, 1, 0, 0]),  # outliers have no weight
    ("weighted-mean", [0, 1000, 2000, 3000, 4000], [1000, 1000, 1000, 0, 0]),  # and the nearest have all, however far
    ("weighted-mean", [0, 1, NAN, 2, 3], [NAN, NAN, NAN, 0, 0]),
]


@pytest.mark.parametrize("way", [evaluate_segments, evaluate_function])
@pytest.mark.parametrize(("name", "x", "out"), TABLE)
def test_truth_table(name, x, out, way):
    op = find_operation(name)
    found = way(torch.tensor(x, dtype=torch.float64).unsqueeze(-1), HEARS.incoming, op, op.parameters, False)
    torch.testing.assert_close(found.squeeze(-1), torch.tensor(out, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name, closed):
    case = next(case for case in map(random_case, range(100)) if 10 < case.graph.num_edges < 25 and case.x.ndim == 3)
    x, op = case.signal.requires_grad_(), find_operation(name)
    trained = {key: torch.tensor(value, dtype=torch.float64, requires_grad=True) for key, value in VALUES[name].items()}
    trained = {} if name == "trimmed-mean" else trained

    def function(x, *values):
        parameters = dict(zip(trained, values, strict=True)) if trained else VALUES[name]
        return evaluate_segments(x, case.graph.incoming, op, parameters, closed)

    assert torch.autograd.gradcheck(function, (x, *trained.values()), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x, *trained.values()), fast_mode=True)


def test_a_hub_takes_no_more_than_its_edges():
    """A star: no tensor on the way is larger than edges times features, whatever the largest degree."""
    leaves = 3000
    hub = [[*range(1, leaves + 1), *[0] * leaves], [*[0] * leaves, *range(1, leaves + 1)]]
    graph, x = Graph.from_edge_index(hub, num_nodes=leaves + 1), torch.randn(leaves + 1, 2)
    for name in NAMES:
        op, largest = find_operation(name), []
        with Watch(largest):
            evaluate_segments(x, graph.incoming, op, op.parameters, False)
        assert max(largest) <= graph.num_edges * x.size(-1)


class Watch(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.sizes += [
            part.numel()
            for part in (out if isinstance(out, (tuple, list)) else [out])
            if isinstance(part, torch.Tensor)
        ]
        return out


def test_an_operation_of_the_same_name_is_another():
    """Operations are looked up by identity, not by name."""
    x = torch.tensor([[1.0], [2.0], [4.0], [0.0], [0.0]])
    twice = Operation("mean", lambda neighbors: 2 * neighbors.mean(-2))
    assert torch.equal(neighborhood(x, HEARS, twice), 2 * neighborhood(x, HEARS, "mean"))
