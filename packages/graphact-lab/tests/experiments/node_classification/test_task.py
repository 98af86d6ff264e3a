"""Cells of node classification: data, networks, and the choice of settings."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

from graphact.graph import Graph
from graphact_lab.classifiers import node_classifier
from graphact_lab.classifiers.node_classifier import NodeNetwork
from graphact_lab.classifiers.stacked_layers import CONVOLUTIONS, node_graph
from graphact_lab.data.node_sets import NODE_SETS, read_nodes, read_npz
from graphact_lab.data.planetoid import read_planetoid
from graphact_lab.descriptions import find_experiment, find_protocol
from graphact_lab.experiments.node_classification import task
from graphact_lab.experiments.node_classification.experiment import METHODS
from graphact_lab.experiments.node_classification.task import train_cell
from graphact_lab.protocols import jobs_of
from graphact_lab.report.page import terminal_table, write_report
from graphact_lab.runner import run_protocol
from graphact_lab.store import Store

SMALL = {"dataset": "wisconsin", "features": "4", "splits": "2", "tuning_splits": "2", "epochs": "12", "split": "given"}


def write_npz(path, nodes=30, splits=3):
    """A small graph in the form of the heterophilous ones, edges in one direction, one of them twice, and a loop."""
    generator = np.random.default_rng(0)
    masks = np.zeros((3, splits, nodes), dtype=bool)
    for split in range(splits):
        masks[generator.integers(0, 3, nodes), split, np.arange(nodes)] = True
    edges = np.array([[0, 1], [1, 2], [1, 0], [3, 3], [4, 0]])
    features = (generator.random((nodes, 5)) < 0.05).astype(np.float32)
    labels = generator.integers(0, 2, nodes)
    names = ("train_masks", "val_masks", "test_masks")
    np.savez(path, node_features=features, node_labels=labels, edges=edges, **dict(zip(names, masks, strict=True)))
    return features, labels, masks


def test_heterophilous_graphs_are_undirected_without_loops(tmp_path):
    features, labels, masks = write_npz(tmp_path / "actor.npz")
    data = read_npz(tmp_path / "actor.npz", "actor")
    assert torch.equal(data.x.to_dense(), torch.from_numpy(features))
    assert data.y.tolist() == labels.tolist()
    expected = torch.zeros(30, 30)
    for one, other in ((0, 1), (1, 2), (0, 4)):
        expected[one, other] = expected[other, one] = 1
    assert torch.equal(data.graph.to_dense(), expected)
    for part, mask in zip(data.split(2), masks, strict=True):
        assert part.tolist() == mask[2].nonzero()[0].tolist()
    with pytest.raises(ValueError, match="actor has 3 given splits, got the number 3"):
        data.split(3)


def test_a_fifth_trains_and_the_others_validate_and_test(tmp_path):
    write_npz(tmp_path / "actor.npz")
    data = read_npz(tmp_path / "actor.npz", "actor")
    split = data.fifth(0)
    assert (len(split.train), len(split.test)) == (6, 24)
    assert torch.equal(split.validation, split.test)
    assert torch.cat([split.train, split.test]).sort().values.tolist() == list(range(30))
    assert torch.equal(split.train, data.fifth(0).train)
    assert not torch.equal(split.train, data.fifth(1).train)
    known = replace(data, has_label=torch.arange(30) % 3 > 0).fifth(0)
    assert (len(known.train), len(known.test)) == (4, 16)
    assert torch.cat([known.train, known.test]).remainder(3).min() > 0, "nodes without a class are in no part"


def test_scores_that_were_chosen_on_reported_nodes_tell_no_difference(real_data, tmp_path):
    """They have no validation score, and a report shows them alone."""
    changes = {"dataset": "wisconsin", "features": "3", "splits": "5", "epochs": "4", "hops": "1"}
    protocol = find_protocol("node-classification", "full", "digraf-split", ("relu", "max-ga"), changes)
    store = Store(tmp_path)
    store.create("graphact-lab run node-classification")
    run_protocol(protocol, store, data=real_data)
    rows = store.rows()
    assert [row["validation"] for row in rows] == [None] * 10
    assert not any(row.get("tuning") for row in rows)
    assert all(0 < row["value"] <= 100 for row in rows)
    page = write_report(rows, tmp_path).read_text()
    assert "Test scores" in page
    assert "Differences from" not in page
    assert "beside" not in page


def test_the_real_data_sets(real_data):
    sizes = {"cora": (2708, 1433, 7), "blogcatalog": (5196, 8189, 6), "flickr": (7575, 12047, 9)}
    sizes |= {"minesweeper": (10000, 7, 2), "squirrel_filtered": (2223, 2089, 5)}
    for name, (nodes, features, classes) in sizes.items():
        assert name in NODE_SETS
        data = read_nodes(name, real_data)
        assert (*data.x.shape, data.num_classes, data.graph.num_nodes) == (nodes, features, classes, nodes)
        assert not data.graph.is_directed
        parts = data.split(0)
        assert len(torch.cat(parts).unique()) == sum(map(len, parts))
        if data.masks is None:
            assert [len(part) for part in parts] == [20 * classes, 500, 1000]
            assert data.y[parts.train].bincount().tolist() == [20] * classes
            assert not torch.equal(parts.train, data.split(1).train)
    words = read_nodes("blogcatalog", real_data, normalize_features=False)
    torch.testing.assert_close(words.x.normalized().to_dense(), read_nodes("blogcatalog", real_data).x.to_dense())
    assert words.x.to_dense().sum(1).max() > 10
    for protocol, expected in (("digraf-split", words), ("gcn", read_nodes("blogcatalog", real_data))):
        job = jobs_of(find_protocol("node-classification", "full", protocol, (), {"dataset": "blogcatalog"}), 0)[0]
        assert torch.equal(node_classifier.data_of(job, real_data).x.matrix.values(), expected.x.matrix.values())
    cora, words = read_nodes("cora", real_data), read_planetoid("cora", real_data).x
    torch.testing.assert_close(cora.x.to_dense(), torch.nn.functional.normalize(words, p=1))
    assert [part[:2].tolist() for part in cora.split(3)] == [[873, 1803], [2489, 335], [320, 570]]  # as in results/


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_networks_follow_their_nodes_and_count_their_exchanges(convolution):
    torch.manual_seed(0)
    graph = Graph.stochastic_block_model([9, 8], 0.4, 0.1).to(dtype=torch.float64)
    x, order = torch.randn(17, 5, dtype=torch.float64), torch.randperm(17)
    network = NodeNetwork(5, 8, 3, convolution=convolution, activation="max-ga", hops=2, start="uniform").double()
    out = network(x, node_graph(graph, convolution))
    moved = network(x[order], node_graph(graph.permute(order), convolution))
    torch.testing.assert_close(moved, out[order])
    activations = 3 if convolution == "gin" else 1
    hops = 2 if convolution in ("chebyshev", "gcnn") else 1
    assert network.exchanges == 2 * hops + 3 * activations


def pyg_convolution(name, ours):
    """The convolution of PyG with the same parameters, from 5 to 8 features."""
    maps = [each.weight.t() for each in ours.maps]
    match name:
        case "gcn":
            return pyg.GCNConv(5, 8), {"lin.weight": maps[0], "bias": ours.bias}
        case "sage":
            state = {"lin_r.weight": maps[0], "lin_l.weight": maps[1], "lin_l.bias": ours.bias}
            return pyg.SAGEConv(5, 8), state
        case "sage-max":
            state = {"lin.weight": ours.pool.weight.t(), "lin.bias": ours.pool.bias, "lin_r.weight": maps[0]}
            state |= {"lin_l.weight": ours.last.weight.t(), "lin_l.bias": ours.bias}
            return pyg.SAGEConv(5, 8, aggr="max", project=True), state
        case "gcnn":
            state = {f"lins.{k}.weight": each for k, each in enumerate(maps)}
            return pyg.TAGConv(5, 8, K=2), state | {"bias": ours.bias}
        case "chebyshev":  # of the Laplacian less the identity, which is -S
            state = {f"lins.{k}.weight": (-1) ** k * each for k, each in enumerate(maps)}
            return pyg.ChebConv(5, 8, K=3), state | {"bias": ours.bias}
        case "gin":
            state = {"eps": ours.eps.view(1), "nn.0.weight": maps[0], "nn.0.bias": ours.bias}
            state |= {"nn.1.weight": ours.last.weight.t(), "nn.1.bias": ours.last.bias}
            inner = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 8))
            return pyg.GINConv(inner, train_eps=True), state
        case "gat":
            state = {"lin.weight": maps[0], "bias": ours.bias}
            state |= {"att_dst": ours.at_node.unsqueeze(0), "att_src": ours.at_neighbor.unsqueeze(0)}
            return pyg.GATConv(5, 8 // ours.heads, heads=ours.heads), state


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if not {"median", "bank"} & set(name.split("-"))])
def test_the_convolutions_are_those_of_pyg(name):
    torch.manual_seed(0)
    graph = Graph.stochastic_block_model([9, 8], 0.4, 0.1).to(dtype=torch.float64)
    x, edge_index = torch.randn(17, 5, dtype=torch.float64), graph.to_edge_index()[0]
    ours = CONVOLUTIONS[name](5, 8, hidden=5).double()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter)
    theirs, state = pyg_convolution(name, ours)
    theirs.double().load_state_dict({key: value.detach() for key, value in state.items()})
    torch.testing.assert_close(ours(x, node_graph(graph, name)), theirs(x, edge_index))


@pytest.mark.parametrize(("name", "functions"), [("bank-max", ["amax"]), ("bank-pna", ["mean", "amax", "amin", "std"])])
def test_banks_are_those_of_plain_loops(name, functions):
    torch.manual_seed(0)
    graph = Graph.stochastic_block_model([9, 8], 0.4, 0.1).to(dtype=torch.float64)
    x, both = torch.randn(17, 5, dtype=torch.float64), node_graph(graph, name)
    ours = CONVOLUTIONS[name](5, 8, hidden=6).double()
    sent, shift = x @ ours.sent.weight, both.convolution.to_dense()
    expected = x @ ours.maps[0].weight + ours.bias
    for node in range(17):
        near = sent[graph.to_dense()[node] != 0]
        values = [near.std(0, correction=0) if name == "std" else getattr(near, name)(0) for name in functions]
        expected[node] += torch.cat([*values, shift[node] @ sent]) @ ours.last.weight
    torch.testing.assert_close(ours(x, both), expected)


def test_attention_has_heads_of_eight_features():
    ours = CONVOLUTIONS["gat"](5, 16, activation=torch.nn.ReLU()).double()
    assert ours.heads == 2
    graph, x = Graph.stochastic_block_model([9, 8], 0.4, 0.1), torch.randn(17, 5, dtype=torch.float64)
    theirs, state = pyg.GATConv(5, 8, heads=2).double(), pyg_convolution("gat", ours)[1]
    theirs.load_state_dict({key: value.detach() for key, value in state.items()})
    made = ours(x, node_graph(graph.to(dtype=torch.float64), "gat"))
    torch.testing.assert_close(made, theirs(x, graph.to_edge_index()[0]))


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_maps_are_of_one_shape_whatever_the_activation(convolution):
    """Maps have one shape whatever the activation, so that networks differ in their activation alone."""

    def shapes(method):
        network = NodeNetwork(9, 16, 3, convolution=convolution, activation=method, hops=2)
        return {name: tuple(p.shape) for name, p in network.named_parameters() if "activation" not in name}

    expected = shapes("relu")
    assert expected
    for method in METHODS:
        assert shapes(method) == expected, method


def test_relu_with_further_hops_is_a_relu_behind_shifts():
    torch.manual_seed(0)
    graph = Graph.stochastic_block_model([9, 8], 0.4, 0.1).to(dtype=torch.float64)
    x, graphs = torch.randn(17, 5, dtype=torch.float64), node_graph(graph, "gcn")
    network = NodeNetwork(5, 4, 3, activation="relu-hops", hops=2).double()
    shifted, (first, second) = graphs.activation.to_dense(), network.convolutions
    hidden = torch.relu(shifted @ shifted @ (shifted @ x @ first.maps[0].weight))
    torch.testing.assert_close(network(x, graphs), shifted @ hidden @ second.maps[0].weight)
    assert network.exchanges == 4
    assert sum(p.numel() for p in network.parameters()) == 5 * 4 + 4 + 4 * 3 + 3


def test_maps_of_the_tuned_recipes_are_drawn_as_theirs():
    """Convolutions by Glorot with a bias of 0, as PyG's GCNConv; linear maps as torch.nn.Linear, bias and all."""
    options = find_protocol("node-classification", "full", "tuned-squirrel").task_options
    chosen = {name: options[name] for name in node_classifier.NETWORK_OPTIONS if name in options}
    torch.manual_seed(0)
    network = NodeNetwork(400, 100, 5, layers=3, **chosen)
    for linear in (*network.skips, network.last):
        bound = linear.weight.size(0) ** -0.5
        for parameter in (linear.weight, linear.bias):
            assert 0.7 * bound < parameter.abs().max() <= bound
    for convolution in network.convolutions:
        (weight,) = (each.weight for each in convolution.maps)
        bound = (6 / sum(weight.shape)) ** 0.5
        assert 0.9 * bound < weight.abs().max() <= bound
        assert not convolution.bias.any()


def test_the_settings_of_kipf_and_welling():
    """Those of their code: no biases, L2 on the first map alone, and the window of ten in the place of patience."""
    protocol = find_protocol("node-classification", "full", "kipf")
    job = jobs_of(protocol, 0)[0]
    assert (job.method, job.features, protocol.rates, protocol.decays) == ("relu", 16, (0.01,), (5e-4,))
    assert (protocol.splits, protocol.training.epochs, protocol.training.patience) == (100, 200, None)
    assert protocol.task_options["window"] == 10
    options = {
        name: protocol.task_options[name] for name in node_classifier.NETWORK_OPTIONS if name in protocol.task_options
    }
    network = NodeNetwork(9, 16, 3, **options)
    assert network.dropout_widths == (None, 16)
    names = [name for name, _ in network.named_parameters()]
    assert names == ["convolutions.0.maps.0.weight", "convolutions.1.maps.0.weight"]
    is_decayed = node_classifier.decayed_by(protocol.task_options)
    assert list(map(is_decayed, names)) == [True, False]


def test_permuted_test_labels_change_no_choice(real_data, monkeypatch):
    """Splits of one test set, whose labels are shuffled: choices, epochs and validation scores stay as they are."""
    data = read_nodes("wisconsin", real_data)
    order = torch.randperm(251, generator=torch.Generator().manual_seed(0))
    test, rest = order[:100], order[100:]
    masks = torch.zeros(3, 10, 251, dtype=torch.bool)
    masks[2, :, test] = True
    for split in range(10):
        dealt = rest[torch.randperm(151, generator=torch.Generator().manual_seed(split))]
        masks[0, split, dealt[:70]] = True
        masks[1, split, dealt[70:]] = True
    changes = SMALL | {"rates": "0.05,0.001", "decays": "0,0.01", "epochs": "60"}
    job = jobs_of(find_protocol("node-classification", "quick", None, ("relu",), changes), 0)[0]
    found = []
    for seed in (1, 2):
        labels = data.y.clone()
        labels[test] = labels[test[torch.randperm(100, generator=torch.Generator().manual_seed(seed))]]
        changed = replace(data, y=labels, masks=tuple(masks))
        for module in (node_classifier, task):
            monkeypatch.setattr(module, "data_of", lambda *_, changed=changed: changed)
        node_classifier.on_device.cache_clear()
        found.append(train_cell(job, "cpu", None))
    node_classifier.on_device.cache_clear()
    for first, second in zip(*found, strict=True):
        assert {**first, "value": 0} == {**second, "value": 0}
    assert [row["value"] for row in found[0]] != [row["value"] for row in found[1]]
    assert len({tuple(scores) for scores in found[0][0]["tuning"]}) > 1


def test_rows_and_report(real_data, tmp_path):
    changes = SMALL | {"splits": "3", "dataset": "wisconsin"}
    methods = ("relu", "tanh", "max-ga", "digraf")
    protocol = find_protocol("node-classification", "quick", None, methods, changes)
    store = Store(tmp_path)
    store.create("graphact-lab run node-classification")
    run_protocol(protocol, store, data=real_data)
    rows = store.rows()
    assert [(row["method"], row["split"]) for row in rows if row["method"] == "relu"] == [
        ("relu", n) for n in (2, 3, 4)
    ]
    relu = next(row for row in rows if row["method"] == "relu")
    assert relu["parameters"] == 1703 * 4 + 4 + 4 * 5 + 5
    assert relu["exchanges"] == 2
    assert relu["chosen"]["rate"] == 0.01
    assert len(relu["tuning"]) == 2
    assert len(relu["tuning"][0]) == 2
    assert {row["exchanges"] for row in rows if row["method"] == "max-ga"} == {4}
    table = terminal_table(rows)
    assert "Wisconsin" in table
    page = write_report(rows, tmp_path).read_text()
    for words in ("Differences from the best pointwise activation", "p = ", "Exchanges", "DiGRAF"):
        assert words in page


def test_unknown_splits_are_refused(real_data):
    changes = SMALL | {"split": "sixth"}
    [job] = jobs_of(find_protocol("node-classification", "quick", None, ("relu",), changes), 0)
    with pytest.raises(ValueError, match="split must be one of 'random', 'given', 'public', 'fifth', got 'sixth'"):
        train_cell(job, "cpu", real_data)


@pytest.mark.parametrize("name", ["raw_features", "decay_all", "decay_first"])
def test_options_that_are_neither_true_nor_false_are_refused(real_data, name):
    changes = SMALL | {name: "maybe"}
    [job] = jobs_of(find_protocol("node-classification", "quick", None, ("relu",), changes), 0)
    with pytest.raises(TypeError, match=f"{name} must be true or false, got 'maybe'"):
        train_cell(job, "cpu", real_data)


def test_presets_name_what_they_read():
    experiment = find_experiment("node-classification")
    assert set(experiment.datasets(find_protocol("node-classification", "full"))) == {"planetoid", "attributed"}
    assert set(experiment.datasets(find_protocol("node-classification", "full", "plain"))) == {"heterophily"}
    changed = find_protocol("node-classification", "full", "gcn", (), {"dataset": "cora,flickr", "rates": "0.1"})
    assert changed.conditions == ({"dataset": "cora"}, {"dataset": "flickr"})
    assert changed.rates == (0.1,)
    jobs = jobs_of(changed, 0)
    assert len({job.key for job in jobs}) == len(jobs)
