"""Every wrong argument gets an error that names it, what was expected and what came."""

import pytest
import torch

from graphact import Graph, functional

GRAPH = Graph.from_edge_index([[0, 1], [1, 2]])
X = torch.ones(3, 2)
W = torch.ones(1)


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
    for function in (functional.shift, functional.neighborhood_max, functional.neighborhood_kernel):
        with pytest.raises(error, match=message):
            function(x, GRAPH)
    with pytest.raises(error, match=message):
        functional.graph_adaptive(x, GRAPH, 1.0, W)
    with pytest.raises(error, match=message):
        functional.localized(x, GRAPH, 1.0, W)
    with pytest.raises(error, match=message):
        functional.graph_filter(x, GRAPH, W)


@pytest.mark.parametrize("graph", [None, torch.eye(3), [[0], [1]]])
def test_bad_graph(graph):
    with pytest.raises(TypeError, match="graph must be a graphact.Graph, got"):
        functional.shift(X, graph)


@pytest.mark.parametrize(
    ("beta", "weights", "error", "message"),
    [
        ("1", W, TypeError, "beta must be a number or a scalar tensor, got str"),
        (torch.ones(2), W, ValueError, r"beta must be a scalar, got the shape \(2,\)"),
        (torch.tensor(1.0, dtype=torch.float64), W, TypeError, "beta must have the dtype of x, torch.float32"),
        (1.0, [1.0], TypeError, "weights must be a torch.Tensor, got list"),
        (1.0, torch.ones(()), ValueError, r"weights must have the shape .* got \(\)"),
        (1.0, torch.ones(0), ValueError, r"K at least 1 and F = 2, .* got \(0,\)"),
        (1.0, torch.ones(1, 3), ValueError, r"F = 2, .* got \(1, 3\)"),
        (1.0, torch.ones(1, 2, 1), ValueError, r"got \(1, 2, 1\)"),
        (1.0, W.double(), TypeError, "weights must have the dtype of x, torch.float32, got torch.float64"),
        (1.0, torch.ones(1, device="meta"), ValueError, "weights must be on the device of x, cpu, got meta"),
    ],
)
@pytest.mark.parametrize("activation", [functional.graph_adaptive, functional.localized])
def test_bad_coefficients(activation, beta, weights, error, message):
    with pytest.raises(error, match=message):
        activation(X, GRAPH, beta, weights)


@pytest.mark.parametrize("activation", [functional.graph_adaptive, functional.localized])
def test_unknown_operation(activation):
    with pytest.raises(ValueError, match="op must be one of 'max', .* or a function, got 'mode'"):
        activation(X, GRAPH, 1.0, W, op="mode")


@pytest.mark.parametrize(
    ("gamma", "error", "message"),
    [
        (0.0, ValueError, "gamma must be a finite number above 0, got 0.0"),
        (-1, ValueError, "got -1"),
        (float("nan"), ValueError, "got nan"),
        ("wide", TypeError, "gamma must be a number, got 'wide'"),
        (torch.ones(2), ValueError, r"gamma must have one element, got the shape \(2,\)"),
    ],
)
def test_bad_gamma(gamma, error, message):
    with pytest.raises(error, match=message):
        functional.neighborhood_kernel(X, GRAPH, gamma)


@pytest.mark.parametrize(
    ("op", "parameters", "error", "message"),
    [
        ("kernel", {"gama": 1.0}, TypeError, "parameters must hold those of the operation 'kernel', gamma, got gama"),
        ("kernel", {}, TypeError, "of the operation 'kernel', gamma, got none"),
        ("max", {"gamma": 1.0}, TypeError, "of the operation 'max', none, got gamma"),
        ("log-mean-exp", {"temperature": 0.0}, ValueError, "temperature must be a finite number above 0, got 0.0"),
        (["max"], None, ValueError, r"op must be one of 'max', .* or a function, got \['max'\]"),
    ],
)
@pytest.mark.parametrize("activation", [functional.graph_adaptive, functional.localized])
def test_bad_parameters(activation, op, parameters, error, message):
    with pytest.raises(error, match=message):
        activation(X, GRAPH, 1.0, W, op, parameters=parameters)


@pytest.mark.parametrize("ops", ["max", {"max"}, 1, iter(["max"])])
def test_operations_that_are_not_a_list(ops):
    with pytest.raises(TypeError, match="ops must list operations, such as"):
        functional.graph_adaptive_mixture(X, GRAPH, 1.0, W.unsqueeze(0), ops)
