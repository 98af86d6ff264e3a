"""Fleets of node classifiers on a GPU: an epoch is recorded and replayed."""

import pytest
import torch

from graphact import Graph
from graphact.nn import ACTIVATIONS
from graphact_lab.classifiers.node_classifier import NodeNetwork
from graphact_lab.classifiers.stacked_layers import node_graph
from graphact_lab.fleets.features import SparseFeatures
from graphact_lab.fleets.nodes import NodeFleet
from graphact_lab.splits import Split


@pytest.mark.parametrize("options", [{"activation": name} for name in ACTIVATIONS] + [{"norm": "batch", "layers": 3}])
def test_recorded_epochs_of_node_classifiers_are_those_of_the_cpu(options):
    """All of an epoch is one CUDA graph: dropout, scores, the choice of the best, Adam.

    A flow is exponential in what DiGRAF learns: on a CPU, too, a relative change of 1e-15 in the signals is 0.2 in its
    parameters after 70 epochs. After 20 it is up to 1e-5, as the numbers are drawn, and 2e-15 with this seed.
    """
    torch.manual_seed(1)
    graph = Graph.stochastic_block_model([30, 30], 0.2, 0.05, generator=torch.Generator().manual_seed(0))
    x = torch.randn(60, 20, dtype=torch.float64).relu()
    y = torch.arange(60) // 30
    order = torch.randperm(60)
    splits = [Split(order[:20], order[20:40], order[40:]), Split(order[40:], order[:25], order[25:40])]
    models = [NodeNetwork(20, 6, 2, hops=2, **options).double() for _ in splits]
    settings = {"seeds": [3, 4], "rates": [0.05, 0.02], "decays": [0.0, 0.01], "dropouts": [0.5, 0.3]}
    found = []
    for device in ("cpu", "cuda"):
        graphs = node_graph(graph.to(dtype=torch.float64), "gcn")
        features = SparseFeatures.from_dense(x)
        fleet = NodeFleet(models, features, graphs, y, splits, **settings, device=device, dtype=torch.float64)
        epochs = 20 if options.get("activation") == "digraf" else 70
        found.append((fleet.train(epochs), [fleet.model(number).cpu() for number in range(2)]))
    assert fleet.recording == "recorded"
    assert found[1][0].best_epoch == found[0][0].best_epoch
    assert found[1][0].validation == pytest.approx(found[0][0].validation)
    for ours, theirs in zip(found[1][1], found[0][1], strict=True):
        for name, tensor in ours.state_dict().items():
            torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=0, atol=1e-7)
