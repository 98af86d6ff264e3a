"""The table in docs/activations.md against the code: parameters, exchanges, certificates."""

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


@pytest.mark.parametrize("name", TABLE)
def test_constants_of_the_table_hold(name):
    """Random pairs of signals, where the table gives a constant that does not depend on degrees or networks."""
    constant = TABLE[name][3]
    if constant.startswith("none") or name in ("kernel-ga", "digraf"):
        return
    graph = random_graph()
    module = nn.make_activation(name, features=3, hops=2).double()
    powers = [torch.linalg.matrix_power(graph.to_dense(), k).abs().sum(1).max() for k in (1, 2)]
    if name == "relu" or name in POINTWISE:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=3.0)
        trained = {"prelu": lambda: module.slope.abs().max().clamp_min(1), "maxout": lambda: module.slope.abs().max()}
        bound = trained[name]() if name in trained else float(constant)
    elif name.startswith("shiftless"):
        bound = module.beta.abs() + module.weight.sum(0).abs().sum(1).max()
    else:
        norms = torch.ones(2).double() if name.endswith("-l") else torch.stack(powers)
        by_hop = module.weights.abs() if name != "mixture-ga" else module.weights.abs().sum(0)
        bound = module.beta.abs() + (by_hop * norms.unsqueeze(-1)).sum(0).max()
    x, step = torch.randn(200, 12, 3, dtype=torch.float64), torch.randn(200, 12, 3, dtype=torch.float64).sign()
    moved = (module(x + step, graph) - module(x, graph)).abs().max()
    assert 0.05 * bound < moved <= bound * (1 + 1e-12)


def test_the_examples_run():
    space = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, space)
    assert space["scores"].shape == (16, 40, 4)
    assert space["model"](torch.randn(2, 40, 1), space["graph"]).shape == (2, 40, 4)
    assert space["digraf"].activations[0].radius == 3.0
