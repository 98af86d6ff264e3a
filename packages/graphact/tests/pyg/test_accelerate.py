"""Fused convolutions: PyG's values, gradients and parameters; what is left, why, and how all of it is undone."""

import copy
import io
import pickle
import re
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from torch.autograd import forward_ad
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

import graphact
from graphact.nn.description import describe_on
from graphact.pyg import accelerate, aggregations, fused_convs, message_lists, report, restore
from support.gradients import assert_near_each, value_and_gradients

F, N = 6, 120
AGGREGATORS = ["mean", "min", "max", "std"]
SCALERS = ["identity", "amplification", "attenuation"]


@pytest.fixture(autouse=True)
def _small_graphs_too(monkeypatch):
    monkeypatch.setitem(aggregations.FEW_NUMBERS, "cpu", (0,) * 2)


def edges(nodes=N, count=400):
    """Edges among all but the last nodes, some of them twice, with self-loops; every degree is small."""
    generator = torch.Generator().manual_seed(5)
    edge_index = torch.randint(0, nodes - 10, (2, count), generator=generator)
    edge_index[1, : nodes - 10] = torch.arange(nodes - 10)  # PyG's median fails where node 0 has no neighbours
    edge_index[:, 150:160] = edge_index[:, 160:170]
    edge_index[0, 170:175] = edge_index[1, 170:175]
    return edge_index[:, torch.randperm(count, generator=generator)]


def signal(nodes=N, features=F):
    return torch.randn(nodes, features, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def histogram(edge_index, nodes=N):
    return torch.bincount(torch.bincount(edge_index[1], minlength=nodes))


DEG = histogram(edges())


def pna_conv(aggregators=AGGREGATORS, scalers=SCALERS, features=F, **options):
    return pyg.PNAConv(features, 8, aggregators, scalers, DEG, **options)


def network():
    return torch.nn.Sequential(torch.nn.Linear(F, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))


ALL = ["sum", "mean", "min", "max", "std", "var", "median"]
EVERY = [*SCALERS, "linear", "inverse_linear"]
MODELS = {
    **{f"SAGEConv {aggr}": lambda aggr=aggr: pyg.SAGEConv(F, 5, aggr=aggr) for aggr in ALL},
    "SAGEConv of three": lambda: pyg.SAGEConv(F, 5, aggr=["max", "mean", "std"]),
    "SAGEConv of our own": lambda: pyg.SAGEConv(F, 5, aggr=graphact.pyg.MedianAggregation()),
    "SAGEConv, projected, normalized": lambda: pyg.SAGEConv(F, 5, aggr="max", project=True, normalize=True),
    "SAGEConv without root": lambda: pyg.SAGEConv(F, 5, aggr="min", root_weight=False, bias=False),
    "SAGEConv, combined by a projection": lambda: pyg.SAGEConv(
        F,
        5,
        aggr=["max", "mean"],
        aggr_kwargs={"mode": "proj", "mode_kwargs": {"in_channels": F, "out_channels": 4}},
    ),
    "GINConv max": lambda: pyg.GINConv(network(), aggr="max", train_eps=True),
    "GINConv": lambda: pyg.GINConv(network()),
    "GraphConv max": lambda: pyg.GraphConv(F, 5, aggr="max"),
    "PNAConv": pna_conv,
    "PNAConv of everything": lambda: pna_conv(ALL, EVERY),
    "PNAConv with towers": lambda: pna_conv(towers=2),
    "PNAConv with divided towers": lambda: pna_conv(ALL, towers=2, divide_input=True),
    "PNAConv, trained norm": lambda: pna_conv(ALL, EVERY, train_norm=True, post_layers=2),
    "PNAConv of one": lambda: pna_conv(["max"], ["amplification"]),
    "GraphSAGE": lambda: pyg.GraphSAGE(F, 8, 3, out_channels=2, aggr="max", jk="cat", norm="layer_norm"),
    "GIN": lambda: pyg.GIN(F, 8, 2, aggr="max"),
    "PNA": lambda: pyg.PNA(F, 8, 3, 2, aggregators=AGGREGATORS, scalers=SCALERS, deg=DEG, norm="layer_norm"),
}


def made(name):
    torch.manual_seed(1)
    model = MODELS[name]().double()
    return model, accelerate(copy.deepcopy(model))


def outcome(model, x, edge_index, **options):
    """Return the result and all gradients."""
    return value_and_gradients(model, x, edge_index, parameters=model.parameters(), **options)


assert_same = partial(assert_near_each, rtol=1e-11, atol=1e-11)


def is_fused(model):
    found = report(model)
    return bool(found) and all(conv.is_fused and not conv.reason for conv in found)


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_pyg(name):
    model, faster = made(name)
    x, edge_index = signal(), edges()
    expected, found = outcome(model, x, edge_index), outcome(faster, x, edge_index)
    assert is_fused(faster)
    assert_same(found, expected)


@pytest.mark.parametrize("rows", [0, 10**9], ids=["by degree", "node by node"])
@pytest.mark.parametrize("name", [name for name in MODELS if "PNA" in name])
def test_both_ways_of_a_pna(name, rows, monkeypatch):
    monkeypatch.setattr(fused_convs, "ROWS_OF_A_GROUP", rows)
    model, faster = made(name)
    assert_same(outcome(faster, signal(), edges()), outcome(model, signal(), edges()))


@pytest.mark.parametrize("name", ["SAGEConv max", "GINConv max", "GraphConv max", "PNAConv"])
def test_graphs_of_other_shapes(name):
    model, faster = made(name)
    none = torch.empty(2, 0, dtype=torch.long)
    loop = torch.zeros(2, 3, dtype=torch.long)
    star = torch.stack([torch.arange(1, 9), torch.zeros(8, dtype=torch.long)])
    for edge_index in (none, loop, star, star.flip(0)):
        assert_same(outcome(faster, signal(9), edge_index), outcome(model, signal(9), edge_index))
    assert faster(signal(0), none).shape == model(signal(0), none).shape
    assert is_fused(faster)


@pytest.mark.parametrize("name", ["SAGEConv max", "SAGEConv std", "SAGEConv of three", "GINConv max", "GraphConv max"])
def test_sampled_layers(name):
    """A loader samples neighbours so that the targets come first among the senders."""
    model, faster = made(name)
    x, edge_index = signal(), edges()
    few = edge_index[:, edge_index[1] < 30]
    for given, options in (((x, x[:30]), {}), ((x, None), {"size": (N, 30)}), ((x, x[:30]), {"size": (N, 30)})):
        found, expected = outcome(faster, given, few, **options), outcome(model, given, few, **options)
        assert found[0].shape[0] == 30
        assert_same(found, expected)
    back = few.flip(0)  # more targets than senders
    assert_same(outcome(faster, (x[:30], x), back), outcome(model, (x[:30], x), back))
    assert is_fused(faster)


def test_bipartite_widths_and_several_relations():
    torch.manual_seed(0)
    x = {"author": signal(40, 3), "paper": signal(N)}
    relations = {
        ("author", "writes", "paper"): torch.stack([torch.randint(0, 40, (90,)), torch.randint(0, N, (90,))]),
        ("paper", "cites", "paper"): edges(),
        ("paper", "written by", "author"): torch.stack([torch.randint(0, N, (90,)), torch.randint(0, 40, (90,))]),
    }
    convs = {
        ("author", "writes", "paper"): pyg.SAGEConv((3, F), 4, aggr="max"),
        ("paper", "cites", "paper"): pyg.GraphConv(F, 4, aggr="max"),
        ("paper", "written by", "author"): pyg.SAGEConv((F, 3), 4, aggr="min"),
    }
    model = pyg.HeteroConv(convs).double()
    faster = accelerate(copy.deepcopy(model))
    torch.testing.assert_close(faster(x, relations), model(x, relations))
    assert is_fused(faster)


def test_samples_of_a_batch():
    model, faster = made("SAGEConv max")
    x, edge_index = torch.stack([signal(), 2 - signal()]), edges()
    assert_same(outcome(faster, x, edge_index), outcome(model, x, edge_index))
    assert is_fused(faster)


def test_single_precision_is_as_exact_as_pyg():
    model, _ = made("PNA")
    x, edge_index = signal(), edges()
    exact = model(x, edge_index)
    single = copy.deepcopy(model).float()
    theirs = (single(x.float(), edge_index) - exact).abs().max()
    ours = (accelerate(single)(x.float(), edge_index) - exact).abs().max()
    assert ours <= 3 * theirs


def test_training_on_batches_takes_the_same_steps():
    torch.manual_seed(0)
    data = [Data(x=torch.randn(9, F).double(), edge_index=torch.randint(0, 9, (2, 20))) for _ in range(12)]
    losses = []
    for change in (lambda model: model, accelerate):
        torch.manual_seed(1)
        options = {"aggregators": AGGREGATORS, "scalers": SCALERS, "deg": DEG, "train_norm": True}
        model = change(pyg.PNA(F, 8, 2, 1, dropout=0.3, norm="batch_norm", **options).double())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        steps = []
        for first in range(0, 12, 4):
            batch = Batch.from_data_list(data[first : first + 4])
            optimizer.zero_grad()
            loss = (model(batch.x, batch.edge_index) - 1).square().mean()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(steps)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_parameters_state_and_undoing():
    model, faster = made("PNA")
    kinds = [type(module) for module in model.modules()]
    assert list(faster.state_dict()) == list(model.state_dict())
    assert {id(part) for part in faster.parameters()} == {id(part) for part in accelerate(faster).parameters()}
    other = pyg.PNA(F, 8, 3, 2, aggregators=AGGREGATORS, scalers=SCALERS, deg=DEG, norm="layer_norm").double()
    accelerate(other).load_state_dict(model.state_dict())
    x, edge_index = signal(), edges()
    torch.testing.assert_close(other(x, edge_index), model(x, edge_index))
    assert [type(module) for module in faster.modules()] != kinds
    assert restore(faster) is faster
    assert [type(module) for module in faster.modules()] == kinds
    assert str(faster) == str(model)
    assert [vars(conv).keys() for conv in faster.convs] == [vars(conv).keys() for conv in model.convs]
    assert torch.equal(faster(x, edge_index), model(x, edge_index))
    assert all(conv.reason.endswith("call accelerate") for conv in report(faster))


@pytest.mark.parametrize("name", ["PNAConv", "SAGEConv of three", "GINConv max", "GraphConv max"])
def test_copies_and_pickles(name):
    _, faster = made(name)
    x, edge_index = signal(), edges()
    stored = io.BytesIO()
    torch.save(faster, stored)
    stored.seek(0)
    copies = copy.deepcopy(faster), pickle.loads(pickle.dumps(faster)), torch.load(stored, weights_only=False)
    for other in copies:
        assert type(other) is type(faster)
        assert torch.equal(other(x, edge_index), faster(x, edge_index))
        assert is_fused(other)
    restored = restore(copies[0])
    torch.testing.assert_close(restored(x, edge_index), faster(x, edge_index))


class OwnMessages(pyg.SAGEConv):
    def message(self, x_j):
        return 2 * x_j


def explained():
    conv = pyg.SAGEConv(F, 4, aggr="max")
    conv.explain = True
    return conv


LEFT = {
    "GATConv has no fused form": lambda: pyg.GATConv(F, 4),
    "OwnMessages has no fused form": lambda: OwnMessages(F, 4),
    "explain or decomposed_layers": explained,
    "decomposed_layers": lambda: pyg.SAGEConv(F, 4, aggr="max", decomposed_layers=2),
    "LSTMAggregation": lambda: pyg.SAGEConv(F, 4, aggr="lstm"),
    "its aggregation None": lambda: pyg.SAGEConv(F, 4, aggr=None),
    "SoftmaxAggregation": lambda: pyg.SAGEConv(F, 4, aggr=["max", "softmax"]),
    "StdAggregation() has no fused form": lambda: pyg.SAGEConv(F, 4, aggr=pyg.StdAggregation(semi_grad=True)),
    "DegreeScalerAggregation": lambda: pyg.SAGEConv(F, 4, aggr=pyg.DegreeScalerAggregation(["max"], ["linear"], DEG)),
    "edge_dim": lambda: pna_conv(edge_dim=3),
    "pre_layers is above 1": lambda: pna_conv(pre_layers=2),
    "MulAggregation": lambda: pna_conv(["max", "mul"]),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left_and_why(reason):
    torch.manual_seed(0)
    conv = LEFT[reason]()
    kind = type(conv)
    assert accelerate(conv) is conv
    assert type(conv) is kind
    (found,) = report(conv)
    assert (found.name, found.kind, found.is_fused) == ("", kind.__name__, False)
    assert reason in found.reason


def test_calls_that_run_pyg():
    model, faster = made("SAGEConv max")
    x, edge_index = signal(), torch.unique(edges(), dim=1).contiguous()
    expected = model(x, edge_index)
    ordered = EdgeIndex(edge_index, sparse_size=(N, N)).sort_by("col").values
    ones = torch.ones(edge_index.size(1), dtype=torch.float64)
    sparse = torch.sparse_coo_tensor(edge_index.flip(0), ones, (N, N), check_invariants=True).to_sparse_csr()
    for given, reason in ((ordered, "EdgeIndex"), (sparse, "not dense")):
        torch.testing.assert_close(faster(x, given), expected)
        assert reason in report(faster)[0].reason
    faster(x, edge_index)
    assert is_fused(faster)
    batch = torch.stack([x, -x])
    each = torch.func.vmap(lambda part: faster(part, edge_index))(batch)
    torch.testing.assert_close(each, model(batch, edge_index))
    assert "transforms" in report(faster)[0].reason


def test_few_messages_run_pyg(monkeypatch):
    x, edge_index = signal(), edges()
    monkeypatch.setitem(aggregations.FEW_NUMBERS, "cpu", (edge_index.size(1) * F + 1,) * 2)
    for name, reason in (("SAGEConv max", "there are few messages, and PyG is as fast"), ("SAGEConv median", "")):
        model, faster = made(name)
        torch.testing.assert_close(faster(x, edge_index), model(x, edge_index))
        assert report(faster)[0].reason == reason
    monkeypatch.setitem(aggregations.FEW_NUMBERS, "cpu", (edge_index.size(1) * F,) * 2)
    _, faster = made("SAGEConv max")
    faster(x, edge_index)
    assert is_fused(faster)


def test_edge_weights_and_features_run_pyg():
    model, faster = made("GraphConv max")
    x, edge_index = signal(), edges()
    weight = torch.rand(edge_index.size(1), dtype=torch.float64)
    assert_same(outcome(faster, x, edge_index, edge_weight=weight), outcome(model, x, edge_index, edge_weight=weight))
    assert "edge_weight" in report(faster)[0].reason
    faster(x, edge_index)
    assert is_fused(faster)


class Negative(pyg.MultiAggregation):
    def combine(self, inputs):
        return -super().combine(inputs)


class Shifted(torch.nn.Module):
    """A linear map with another one beside it, as adapters are put in."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.weight, self.bias = inner, inner.weight, inner.bias

    def forward(self, x):
        return self.inner(x) + 1


def negate(*given):
    return -given[-1]


CHANGES = {  # the model, what is changed, and the reason to run PyG
    "a hook of messages": ("SAGEConv max", lambda conv: conv.register_message_forward_hook(negate), "hooks"),
    "another hook": ("PNAConv", lambda conv: conv.register_propagate_forward_hook(negate), "hooks"),
    "a hook inside": ("PNAConv", lambda conv: conv.aggr_module.register_forward_hook(negate), "hooks"),
    "another aggregation": (
        "SAGEConv max", lambda conv: setattr(conv, "aggr_module", pyg.SoftmaxAggregation()), "SoftmaxAggregation"
    ),
    "another dimension": ("SAGEConv max", lambda conv: setattr(conv, "node_dim", 0), "node_dim=0"),
    "another combination": (
        "PNAConv", lambda conv: setattr(conv.aggr_module, "aggr", Negative(AGGREGATORS)), "aggregation"
    ),
    "another flow": ("PNAConv", lambda conv: setattr(conv, "flow", "target_to_source"), "flow='target_to_source'"),
    "a message": (
        "GINConv max", lambda conv: setattr(conv, "message", lambda x_j: -x_j),
        "message of this GINConv was replaced|method was replaced",
    ),
    "an update": (
        "PNAConv", lambda conv: setattr(conv, "update", lambda inputs: -inputs),
        "update of this PNAConv was replaced|method was replaced",
    ),
    "a longer network": ("PNAConv", lambda conv: conv.pre_nns[0].append(torch.nn.Tanh()), "pre_layers is above 1"),
    "an adapter": (
        "PNAConv", lambda conv: conv.pre_nns[0].__setitem__(0, Shifted(conv.pre_nns[0][0])), "PyG's Linear"
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_later", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_convolutions_run_pyg(change, is_later):
    name, apply, reason = CHANGES[change]
    torch.manual_seed(1)
    model = MODELS[name]().double()
    faster = copy.deepcopy(model)
    for step in (accelerate, apply) if is_later else (apply, accelerate):
        step(faster)
    apply(model)
    assert_same(outcome(faster, signal(), edges()), outcome(model, signal(), edges()))
    (found,) = report(faster)
    assert re.search(reason, found.reason)
    assert found.is_fused == (type(faster) is not type(model)) == is_later


def test_hooks_of_all_modules_are_called():
    model, faster = made("SAGEConv max")

    def negate(module, inputs, output):
        return -output if isinstance(module, pyg.MaxAggregation) else None

    handle = torch.nn.modules.module.register_module_forward_hook(negate)
    try:
        assert torch.equal(faster(signal(), edges()), model(signal(), edges()))
    finally:
        handle.remove()


def test_rows_of_several_nodes():
    model, faster = made("PNAConv")
    x = signal(N, 2 * F)  # PyG makes 2 N nodes of them
    assert_same(outcome(faster, x, edges()), outcome(model, x, edges()))


@pytest.mark.parametrize("name", ["GraphSAGE", "PNA"])
def test_an_explanation_may_end_before_and_after(name, monkeypatch):
    model, _ = made(name)
    x, edge_index, calls = signal(), edges(), []
    expected = model(x, edge_index)

    def explain():
        set_masks(model, torch.ones(edge_index.size(1), dtype=torch.float64), edge_index)
        clear_masks(model)

    evaluate = message_lists.Messages.aggregate
    monkeypatch.setattr(message_lists.Messages, "aggregate", lambda *inputs: calls.append(1) or evaluate(*inputs))
    explain()
    torch.testing.assert_close(accelerate(model)(x, edge_index), expected)
    assert len(calls) == len(report(model))
    explain()
    assert torch.equal(restore(model)(x, edge_index), expected)


@pytest.mark.parametrize("name", ["GraphSAGE", "PNA"])
def test_explanations_run_pyg(name):
    model, faster = made(name)
    x, edge_index = signal(), edges()
    mask = torch.nn.Parameter(torch.linspace(-1, 1, edge_index.size(1), dtype=torch.float64))
    found = []
    for each in (model, faster):
        set_masks(each, mask, edge_index, apply_sigmoid=True)
        found.append(torch.autograd.grad(each(x, edge_index).sum(), mask)[0])
        clear_masks(each)
    torch.testing.assert_close(*found)
    assert found[0].abs().max() > 0
    torch.testing.assert_close(faster(x, edge_index), model(x, edge_index))
    assert is_fused(faster)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_code_is_pyg():
    model, faster = made("PNAConv")
    x, edge_index = signal(), edges()
    traced = torch.jit.trace(faster, (x, edge_index), check_trace=False)
    other = edges(count=300)
    torch.testing.assert_close(traced(x, other), model(x, other))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GraphSAGE", "PNA"])
def test_compiled_code_is_pyg(name):
    model, faster = made(name)
    x, edge_index = signal(), edges()
    torch.testing.assert_close(torch.compile(faster, backend="eager")(x, edge_index), model(x, edge_index))


def test_second_derivatives():
    model, faster = made("PNAConv")
    edge_index = edges(20, 40)

    def curvature(conv):
        x = signal(20).requires_grad_()
        (grad,) = torch.autograd.grad(conv(x, edge_index).square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)[0]

    torch.testing.assert_close(curvature(faster), curvature(model))


def test_forward_mode():
    x, edge_index, tangent = signal(), edges(), 1 - signal()
    tangents = []
    for conv in made("PNAConv"):
        with forward_ad.dual_level():
            tangents.append(forward_ad.unpack_dual(conv(forward_ad.make_dual(x, tangent), edge_index)).tangent)
    torch.testing.assert_close(*tangents)


def test_descriptions_are_those_of_pyg():
    graph = graphact.Graph.from_edge_index([[0, 1, 1, 2, 3], [1, 0, 2, 1, 0]])
    model = pyg.GraphSAGE(3, 4, 2)
    expected = describe_on(model, graph)
    found = describe_on(accelerate(model), graph)
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        if hasattr(one, "layers"):
            assert torch.equal(one.layers[0].taps, other.layers[0].taps)


def test_mistakes():
    for function in (accelerate, restore, report):
        with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got dict"):
            function({})
    faster = accelerate(pyg.SAGEConv(F, 4, aggr="max"))
    x = signal().float()
    with pytest.raises(IndexError, match=r"edge_index\[0\] must hold indices from 0 to 119, got 120"):
        faster(x, torch.tensor([[120], [0]]))
    with pytest.raises(ValueError, match="expected size 50"):
        faster((x, x), edges(), size=(N, 50))
    assert report(torch.nn.Linear(2, 2)) == []
