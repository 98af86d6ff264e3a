"""Fleets of graph classifiers on a GPU: epochs of several batches, recorded for each way of dealing them."""

import pytest
import torch

from graphact import Graph
from graphact.nn import ACTIVATIONS
from graphact_lab.data.graph_sets import GraphSet
from graphact_lab.experiments.graph_classification.gin import GINNetwork
from graphact_lab.fleets.graphs import GraphFleet
from graphact_lab.splits import Split


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_recorded_epochs_are_those_of_the_cpu(activation):
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for label in range(24):
        drawn = torch.rand(9, 9, generator=generator).triu(1) < (0.2 if label % 2 else 0.6)
        graphs.append(Graph.from_dense((drawn | drawn.t()).double()))
    x = torch.randn(24 * 9, 3, generator=generator, dtype=torch.float64)
    member = torch.arange(24).repeat_interleave(9)
    data = GraphSet("MUTAG", x, torch.arange(24) % 2, member, Graph.union(graphs))
    order = torch.randperm(24, generator=generator)
    splits = [Split(order[:12], order[12:18], order[18:]), Split(order[10:], order[:6], order[6:10])]
    torch.manual_seed(0)
    models = [GINNetwork(3, 4, 2, layers=2, activation=activation).double() for _ in splits]
    settings = {"seeds": [3, 4], "rates": [0.01, 0.02], "decays": [0.0, 0.01], "dropouts": [0.5, 0.0]}
    partitions = [data.batches(8, number) for number in range(2)]
    found = []
    for device in ("cpu", "cuda"):
        fleet = GraphFleet(models, partitions, data.y, splits, **settings, device=device, dtype=torch.float64)
        result = fleet.train(11)
        found.append((result, fleet.curves.cpu(), [fleet.model(number).cpu() for number in range(2)]))
    assert fleet.recording == "recorded"
    assert found[1][0].best_epoch == found[0][0].best_epoch
    assert found[1][0].validation == pytest.approx(found[0][0].validation)
    torch.testing.assert_close(found[1][1], found[0][1])
    for ours, theirs in zip(found[1][2], found[0][2], strict=True):
        for name, tensor in ours.state_dict().items():
            torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=0, atol=1e-7)
