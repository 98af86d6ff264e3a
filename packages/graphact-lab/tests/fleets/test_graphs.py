"""Fleets of graph classifiers beside a plain loop over one dense model and its own training graphs, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphact import Graph
from graphact.nn import ACTIVATIONS
from graphact_lab.data.graph_sets import GraphSet
from graphact_lab.experiments.graph_classification.gin import GINNetwork
from graphact_lab.fleets.active import dropout_masks
from graphact_lab.fleets.graphs import GraphFleet
from graphact_lab.splits import Split

GRAPHS, FEATURES, WIDTH, LAYERS, EPOCHS = 30, 3, 4, 2, 12
SEEDS, RATES, DECAYS, DROPOUTS = (3, 3, 8), (0.05, 0.01, 0.02), (0.0, 0.01, 0.0), (0.5, 0.0, 0.3)


@pytest.fixture(scope="module")
def data():
    """Graphs of different sizes, whose class shows in features and edges, with some noise."""
    generator = torch.Generator().manual_seed(1)
    graphs, y, sizes = [], torch.arange(GRAPHS) % 2, []
    for label in y.tolist():
        size = int(torch.randint(3, 9, (), generator=generator))
        drawn = torch.rand(size, size, generator=generator).triu(1) < (0.4 if label else 0.7)
        graphs.append(Graph.from_dense((drawn | drawn.t()).double()))
        sizes.append(size)
    x = torch.randn(sum(sizes), FEATURES, generator=generator, dtype=torch.float64)
    member = torch.arange(GRAPHS).repeat_interleave(torch.tensor(sizes))
    x[:, 0] += 0.3 * y[member]
    return GraphSet("MUTAG", x, y, member, Graph.union(graphs))


@pytest.fixture(scope="module")
def splits():
    made = []
    for number, sizes in enumerate([(15, 7), (12, 10), (18, 5)]):  # parts of different sizes
        order = torch.randperm(GRAPHS, generator=torch.Generator().manual_seed(number))
        made.append(Split(order[: sizes[0]], order[sizes[0] : sum(sizes)], order[sum(sizes) :]))
    return made


def make(number, **options):
    torch.manual_seed(number)
    return GINNetwork(FEATURES, WIDTH, 2, layers=LAYERS, **options).double()


def fleet_of(data, splits, models, places=range(3)):
    partitions = [data.batches(10, number) for number in range(2)]
    given = {"seeds": SEEDS, "rates": RATES, "decays": DECAYS, "dropouts": DROPOUTS}
    settings = {name: [values[place] for place in places] for name, values in given.items()}
    chosen = [splits[place] for place in places]
    return GraphFleet(models, partitions, data.y, chosen, **settings, dtype=torch.float64), partitions


class Plain(nn.Module):
    """The same network of torch's own parts, on a dense adjacency of some graphs."""

    def __init__(self, model):
        super().__init__()
        self.model, self.norms = model, nn.ModuleList(nn.BatchNorm1d(WIDTH).double() for _ in range(2 * LAYERS))

    def forward(self, data, graphs, mask=None):
        nodes = torch.cat([(data.member == graph).nonzero().squeeze(1) for graph in graphs.tolist()])
        adjacency = data.graph.to_dense().double()[nodes][:, nodes]
        root = adjacency.sum(1).clamp(min=1).rsqrt()
        shift, x, sums = root[:, None] * adjacency * root, data.x[nodes], []
        for number, (layer, activation) in enumerate(zip(self.model.layers, self.model.activations, strict=True)):
            x = ((1 + layer.eps) * x + adjacency @ x) @ layer.maps[0].weight
            x = F.relu(self.norms[2 * number](x)) @ layer.maps[1].weight
            x = self.activate(activation, self.norms[2 * number + 1](x), shift, adjacency)
            sums.append(torch.stack([x[data.member[nodes] == graph].sum(0) for graph in graphs.tolist()]))
        pooled = torch.cat(sums, 1)
        return (pooled if mask is None else pooled * mask) @ self.model.last.weight + self.model.last.bias

    @staticmethod
    def activate(activation, z, shift, adjacency):
        """ReLU, or the graph-adaptive maximum, node by node."""
        if not list(activation.parameters()):
            return F.relu(z)
        moved, total = z, activation.beta * F.relu(z)
        for weight in activation.weights:
            moved = shift @ moved
            rows = [moved[row != 0] for row in adjacency]
            total = total + weight * torch.stack([row.amax(0) if len(row) else torch.zeros_like(z[0]) for row in rows])
        return total


def plain_name(name):
    """The name of a tensor in the plain network."""
    if ".norms." not in name:
        return f"model.{name}"
    _, layer, _, norm, part = name.split(".")
    return f"norms.{2 * int(layer) + int(norm)}.{part}"


def train_alone(model, data, split, number, partitions):
    """A loop of its own, whose batches hold the training graphs of this model and no others."""
    plain, every = Plain(model), torch.arange(GRAPHS)
    decayed = [each.weight for layer in model.layers for each in layer.maps] + [model.last.weight]
    others = [p for p in plain.parameters() if all(p is not one for one in decayed)]
    groups = [{"params": decayed, "weight_decay": DECAYS[number]}, {"params": others}]
    optimizer = torch.optim.Adam(groups, lr=RATES[number])
    best, found, step, curve = -math.inf, None, 0, []
    for epoch in range(1, EPOCHS + 1):
        plain.train()
        for batch in partitions[(epoch - 1) % 2]:
            own = torch.isin(batch.graphs, split.train)
            mask = dropout_masks(
                torch.tensor([SEEDS[number]]),
                torch.tensor([DROPOUTS[number]]).double(),
                step,
                0,
                (len(batch.graphs), LAYERS * WIDTH),
            )[0]
            optimizer.zero_grad()
            F.cross_entropy(plain(data, batch.graphs[own], mask[own]), data.y[batch.graphs[own]]).backward()
            optimizer.step()
            step += 1
        plain.eval()
        with torch.no_grad():
            logits = plain(data, every)
        right = (logits.argmax(1) == data.y).double()
        curve.append(100 * right[split.test].mean().item())
        loss = F.cross_entropy(logits[split.validation], data.y[split.validation]).item()
        score = 100 * right[split.validation].mean().item() - 1e-6 * loss
        if score > best:
            best = score
            state = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
            found = (curve[-1], score, epoch, state)
    return found, curve


@pytest.mark.parametrize("options", [{}, {"activation": "max-ga", "hops": 2, "start": "uniform"}])
def test_each_model_ends_as_if_it_were_alone(data, splits, options):
    models = [make(number, **options) for number in range(3)]
    fleet, partitions = fleet_of(data, splits, models)
    assert min(torch.isin(b.graphs, s.train).sum() for p in partitions for b in p for s in splits) >= 1
    result = fleet.train(EPOCHS)
    assert len(set(result.best_epoch)) > 1
    for number, model in enumerate(models):
        (test, validation, epoch, state), curve = train_alone(model, data, splits[number], number, partitions)
        assert result.best_epoch[number] == epoch
        assert result.validation[number] == pytest.approx(validation, abs=1e-9)
        assert result.test[number] == pytest.approx(test, abs=1e-9)
        assert fleet.curves[number].tolist() == pytest.approx(curve, abs=1e-9)
        ours = fleet.model(number).state_dict()
        for name in set(ours) - {name for name in ours if name.endswith("num_batches_tracked")}:
            torch.testing.assert_close(ours[name], state[plain_name(name)], rtol=0, atol=1e-9)


@pytest.mark.parametrize("activation", ["digraf", "median-ga"])
def test_models_do_not_see_each_other(data, splits, activation):
    models = [make(number, activation=activation, start="uniform") for number in range(3)]
    fleet, _ = fleet_of(data, splits, models)
    result = fleet.train(5)
    for number, model in enumerate(models):
        alone, _ = fleet_of(data, splits, [model], [number])
        single = alone.train(5)
        assert (single.test[0], single.best_epoch[0]) == (result.test[number], result.best_epoch[number])
        assert single.validation[0] == pytest.approx(result.validation[number], abs=1e-9)
        for name, tensor in alone.model(0).state_dict().items():
            torch.testing.assert_close(fleet.model(number).state_dict()[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_graphs_of_a_batch_do_not_see_each_other(data, activation):
    network = make(0, activation=activation, hops=2, start="uniform").eval()
    edges = data.graph.to_edge_index()
    (whole,) = data.batches(GRAPHS, 0)
    logits = network(whole.x, whole)
    for graph in (0, 7, 29):
        alone = data.batch(torch.tensor([graph]), *edges)
        torch.testing.assert_close(network(alone.x, alone)[0], logits[graph], rtol=0, atol=1e-9)


def test_patience_is_refused(data, splits):
    fleet, _ = fleet_of(data, splits, [make(number) for number in range(3)])
    with pytest.raises(ValueError, match="patience must be None for graph classifiers"):
        fleet.train(3, 2)
