"""Fleets of node classifiers beside a plain loop over one dense model at a time, in float64."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphact import Graph
from graphact_lab.classifiers.node_classifier import NodeNetwork
from graphact_lab.classifiers.stacked_layers import node_graph
from graphact_lab.fleets import nodes as module
from graphact_lab.fleets.active import dropout_masks
from graphact_lab.fleets.features import DroppedFeatures, SparseFeatures
from graphact_lab.fleets.nodes import NodeFleet, roc_auc
from graphact_lab.splits import Split

NODES, FEATURES, WIDTH, CLASSES, EPOCHS = 40, 9, 5, 3, 45
SETTINGS = {"seeds": (3, 3, 8, 5), "rates": (0.3, 0.02, 0.1, 0.05), "decays": (0.0, 0.1, 5e-3, 0.0)}
SETTINGS["dropouts"] = (0.5, 0.5, 0.2, 0.0)
# a GPU has no dense oracle of its own, and compares with the CPU in packages/graphact/tests/gpu


@pytest.fixture(scope="module")
def problem():
    generator = torch.Generator().manual_seed(4)
    graph = Graph.stochastic_block_model([14, 13, 13], 0.4, 0.08, generator=generator)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(NODES, FEATURES, generator=generator) < 0.4)
    y = torch.tensor([0] * 14 + [1] * 13 + [2] * 13)
    y = torch.where(torch.rand(NODES, generator=generator) < 0.2, torch.randint(3, (NODES,), generator=generator), y)
    splits = []
    for number, sizes in enumerate([(9, 12), (12, 10), (9, 12), (7, 15)]):  # parts of different sizes
        order = torch.randperm(NODES, generator=torch.Generator().manual_seed(number))
        splits.append(Split(order[: sizes[0]], order[sizes[0] : sum(sizes)], order[sum(sizes) :]))
    return graph, x, y, splits


def make(number, **options):
    torch.manual_seed(number)
    return NodeNetwork(FEATURES, WIDTH, CLASSES, **options).double()


def fleet_of(problem, models, **options):
    graph, x, y, splits = problem
    graphs = node_graph(graph.to(dtype=torch.float64), "gcn")
    features = SparseFeatures.from_dense(x)
    return NodeFleet(models, features, graphs, y, splits, dtype=torch.float64, **SETTINGS | options)


def train_alone(model, problem, number, epochs, forward, *, patience=None, window=None, settings=SETTINGS):
    """One model in a loop of its own: torch's Adam, the best epoch by validation accuracy, and its early stop.

    With a window, the first map alone decays, the last epoch counts, and the validation loss ends the loop, as in the
    code of Kipf and Welling: from the twelfth epoch on with a window of ten.
    """
    seed, rate, decay, dropout = (settings[name][number] for name in SETTINGS)
    _, _, y, splits = problem
    train, validation, test = splits[number]
    decayed = [convolution.maps[0].weight for convolution in model.convolutions][: window and 1]
    others = [p for p in model.parameters() if p.requires_grad and all(p is not one for one in decayed)]
    optimizer = torch.optim.Adam([{"params": decayed, "weight_decay": decay}, {"params": others}], lr=rate)
    best, losses = (math.nan, -math.inf, 0, None), []
    for epoch in range(1, epochs + 1):
        share = torch.tensor([dropout]).double()
        mask = dropout_masks(torch.tensor([seed]), share, epoch - 1, 0, (NODES, WIDTH))[0]
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(forward(model, mask)[train], y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = forward(model, None)
            penalty = 0.5 * decay * sum(weight.square().sum() for weight in decayed)
            losses.append((F.cross_entropy(logits[validation], y[validation]) + penalty).item())
        right = (logits.argmax(1) == y).double()
        scores = [100 * right[nodes].mean().item() for nodes in (test, validation)]
        if window or scores[1] > best[1] + 1e-9:
            best = (*scores, epoch, {name: tensor.clone() for name, tensor in model.state_dict().items()})
        if patience and epoch - best[2] >= patience:
            break
        if window and epoch > window + 1 and losses[-1] > sum(losses[-window - 1 : -1]) / window:
            break
    return best


def check_alone(fleet, result, number, alone):
    """Compare a model of a fleet with one that was trained alone."""
    test, validation, epoch, state = alone
    assert result.best_epoch[number] == epoch
    assert result.validation[number] == pytest.approx(validation, abs=1e-9)
    assert result.test[number] == pytest.approx(test, abs=1e-9)
    for name, tensor in fleet.model(number).state_dict().items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=1e-9)


def dense_gcn(problem):
    """Two layers with a dense shift operator and dense features; dropout multiplies with the given mask."""
    graph, x, _, _ = problem
    adjacency = graph.to_dense().double() + torch.eye(NODES, dtype=torch.float64)
    root = adjacency.sum(1).rsqrt()
    shift = root[:, None] * adjacency * root

    def forward(model, mask):
        first, second = model.convolutions
        hidden = shift @ x @ first.maps[0].weight + first.bias
        hidden = model.norms[0](hidden)
        hidden = F.relu(hidden) if not any(model.activations.parameters()) else adaptive(model.activations[0], hidden)
        hidden = hidden if mask is None else hidden * mask
        return shift @ hidden @ second.maps[0].weight + second.bias

    def adaptive(activation, z):
        """The graph-adaptive maximum, node by node."""
        moved, total = z, activation.beta * F.relu(z)
        for weight in activation.weights:
            moved = shift @ moved
            rows = [moved[graph.to_dense()[node] != 0] for node in range(NODES)]
            total = total + weight * torch.stack([row.amax(0) if len(row) else torch.zeros_like(z[0]) for row in rows])
        return total

    return forward


@pytest.mark.parametrize("options", [{}, {"activation": "max-ga", "hops": 2, "start": "uniform"}])
@pytest.mark.parametrize("patience", [EPOCHS, 6])
def test_each_model_ends_as_if_it_were_alone(problem, options, patience):
    models = [make(number, **options) for number in range(4)]
    fleet, forward = fleet_of(problem, models), dense_gcn(problem)
    result = fleet.train(EPOCHS, patience)
    assert len(set(result.best_epoch)) > 2
    for number, model in enumerate(models):
        check_alone(fleet, result, number, train_alone(model, problem, number, EPOCHS, forward, patience=patience))


def test_a_window_stops_on_the_validation_loss_and_keeps_the_last_model(problem):
    decays, rates, dropouts = (0.0, 0.1, 5e-3, 0.02), (0.03, 0.02, 0.1, 0.05), (0.2, 0.0, 0.1, 0.3)
    models, window = [make(number) for number in range(4)], 4
    settings = SETTINGS | {"decays": decays, "rates": rates, "dropouts": dropouts}
    fleet = fleet_of(problem, models, **settings, is_decayed=lambda name: name.startswith("convolutions.0.maps"))
    result, forward = fleet.train(EPOCHS, window=window), dense_gcn(problem)
    assert len(set(result.best_epoch)) > 2
    assert min(result.best_epoch) == window + 2 < max(result.best_epoch) == EPOCHS, "the first that may, and the last"
    for number, model in enumerate(models):
        alone = train_alone(model, problem, number, EPOCHS, forward, window=window, settings=settings)
        check_alone(fleet, result, number, alone)
    with pytest.raises(ValueError, match="patience must be None where a window is given, got 3"):
        fleet.train(EPOCHS, 3, window=window)
    assert fleet_of(problem, models).train(20).best_epoch == fleet_of(problem, models).train(20, 20).best_epoch


def test_batch_norm_and_buffers_are_each_models_own(problem):
    """Torch's own batch norm in the loop, ours in the fleet."""
    models = [make(number, norm="batch") for number in range(4)]
    for model in models:  # a norm takes it away again: its gradient is rounding alone, which Adam would blow up
        model.convolutions[0].bias.requires_grad_(False)
    fleet, forward = fleet_of(problem, models), dense_gcn(problem)
    result = fleet.train(20)
    for number, model in enumerate(models):
        plain = nn.BatchNorm1d(WIDTH).double()
        plain.load_state_dict(model.norms[0].state_dict())
        model.norms[0] = plain
        _, validation, epoch, state = train_alone(model, problem, number, 20, forward)
        assert (result.best_epoch[number], result.validation[number]) == (epoch, pytest.approx(validation, abs=1e-9))
        found = fleet.model(number).state_dict()
        for name in ("norms.0.running_mean", "norms.0.running_var", "norms.0.weight", "convolutions.0.maps.0.weight"):
            torch.testing.assert_close(found[name], state[name], rtol=0, atol=1e-9)


def test_models_leave_the_stack_when_they_are_done(problem, monkeypatch):
    """The number of models in a pass falls, and nothing else changes."""
    models = [make(number) for number in range(4)]
    undisturbed = fleet_of(problem, models).train(EPOCHS, 6)
    sizes, epoch = [], NodeFleet.epoch
    monkeypatch.setattr(
        NodeFleet, "epoch", lambda self, running: (sizes.append(len(running.seeds)), epoch(self, running))
    )
    monkeypatch.setitem(module.LOOK_EVERY, "cpu", 1)
    fleet = fleet_of(problem, models)
    assert fleet.train(EPOCHS, 6) == undisturbed
    assert sizes[0] == 4
    assert sizes[-1] < 4
    assert len(sizes) == max(undisturbed.best_epoch) + 7
    sizes.clear()
    monkeypatch.setitem(module.WORTH, "cpu", 10**9)  # too little work to stack again: all stay until the last is done
    assert fleet_of(problem, models).train(EPOCHS, 6) == undisturbed
    assert sizes == [4] * (max(undisturbed.best_epoch) + 7)


def test_masks_depend_on_seed_step_and_site_alone():
    seeds, rates = torch.tensor([5, 7, 5]), torch.tensor([0.5, 0.5, 0.25])
    masks = dropout_masks(seeds, rates, 3, 0, (50, 40))
    assert torch.equal(masks[1], dropout_masks(seeds[1:2], rates[1:2], torch.tensor(3), 0, (50, 40))[0])
    for others in (dropout_masks(seeds, rates, 4, 0, (50, 40)), dropout_masks(seeds, rates, 3, 1, (50, 40))):
        assert abs((others == masks).double().mean().item() - 0.54) < 0.03
    assert torch.equal(masks[2] == 0, (masks[2] == 0) & (masks[0] == 0)), "a larger share drops more of the same"
    shares = (masks == 0).double().mean((1, 2))
    torch.testing.assert_close(shares, rates.double(), rtol=0, atol=0.03)
    assert masks.unique().tolist() == pytest.approx([0, 4 / 3, 2])
    torch.testing.assert_close(masks.mean((1, 2)), torch.ones(3), rtol=0, atol=0.06)


def test_area_under_the_curve_counts_pairs():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 4, (2, 30, 2), generator=generator).double()  # with ties
    labels = torch.randint(0, 2, (30,), generator=generator)
    nodes = torch.stack([torch.randperm(30, generator=generator)[:20] for _ in range(2)])
    nodes[1, 15:] = -1
    found = roc_auc(logits, labels, nodes, torch.tensor([20.0, 15.0]))
    for model in range(2):
        own = [node for node in nodes[model].tolist() if node >= 0]
        score = (logits[model, :, 1] - logits[model, :, 0]).tolist()
        pairs = [
            (score[one] > score[zero]) + 0.5 * (score[one] == score[zero])
            for one in own
            for zero in own
            if labels[one] == 1 and labels[zero] == 0
        ]
        assert found[model].item() == pytest.approx(100 * np.mean(pairs))


def test_sparse_features_map_many_weights_at_once(problem):
    _, x, _, _ = problem
    sparse = SparseFeatures.from_dense(x)
    weight = torch.randn(3, FEATURES, 4, dtype=torch.float64, requires_grad=True)
    seen = torch.vmap(lambda each: sparse @ each)(weight)
    torch.testing.assert_close(seen, x @ weight)
    grad = torch.randn_like(seen)
    (found,) = torch.autograd.grad(seen, weight, grad)
    torch.testing.assert_close(found, x.t() @ grad)
    assert torch.autograd.gradcheck(lambda each: sparse @ each, weight[0].detach().requires_grad_())
    sums = sparse.normalized().to_dense().abs().sum(1)
    torch.testing.assert_close(sums[x.any(1)], torch.ones(int(x.any(1).sum()), dtype=torch.float64))
    assert not sums[~x.any(1)].any()


@pytest.mark.parametrize("shared", ["nothing", "mask", "weight"])
def test_sparse_features_with_dropped_values_map_many_weights_at_once(problem, shared):
    _, x, _, _ = problem
    sparse = SparseFeatures.from_dense(x)
    weight = torch.randn(*([3] if shared != "weight" else []), FEATURES, 4, dtype=torch.float64, requires_grad=True)
    masks = 2 * (torch.rand(*([3] if shared != "mask" else []), sparse.count) < 0.5).double()
    entries = x.nonzero(as_tuple=True)
    dropped = x.expand(*masks.shape[:-1], *x.shape).clone()
    dropped[..., *entries] *= masks
    in_dims = (None if shared == "weight" else 0, None if shared == "mask" else 0)
    seen = torch.vmap(lambda each, mask: DroppedFeatures(sparse, mask) @ each, in_dims)(weight, masks)
    torch.testing.assert_close(seen, dropped @ weight)
    grad = torch.randn_like(seen)
    expected = torch.autograd.grad(dropped @ weight, weight, grad)
    torch.testing.assert_close(torch.autograd.grad(seen, weight, grad), expected)
    one, mask = weight.detach().view(-1, FEATURES, 4)[0].requires_grad_(), masks.view(-1, sparse.count)[0]
    assert torch.autograd.gradcheck(lambda each: DroppedFeatures(sparse, mask) @ each, one)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_features_may_be_dropped_too(problem, is_sparse):
    """One epoch of one model: the gradient is that of a dense network whose features are multiplied with a mask."""
    graph, x, y, splits = problem
    model = make(0, feature_dropout=True)
    forward, train = dense_gcn(problem), splits[0].train
    features = SparseFeatures.from_dense(x) if is_sparse else x
    options = {"seeds": [3], "rates": [0.1], "decays": [0.0], "dropouts": [0.4], "dtype": torch.float64}
    fleet = NodeFleet([model], features, node_graph(graph.to(dtype=torch.float64), "gcn"), y, splits[:1], **options)
    fleet.train(1)
    seed, rate = torch.tensor([3]), torch.tensor([0.4]).double()
    count = (x != 0).sum().item() if is_sparse else x.numel()
    mask = torch.zeros_like(x)
    drawn = dropout_masks(seed, rate, 0, 0, (count,))[0]
    mask[x != 0 if is_sparse else torch.ones_like(x, dtype=torch.bool)] = drawn
    hidden = dropout_masks(seed, rate, 0, 1, (NODES, WIDTH))[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    dropped = dense_gcn((graph, x * mask, y, splits))
    F.cross_entropy(dropped(model, hidden)[train], y[train]).backward()
    optimizer.step()
    assert 0 < (mask == 0).sum() < mask.numel()
    for name, tensor in fleet.model(0).state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=1e-9)
    with torch.no_grad():
        graphs = node_graph(graph.to(dtype=torch.float64), "gcn")
        torch.testing.assert_close(model(features, graphs), forward(model, None))


def test_what_does_not_fit_is_refused(problem):
    with pytest.raises(ValueError, match="rates must have one entry for each of the 4 models, got 1"):
        fleet_of(problem, [make(number) for number in range(4)], rates=(0.1,))
    with pytest.raises(ValueError, match="metric must be one of 'accuracy', 'roc_auc', got 'rmse'"):
        fleet_of(problem, [make(number) for number in range(4)], metric="rmse")
    fleet = fleet_of(problem, [make(number) for number in range(4)])
    fleet.train(1, keep=False)
    with pytest.raises(ValueError, match="trained with keep=True"):
        fleet.model(0)
