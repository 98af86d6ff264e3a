"""The table in docs/activations.md against the code: parameters, exchanges, certificates."""

import math
import re

import pytest
import torch

from graphact import nn
from graphact.guarantees import lipschitz_bound
from graphact.registry import BUILT_IN, POINTWISE
from graphact.spec import UnsupportedModelError
from support.graphs import random_graph
from support.places import ROOT

PAGE = (ROOT / "docs" / "activations.md").read_text()
FORMULAS, TABLE, CONVOLUTIONS = (
    {
        row[0].strip("`"): row[1:]
        for line in part.splitlines()
        if line.startswith("| `")
        for row in [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]]
    }
    for part in re.split(r"## (?:What they cost|Convolutions)", PAGE)
)


def value_of(expression, features, hops, **others):
    """An expression of K, F and perhaps others; nothing else is in scope."""
    code = re.match(r"`([^`]*?)\*?`", expression).group(1)
    return eval(code, {"__builtins__": {}}, {"F": features, "K": hops, **others})


def test_every_activation_has_a_row():
    assert set(TABLE) == set(BUILT_IN)
    assert all(len(row) == 6 for row in TABLE.values())
    named = PAGE.partition("further functions are pointwise:")[2].partition(".\n\n")[0]
    assert {*FORMULAS, *re.findall(r"`([\w-]+)`", named)} == set(BUILT_IN)
    assert set(CONVOLUTIONS) == set(nn.graph_network.CONVOLUTIONS)


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("features", [2, 5])
@pytest.mark.parametrize("name", TABLE)
def test_parameters_and_exchanges(name, features, hops):
    parameters, exchanges, *_ = TABLE[name]
    module = nn.make_activation(name, features=features, hops=hops)
    layers = module.layers()  # none of the identity
    assert sum(parameter.numel() for parameter in module.parameters()) == value_of(parameters, features, hops)
    assert sum(layer.exchanges for layer in layers) == value_of(exchanges, features, hops)
    assert exchanges.endswith("*`") == any(getattr(layer, "pools", False) for layer in layers)


@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, order):
    graph = random_graph(dtype=torch.float32)
    given = {"graph": graph} if name == "EdgeNet" else {}
    module = nn.graph_network.CONVOLUTIONS[name](3, 4, order=order, **given)
    (layer,) = module.layers()
    sizes = {"G": 3, "E": graph.num_edges, "N": graph.num_nodes}
    assert sum(p.numel() for p in module.parameters()) == value_of(CONVOLUTIONS[name][1], 4, order, **sizes)
    assert layer.exchanges == value_of(CONVOLUTIONS[name][2], 4, order)


@pytest.mark.parametrize("name", TABLE)
def test_certificates(name):
    *_, certified, _ = TABLE[name]
    graph = random_graph(dtype=torch.float32)
    module = nn.make_activation(name, features=2)
    if certified == "yes":
        lipschitz_bound(module, graph)
        return
    assert certified == "no"
    with pytest.raises(UnsupportedModelError, match="nothing is known|no rule for") as caught:
        lipschitz_bound(module, graph)
    assert "\n" not in str(caught.value)


def largest_change(module, graph, scale=1.0):
    """The largest change of an output for random signals of this scale, of which each value changes by 1."""
    x, step = torch.randn(200, 12, 3, dtype=torch.float64), torch.randn(200, 12, 3, dtype=torch.float64).sign()
    return (module(scale * x + step, graph) - module(scale * x, graph)).abs().max()


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name][3] != "none"])
def test_constants_of_the_table_hold(name):
    """Random pairs of signals; DiGRAF without its network, whose constant the table does not give."""
    graph = random_graph()
    options = {"kernel-ga": {"gamma": 3.0}, "digraf": {"adaptive": False}}.get(name, {})
    module = nn.make_activation(name, features=3, hops=2, **options).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.02 if name == "digraf" else 3.0)
    powers = torch.stack([torch.linalg.matrix_power(graph.to_dense(), k).abs().sum(1).max() for k in (1, 2)])
    if name == "relu" or name in POINTWISE:
        trained = {"prelu": lambda: module.slope.abs().max().clamp_min(1), "maxout": lambda: module.slope.abs().max()}
        bound = trained[name]() if name in trained else float(TABLE[name][3])
    elif name == "digraf":
        bound = (torch.tanh(torch.nn.functional.pad(module.theta, (1, 1))).diff().abs().max() * module.cells).exp()
    elif name.startswith("shiftless"):
        bound = module.beta.abs() + module.weight.sum(0).abs().sum(1).max()
    else:
        norms = torch.ones(2).double() if name.endswith("-l") else powers
        if name == "kernel-ga":
            norms = norms * 2 * graph.degree.max().sqrt() * math.exp(-0.5) / module.gamma
        by_hop = module.weights.abs() if name != "mixture-ga" else module.weights.abs().sum(0)
        bound = module.beta.abs() + (by_hop * norms.unsqueeze(-1)).sum(0).max()
    assert 0.05 * bound < largest_change(module, graph) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name][3] == "none"])
def test_where_the_table_gives_no_constant_there_is_none(name):
    """Changes grow with the signals."""
    module, graph = nn.make_activation(name, features=3, hops=2).double(), random_graph()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    assert largest_change(module, graph, 100.0) > 8 * largest_change(module, graph)


def test_the_examples_run():
    space = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, space)
    assert space["scores"].shape == (16, 40, 4)
    assert space["model"](torch.randn(2, 40, 1), space["graph"]).shape == (2, 40, 4)
    assert space["digraf"].activations[0].radius == 3.0
