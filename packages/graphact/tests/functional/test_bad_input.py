"""Every wrong argument gets an error that names it, what was expected and what came."""

import pytest
import torch

from graphact import Graph, functional

GRAPH = Graph.from_edge_index([[0, 1], [1, 2]])
X = torch.ones(3, 2)
W = torch.ones(1)
PAIR, ONE = Graph.from_edge_index([[0], [1]]), torch.ones(2, 1)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([[1.0]], TypeError, "x must be a torch.Tensor, got list"),
        (torch.ones(3, 2, dtype=torch.int64), TypeError, "x must hold floating-point numbers, got torch.int64"),
        (torch.ones(3), ValueError, r"x must have the shape \(..., N, F\) with N = 3, .* got \(3,\)"),
        (torch.ones(4, 2), ValueError, r"N = 3, .* got \(4, 2\)"),
        (torch.ones(2, 3), ValueError, r"N = 3, .* got \(2, 3\)"),
        (torch.ones(3, 2, dtype=torch.float64), TypeError, "dtype of the graph, torch.float32 .* got torch.float64"),
        (torch.ones(3, 2, device="meta"), ValueError, "x must be on the device of the graph, cpu, got meta"),
    ],
)
def test_bad_signal(x, error, message):
    for function, *arguments in (
        (functional.shift,),
        (functional.neighborhood_max,),
        (functional.neighborhood_kernel,),
        (functional.graph_adaptive, 1.0, W),
        (functional.localized, 1.0, W),
        (functional.graph_filter, W),
    ):
        with pytest.raises(error, match=message):
            function(x, GRAPH, *arguments)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"beta": "1"}, TypeError, "beta must be a number or a scalar tensor, got str"),
        ({"beta": torch.ones(2)}, ValueError, r"beta must be a scalar, got the shape \(2,\)"),
        ({"beta": torch.tensor(1.0).double()}, TypeError, "beta must have the dtype of x, torch.float32"),
        ({"weights": [1.0]}, TypeError, "weights must be a torch.Tensor, got list"),
        ({"weights": torch.ones(())}, ValueError, r"weights must have the shape .* got \(\)"),
        ({"weights": torch.ones(0)}, ValueError, r"K at least 1 and F = 2, .* got \(0,\)"),
        ({"weights": torch.ones(1, 3)}, ValueError, r"F = 2, .* got \(1, 3\)"),
        ({"weights": torch.ones(1, 2, 1)}, ValueError, r"got \(1, 2, 1\)"),
        ({"weights": W.double()}, TypeError, "weights must have the dtype of x, torch.float32, got torch.float64"),
        ({"weights": torch.ones(1, device="meta")}, ValueError, "weights must be on the device of x, cpu, got meta"),
        ({"op": "mode"}, ValueError, "op must be one of 'max', .* or a function, got 'mode'"),
        ({"op": ["max"]}, ValueError, r"op must be one of 'max', .* or a function, got \['max'\]"),
        ({"op": "kernel", "parameters": {"gama": 1.0}}, TypeError, "those of the operation 'kernel', gamma, got gama"),
        ({"op": "kernel", "parameters": {}}, TypeError, "of the operation 'kernel', gamma, got none"),
        ({"op": "max", "parameters": {"gamma": 1.0}}, TypeError, "of the operation 'max', none, got gamma"),
        ({"op": "log-mean-exp", "parameters": {"temperature": 0.0}}, ValueError, "temperature must .* got 0.0"),
        ({"op": "trimmed-mean", "parameters": {"trim": torch.tensor(0.2)}}, TypeError, "trim must be a number"),
    ],
)
@pytest.mark.parametrize("activation", [functional.graph_adaptive, functional.localized])
def test_bad_activation(activation, changes, error, message):
    with pytest.raises(error, match=message):
        activation(X, GRAPH, **{"beta": 1.0, "weights": W, **changes})


def with_gamma(gamma):
    return lambda: functional.neighborhood_kernel(X, GRAPH, gamma)


def with_function(function):
    return lambda: functional.neighborhood_apply(ONE, PAIR, function)


def with_taps(*shape):
    return lambda: functional.graph_filter(ONE, PAIR, torch.ones(shape))


def with_flow(theta, radius=1.0, dtype=torch.float32):
    return lambda: functional.cpab(torch.zeros(3, dtype=dtype), theta, radius)


BAD_TAPS = r"taps must have the shape .* F_in = 1, .* got \("
NO_LIST = "ops must list operations, such as"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        *((lambda graph=graph: functional.shift(X, graph), TypeError, "graph must be a graphact.Graph, got")
          for graph in (None, torch.eye(3), [[0], [1]])),
        *((lambda ops=ops: functional.graph_adaptive_mixture(X, GRAPH, 1.0, W.unsqueeze(0), ops), TypeError, NO_LIST)
          for ops in ("max", {"max"}, 1, iter(["max"]))),
        (with_gamma(0.0), ValueError, "gamma must be a finite number above 0, got 0.0"),
        (with_gamma(-1), ValueError, "got -1"),
        (with_gamma(float("nan")), ValueError, "got nan"),
        (with_gamma("wide"), TypeError, "gamma must be a number, got 'wide'"),
        (with_gamma(torch.ones(2)), ValueError, r"gamma must have one element, got the shape \(2,\)"),
        (with_function(lambda a, b, c: a), TypeError, "got 3 required arguments"),
        (with_function(lambda: 1.0), TypeError, "got 0 required arguments"),
        (with_function(lambda neighbors: neighbors), ValueError, r"one value a node and feature, \(1, 1\), got"),
        (with_function(lambda neighbors: 1.0), ValueError, "got float"),
        (with_function("median"), TypeError, "function must be callable, got 'median'"),
        (with_function(3), TypeError, "function must be callable, got 3"),
        *((with_taps(*shape), ValueError, BAD_TAPS) for shape in ((0,), (2, 2), (2, 3, 1), (0, 1, 1))),
        (with_flow(torch.tensor(1.0)), ValueError, r"theta must have the shape \(..., n - 1\) .* got \(\)"),
        (with_flow(torch.zeros(0)), ValueError, r"theta must have the shape .* got \(0,\)"),
        (with_flow([1.0]), TypeError, "theta must be"),
        (with_flow(torch.zeros(3), radius=0.0), ValueError, "radius must be a finite number above 0"),
        # integers of two bytes passed for half precision, in which the velocities were rounded to 0
        *((with_flow(torch.full((3,), 0.3), dtype=dtype), TypeError, "theta must have the dtype of x")
          for dtype in (torch.int16, torch.int64, torch.bool)),
        (lambda: functional.max_k(torch.tensor(1.0), 1), ValueError, r"shape \(..., F\), got a single number"),
    ],
)  # fmt: skip
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
