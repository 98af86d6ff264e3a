"""Certified radii: exact for linear networks, sound for all others, above what a global constant gives."""

import csv
import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn

from graphact import Graph
from graphact.guarantees import attack_radius, certified_radius, radius
from graphact.nn import GCNN, GraphAdaptive, GraphFilter, LocalizedMax, ReLU, Residual, Sequential
from graphact.nn.description import call_on_graph
from graphact.spec.reductions import MIN
from guarantees.draws import Chain, LocalizedKernel, LocalizedMin
from guarantees.test_models import FEATURES, GRAPHS, LINEAR, NODES, OTHERS, SYMMETRIC, WEIGHTED, made
from support.places import ROOT


def gcnn(activation, hops=1, closed=False):
    options = {"hops": hops, "closed": closed, "gamma": 1.0, "start": "uniform"}
    return lambda: GCNN([3, 4, 4], order=1, activation=activation, out_features=3, **options)


GCNNS = {
    "relu": gcnn("relu"),
    "max-ga": gcnn("max-ga", hops=2),
    "median-ga": gcnn("median-ga", closed=True),
    "min-ga": gcnn(lambda features: GraphAdaptive(MIN, features=features, start="uniform")),
    "kernel-ga": gcnn("kernel-ga"),
    "max-l": gcnn("max-l", hops=2),
    "median-l": gcnn("median-l"),
    "mean-ga": gcnn("mean-ga", hops=2),
    "soft-maximum-ga": gcnn("soft-maximum-ga", closed=True),
    "trimmed-mean-ga": gcnn("trimmed-mean-ga", hops=2),
    "unshifted median-ga": gcnn({"name": "median-ga", "unshifted": True}, hops=2),
    "unshifted std": gcnn(lambda features: GraphAdaptive("std", features, unshifted=True, start="uniform")),
    "adaptive banks": lambda: GCNN(
        [3, 4, 4], order=1, bank="adaptive", ops=["max", "std"], residual=True, bias=True, out_features=3
    ),
}
MODELS = {**GCNNS, **OTHERS}


def signal(seed=0, nodes=NODES, features=FEATURES):
    return torch.randn(nodes, features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def graph_for(name, models):
    """Another one for each model in turn."""
    return [*GRAPHS.values()][[*models].index(name) % len(GRAPHS)]


@pytest.mark.parametrize("moving", ["all", "node"])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_models_have_their_exact_radius(name, moving):
    """The margin over the 1-norm of its gradient, from the dense Jacobian; two percent more is broken by the attack."""
    model, graph, x = made(LINEAR[name]), graph_for(name, LINEAR), signal()
    rows = torch.autograd.functional.jacobian(lambda x: call_on_graph(model, x, graph), x)
    outputs = call_on_graph(model, x, graph).detach()
    found = certified_radius(model, graph, x, moving=moving)
    attacked = attack_radius(model, graph, x, moving=moving)
    for node in range(NODES):
        first = outputs[node].argmax()
        gradients = rows[node, first] - rows[node]
        gradients = gradients if moving == "all" else gradients[:, node : node + 1]
        margins, norms = outputs[node, first] - outputs[node], gradients.abs().sum((1, 2))
        margins[first] = torch.inf
        exact = torch.where(norms > 1e-12, margins / norms, torch.inf).min().item()
        torch.testing.assert_close(found.constants[node], norms, rtol=1e-9, atol=1e-12)
        if exact == torch.inf:
            assert found.radius[node] == attacked[node] == torch.inf
            continue
        assert found.radius[node].item() == pytest.approx(exact, rel=0.011)
        assert found.radius[node] <= exact
        assert exact <= attacked[node] < 1.02 * found.radius[node] * 1.01
        assert found.decisions[node] == first


@pytest.mark.parametrize("moving", ["all", "node"])
@pytest.mark.parametrize("name", MODELS)
def test_no_attack_and_no_corner_beats_a_radius(name, moving):
    model, graph, x = made(MODELS[name], 3), graph_for(name, MODELS), signal(3)
    found = certified_radius(model, graph, x, moving=moving)
    assert bool((found.radius > 0).all())
    assert bool((found.radius >= found.from_constants * (1 - 1e-5)).all())
    assert bool((found.from_constants >= found.from_one_constant * (1 - 1e-9)).all())
    chosen = torch.arange(0, NODES, 3)
    assert bool((attack_radius(model, graph, x, chosen, moving=moving, restarts=4) >= found.radius[chosen]).all())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for node in chosen.tolist():
            corners = torch.where(torch.rand(64, *x.shape, generator=generator) < 0.5, -1.0, 1.0).double()
            if moving == "node":
                corners = corners * (torch.arange(NODES) == node).unsqueeze(-1)
            sizes = found.radius[node].clamp_max(1e6) * torch.linspace(0.5, 1, 64).double()[:, None, None]
            decided = torch.stack([call_on_graph(model, x + step, graph)[node].argmax() for step in sizes * corners])
            assert bool((decided == found.decisions[node]).all())


def test_constants_hold_for_any_two_signals():
    """Differences of margins of distant pairs, which know nothing of the signal that the radius is for."""
    model, graph = made(MODELS["median-ga"], 1), SYMMETRIC
    found = certified_radius(model, graph, signal())
    generator, largest = torch.Generator().manual_seed(0), torch.zeros(NODES, 3).double()
    with torch.no_grad():
        for scale, size in itertools.product((0.1, 1.0, 10.0), (0.01, 0.3, 3.0)):
            x = scale * torch.randn(100, NODES, FEATURES, generator=generator, dtype=torch.float64)
            step = size * torch.where(torch.rand(x.shape, generator=generator) < 0.5, -1.0, 1.0).double()
            change = model(x + step, graph) - model(x, graph)
            index = found.decisions.view(1, NODES, 1).expand(100, -1, -1)
            ratio = (change.gather(-1, index) - change).abs() / size
            largest = largest.maximum(ratio.amax(0))
    assert bool((largest <= found.constants + 1e-9).all())
    assert bool((largest > 0.02 * found.constants).any())


def test_a_small_network_against_all_corners():
    """Three nodes with one feature: every point of a fine grid of the cube, and the radius is not far below."""
    torch.manual_seed(1)
    path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).to(torch.float64)
    model = GCNN([1, 3], order=1, activation="max-ga", start="uniform", out_features=2).double()
    x = signal(0, 3, 1)
    grid = torch.cartesian_prod(*[torch.linspace(-1, 1, 21, dtype=torch.float64)] * 3).unsqueeze(-1)
    found, attacked = certified_radius(model, path, x), attack_radius(model, path, x)
    with torch.no_grad():
        for node in range(3):
            for size in torch.logspace(-3, 2, 400, dtype=torch.float64):
                if (model(x + size * grid, path)[:, node].argmax(-1) != found.decisions[node]).any():
                    break
            assert found.radius[node] < size
            assert found.radius[node] > 0.3 * size
            assert found.radius[node] <= attacked[node]
            assert attacked[node] == pytest.approx(size.item(), rel=0.1)


@pytest.mark.parametrize("moving", ["all", "node"])
@pytest.mark.parametrize("name", ["max-ga", "max-l", "PassGraph", "residual", "kernel-ga"])
def test_a_node_depends_on_its_field_alone(name, moving, monkeypatch):
    """On a long cycle: the same radii as with all nodes at hand."""
    around = torch.arange(30)
    edge_index = torch.cat([torch.stack([around, (around + 1) % 30]), torch.stack([(around + 1) % 30, around])], 1)
    graph = Graph.from_edge_index(edge_index, torch.linspace(0.5, 1.5, 60).double())
    model, x = made(MODELS[name]), signal(0, 30)
    with torch.no_grad():
        network = radius.ClassifierAtSignal(model, graph, x, moving)
    assert len(network.field(network.layers, np.array([0]))) < 30
    found = certified_radius(model, graph, x, [0, 7], moving=moving)
    monkeypatch.setattr(radius.ClassifierAtSignal, "field", lambda self, layers, nodes: np.arange(30))
    whole = certified_radius(model, graph, x, [0, 7], moving=moving)
    torch.testing.assert_close(found.radius, whole.radius, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.constants, whole.constants, rtol=1e-9, atol=0)


def test_negligible_rows_cost_little_and_are_on_the_safe_side(monkeypatch):
    model, x = made(MODELS["max-ga"]), signal()
    monkeypatch.setattr(radius, "IN_CACHE", 1)
    found = certified_radius(model, WEIGHTED, x)
    monkeypatch.setattr(radius, "NEGLIGIBLE", 0.0)
    exact = certified_radius(model, WEIGHTED, x)
    assert bool((found.constants >= exact.constants * (1 - 1e-12)).all())
    assert bool((found.constants <= 1.02 * exact.constants + 1e-12).all())
    assert bool((found.radius >= 0.96 * exact.radius).all())


def test_activations_of_one_layer_and_of_the_input():
    """A first layer that is no linear map, in other orders and in branches."""
    x = signal(0, NODES, 2)
    for model in (
        Chain(ReLU(), nn.Linear(2, 3)),
        Chain(LocalizedMax(hops=2, start="uniform"), nn.Linear(2, 3)),
        Chain(LocalizedMin(start="uniform"), LocalizedKernel(gamma=1.0, start="uniform")),
        Sequential(Residual(LocalizedMax(start="uniform"), GraphFilter(2, 2, order=2)), nn.Linear(2, 3)),
        nn.Identity(),
    ):
        model = model.double()
        for moving in ("all", "node"):
            found = certified_radius(model, WEIGHTED, x, [0, 5], moving=moving)
            attacked = attack_radius(model, WEIGHTED, x, [0, 5], moving=moving)
            assert bool((found.radius <= attacked).all())
            assert bool((found.radius > 0).all())


def test_nodes_without_neighbours():
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), torch.ones(1).double(), 4)
    for name in ("max-ga", "kernel-ga", "PassGraph"):
        model, x = made(MODELS[name]), signal(0, 4)
        found, attacked = certified_radius(model, graph, x), attack_radius(model, graph, x)
        assert bool((found.radius <= attacked).all() and (found.radius > 0).all())
        alone = certified_radius(model, graph, x, [3], moving="node")
        assert alone.radius.item() == pytest.approx(found.radius[3].item(), rel=0.02)


def test_a_tie_has_no_radius():
    model = nn.Linear(1, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    assert bool((certified_radius(model, WEIGHTED, signal(0, NODES, 1)).radius == 0).all())


def test_what_cannot_be_asked():
    model, x = made(MODELS["relu"]), signal()
    with pytest.raises(ValueError, match="x must be one signal"):
        certified_radius(model, WEIGHTED, x.unsqueeze(0))
    with pytest.raises(ValueError, match="at least two outputs"):
        certified_radius(nn.Linear(3, 1).double(), WEIGHTED, x)
    with pytest.raises(ValueError, match="moving must be one of"):
        certified_radius(model, WEIGHTED, x, moving="some")
    for nodes in ([], [NODES], [-1], [0.5], [[0]], [True], "all"):
        with pytest.raises(ValueError, match="nodes must be"):
            certified_radius(model, WEIGHTED, x, nodes)
    with pytest.raises(ValueError, match="restarts must be"):
        attack_radius(model, WEIGHTED, x, restarts=0)


def test_progress_is_reported():
    shares = []
    certified_radius(made(MODELS["relu"]), WEIGHTED, signal(), [0, 1, 2, 3], progress=shares.append)
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_published_radii_of_cora():
    """No attack came below a certificate, every test node has one, and the page quotes the rows."""
    root = ROOT
    if not (root / "results").is_dir():
        pytest.skip("the published results are not in a source distribution")
    with (root / "results/certified-cora/nodes.csv").open(newline="") as sheet:
        rows = list(csv.DictReader(sheet))
    page = (root / "docs/guarantees.md").read_text()
    published = json.loads((root / "results/certified-cora/summary.json").read_text())
    for moving, what in (("all", "features of all nodes"), ("node", "features of the node")):
        chosen = [row for row in rows if row["moving"] == moving]
        values = {name: np.array([float(row[name]) for row in chosen]) for name in rows[0] if name != "moving"}
        certified, attack = values["certified"], values["attack"]
        one_constant = values["margin"] / values["constant"].max()
        assert len({row["node"] for row in chosen}) == len(chosen) == 1000
        assert np.all((certified > 0) & (certified <= attack))
        assert np.all(certified >= values["pairwise"] * (1 - 1e-5))
        ratio = np.median(certified / attack)
        assert published[moving]["certified / attack"] == pytest.approx(ratio)
        medians = [np.median(each) for each in (one_constant, values["pairwise"], certified, attack)]
        cells = [f"{each:#.2g}" for each in medians]
        assert f"| {what} | {' | '.join(cells)} | {np.median(certified / one_constant):.1f} | {ratio:.2f} |" in page


def test_radii_are_not_rounded_to_single_precision():
    """float32 rounds up half of the time, and a radius above its range became infinite."""
    layer, graph = nn.Linear(2, 2).double(), WEIGHTED
    for scale in (1.0, 1e-60, 1e60):
        with torch.no_grad():
            layer.weight.copy_(scale * torch.tensor([[1.0, 0.1], [0.3, 0.7]]).double())
            layer.bias.copy_(torch.tensor([1.0, 0.0]))
        x = torch.zeros(graph.num_nodes, 2, dtype=torch.float64)
        found = certified_radius(layer, graph, x)
        exact = 1 / (layer.weight[0] - layer.weight[1]).abs().sum().item()
        assert (found.radius <= exact).all()
        assert (found.radius >= 0.99 * exact).all()
        assert not torch.equal(found.radius.float().double(), found.radius)


def test_constants_that_overflow_certify_nothing():
    """The products of layers exceed the range of float64, and infinity meets zeros; the rival is reached at 1."""
    model = GCNN([1, 2, 2], order=0, activation="relu", out_features=2).double()
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
        first, second = (part for name, part in model.named_parameters() if name.endswith("taps"))
        first[0] = torch.tensor([[1e200, 1.0]], dtype=torch.float64)
        second[0] = torch.tensor([[1e200, 0.0], [0.0, 2.0]], dtype=torch.float64)
        model.readout.weight[:] = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
        model.readout.bias[:] = torch.tensor([1.0, 0.0])
    x = torch.full((NODES, 1), -0.5, dtype=torch.float64)
    found = certified_radius(model, WEIGHTED, x)
    assert not found.constants.isnan().any()
    assert (found.radius <= 1).all()


@pytest.mark.parametrize("search", [certified_radius, attack_radius])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_refused(search, value):
    model = GCNNS["max-ga"]().double()
    x = torch.randn(NODES, 3, dtype=torch.float64)
    wrong = x.clone()
    wrong[1, 0] = value
    with pytest.raises(ValueError, match=f"x must be finite, got {value}"):
        search(model, WEIGHTED, wrong)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] = value
    with pytest.raises(ValueError, match=f"parameters of the model must be finite, got {value}"):
        search(model, WEIGHTED, x)
