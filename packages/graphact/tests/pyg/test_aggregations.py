"""Aggregations over the kernels: PyG's values and gradients, on any index, in any dimension."""

import copy
import re

import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.nn import SAGEConv

import graphact
from graphact.pyg import aggregations, message_lists
from support.gradients import assert_near_each, value_and_gradients

NAMES = ("Max", "Min", "Mean", "Median", "Std")
NEEDS_MESSAGES = ("Median",)  # PyG's reads out of bounds where the first target has none
SHAPES = {  # messages, targets, shape, dim
    "many": (60, 9, (60, 5), -2),
    "more targets than messages": (8, 21, (8, 3), 0),
    "one column": (30, 4, (30,), 0),
    "towers": (40, 7, (40, 2, 3), 0),
    "samples": (40, 7, (2, 40, 3), -2),
    "last dimension": (25, 6, (4, 25), -1),
    "wide": (50, 3, (50, 70), 0),
}


@pytest.fixture(autouse=True)
def _few_messages_too(monkeypatch):
    monkeypatch.setitem(aggregations.FEW_NUMBERS, "cpu", (0,) * 2)


def pair(name):
    return getattr(graphact.pyg, f"{name}Aggregation")(), getattr(pyg, f"{name}Aggregation")()


def drawn(case, *, every_target=False):
    torch.manual_seed(3)
    count, targets, shape, dim = SHAPES[case]
    index = torch.randint(0, targets - 2, (count,))  # the last ones have no messages
    if every_target:
        index = torch.arange(count) % targets
        index = index[torch.randperm(count)]
    return torch.randn(shape, dtype=torch.float64), index, targets, dim


def assert_same(name, found, expected):
    if name in ("Max", "Min", "Median"):
        assert torch.equal(found[0], expected[0])
    assert_near_each(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_pyg(name, case):
    x, index, targets, dim = drawn(case, every_target=name in NEEDS_MESSAGES and case != "more targets than messages")
    ours, theirs = pair(name)
    found = value_and_gradients(ours, x, index, dim_size=targets, dim=dim)
    if name in NEEDS_MESSAGES and case == "more targets than messages":
        expected = value_and_gradients(median_by_target, x, index, targets)
    else:
        expected = value_and_gradients(theirs, x, index, dim_size=targets, dim=dim)
    assert_same(name, found, expected)


def median_by_target(x, index, targets):
    rows = [x[index == target] for target in range(targets)]
    return torch.stack([row.median(0).values if len(row) else x.new_zeros(x.shape[1:]) for row in rows])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_single_and_half_precision(name, dtype):
    x, index, targets, _ = drawn("many", every_target=True)
    ours, theirs = pair(name)
    found, expected = ours(x.to(dtype), index, dim_size=targets), theirs(x.to(dtype).double(), index, dim_size=targets)
    assert found.dtype == dtype
    if name in ("Max", "Min", "Median"):
        assert torch.equal(found.double(), expected)
    torch.testing.assert_close(found.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=2e-6)


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize("name", NAMES)
def test_every_backend(name, backend):
    x, index, targets, dim = drawn("towers", every_target=True)
    ours, theirs = pair(name)
    with graphact.backend(backend):
        found = value_and_gradients(ours, x, index, dim_size=targets, dim=dim)
    assert_same(name, found, value_and_gradients(theirs, x, index, dim_size=targets, dim=dim))


@pytest.mark.parametrize("name", NAMES)
def test_pointers_and_no_index(name):
    x, _, _, _ = drawn("many")
    ours, theirs = pair(name)
    ptr, index = torch.tensor([0, 7, 7, 40, 60]), torch.tensor([0] * 7 + [2] * 33 + [3] * 20)
    assert_same(name, value_and_gradients(ours, x, ptr=ptr), value_and_gradients(theirs, x, index, dim_size=4))
    assert_same(name, value_and_gradients(ours, x), value_and_gradients(theirs, x))
    found = ours.forward(x, index)  # PyG's __call__ finds the number of targets
    assert torch.equal(found, ours(x, index))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEEDS_MESSAGES])
def test_pointers_to_a_part_of_the_messages(name):
    x, _, _, _ = drawn("many")
    for ptr in (torch.tensor([3, 7, 7, 40]), torch.tensor([60, 60])):
        assert_same(name, *(value_and_gradients(each, x, ptr=ptr) for each in pair(name)))
    if name != "Mean":  # which PyG computes
        with pytest.raises(IndexError, match="ptr must hold indices from 0 to 60, got 61"):
            pair(name)[0](x, ptr=torch.tensor([0, 61]))


@pytest.mark.parametrize("name", NAMES)
def test_no_messages(name):
    ours, _ = pair(name)
    x, index = torch.randn(0, 3), torch.zeros(0, dtype=torch.long)
    assert torch.equal(ours(x, index, dim_size=4), torch.zeros(4, 3))
    assert ours(x, ptr=torch.zeros(1, dtype=torch.long)).shape == (0, 3)
    assert ours(torch.randn(2, 0), torch.tensor([0, 3])).shape == (4, 0)


def test_rounding_of_mean_and_deviation():
    x, index, targets, _ = drawn("many")
    x = x + 1000.0  # where mean(x ** 2) - mean(x) ** 2 cancels
    rounding = 70 * torch.finfo(torch.float64).eps
    for target in range(targets):
        exact = x[index == target]
        if len(exact) == 0:
            continue
        mean = graphact.pyg.MeanAggregation()(x, index, dim_size=targets)[target]
        std = graphact.pyg.StdAggregation()(x, index, dim_size=targets)[target]
        assert (mean - exact.mean(0)).abs().max() <= rounding * 1e3
        assert (std.square() - exact.var(0, correction=0)).abs().max() <= rounding * 1e6


def test_small_deviations_are_0_as_in_pyg():
    ours, theirs = pair("Std")
    index = torch.tensor([0, 0, 1, 1, 2, 2, 3])
    x = torch.tensor([[0.0], [0.006], [0.0], [0.0065], [2.0], [2.0], [5.0]], dtype=torch.float64)
    found, expected = value_and_gradients(ours, x, index), value_and_gradients(theirs, x, index)
    assert found[0].flatten().count_nonzero() == 1
    assert_same("Std", found, expected)


@pytest.mark.parametrize("name", ["Max", "Min"])
def test_the_gradient_of_a_tie_goes_to_one_message(name):
    ours, theirs = pair(name)
    x, index = torch.tensor([[2.0], [2.0], [2.0]]), torch.tensor([0, 0, 0])
    found, expected = value_and_gradients(ours, x, index), value_and_gradients(theirs, x, index)
    assert torch.equal(found[1], torch.tensor([[-1.0], [0.0], [0.0]]))
    torch.testing.assert_close(expected[1], torch.full((3, 1), -1 / 3))


def test_nan_wins():
    x, index = torch.tensor([[1.0], [float("nan")], [3.0]]), torch.tensor([0, 0, 0])
    for name in NAMES:
        assert pair(name)[0](x, index).isnan().all()


def test_what_the_kernels_do_not_take_runs_pyg():
    index = torch.tensor([0, 0, 1])
    whole = torch.tensor([[1], [4], [2]])
    assert torch.equal(graphact.pyg.MaxAggregation()(whole, index), torch.tensor([[4], [2]]))
    filled = graphact.pyg.MedianAggregation(fill_value=7.0)
    assert torch.equal(filled(whole.float(), index, dim_size=3), torch.tensor([[1.0], [2.0], [7.0]]))
    x = torch.randn(3, 2)
    half = value_and_gradients(graphact.pyg.StdAggregation(semi_grad=True), x, index)
    torch.testing.assert_close(half, value_and_gradients(pyg.StdAggregation(semi_grad=True), x, index))
    batch = torch.randn(5, 3, 2)
    each = torch.func.vmap(lambda part: graphact.pyg.MaxAggregation()(part, index, dim_size=2))(batch)
    torch.testing.assert_close(each, pyg.MaxAggregation()(batch, index, dim_size=2))


def test_few_messages_run_pyg(monkeypatch, built):
    monkeypatch.setitem(aggregations.FEW_NUMBERS, "cpu", (7,) * 2)
    index = torch.tensor([0, 0, 1])
    for columns, count in ((2, 0), (3, 3)):
        graphact.pyg.MaxAggregation()(torch.randn(3, columns), index, dim_size=2)
        assert sum(built) == count
    graphact.pyg.MedianAggregation()(torch.randn(3, 1), torch.tensor([1, 0, 0]))
    assert sum(built) == 6


def test_bad_indices_raise_as_in_pyg():
    x = torch.randn(3, 2)
    with pytest.raises(ValueError, match="'dim_size'"):
        graphact.pyg.MaxAggregation()(x, torch.tensor([0, 4, 1]), dim_size=3)
    with pytest.raises(IndexError, match="index must hold indices from 0 to 2, got -1"):
        graphact.pyg.MaxAggregation()(x, torch.tensor([0, -1, 1]), dim_size=3)
    index = torch.tensor([0, 1, 2])
    for bad in (index[:2], index.view(-1, 1), index.float(), index.to(torch.uint8)):
        with pytest.raises((ValueError, RuntimeError)) as raised:
            pyg.MaxAggregation()(x, bad, dim_size=3)
        with pytest.raises(raised.type, match=re.escape(str(raised.value)[:20])):
            graphact.pyg.MaxAggregation()(x, bad, dim_size=3)


@pytest.fixture
def built(monkeypatch):
    """Count the graphs that are built."""
    sizes, build = [], message_lists.build_graph

    def counting(source, *arguments):
        sizes.append(source.numel())
        return build(source, *arguments)

    monkeypatch.setattr(message_lists, "build_graph", counting)
    graphact.nn.clear_graph_cache()
    return sizes


def test_views_of_one_edge_index_share_their_lists(built):
    edge_index = torch.randint(0, 20, (2, 90))
    x = torch.randn(20, 4)
    convs = [SAGEConv(4, 4, aggr=graphact.pyg.MaxAggregation()) for _ in range(3)]
    for _ in range(2):
        for conv in convs:
            x = conv(x, edge_index)  # PyG takes edge_index[1] again in each call
    assert built == [90]
    part = edge_index[:, :50]
    assert torch.equal(convs[0](x, part), convs[0](x, part.clone()))
    assert built == [90, 50, 50]


def test_a_change_in_place_is_noticed(built):
    index, x = torch.tensor([0, 1, 1]), torch.tensor([[1.0], [2.0], [3.0]])
    aggregation = graphact.pyg.MaxAggregation()
    assert aggregation(x, index).flatten().tolist() == [1.0, 3.0]
    index[2] = 0
    assert aggregation(x, index).flatten().tolist() == [3.0, 2.0]
    graphact.nn.clear_graph_cache()
    aggregation(x, index)
    assert built == [3, 3, 3]


@pytest.mark.parametrize("count", [0, 1, 90])
def test_devices_build_the_same_lists(count, monkeypatch):
    """Elsewhere than on the CPU torch sorts the edges."""
    torch.manual_seed(2)
    source, target = torch.randint(0, 15, (2, count))
    if count:
        source[: count // 3], target[: count // 3] = source[-(count // 3) :].clone(), target[-(count // 3) :].clone()
    counted = message_lists.build_graph(source, target, 20, torch.float64)
    monkeypatch.setattr(message_lists, "is_on_host", lambda index: False)
    found = message_lists.build_graph(source, target, 20, torch.float64)
    for name in ("weight", "outgoing_weight", "incoming_slot"):
        assert torch.equal(getattr(found, name), getattr(counted, name))
    for name in ("rowptr", "col", "order", "sizes"):
        for one, other in ((found.incoming, counted.incoming), (found.outgoing, counted.outgoing)):
            assert torch.equal(getattr(one, name), getattr(other, name))


KINDS = ["max", "std", "softmax", "median", "sum", "var"]
MODES = {
    "cat": {},
    "sum": {},
    "max": {},
    "proj": {"in_channels": 5, "out_channels": 3},
    "attn": {"in_channels": 5, "out_channels": 4, "num_heads": 2},
}


@pytest.mark.parametrize("mode", MODES)
def test_several_aggregations(mode):
    x, index, targets, dim = drawn("many", every_target=True)
    torch.manual_seed(0)
    theirs = pyg.MultiAggregation(KINDS, mode=mode, mode_kwargs=MODES[mode]).double()
    ours = graphact.pyg.MultiAggregation(KINDS, mode=mode, mode_kwargs=MODES[mode]).double()
    assert ours.load_state_dict(theirs.state_dict()).missing_keys == []
    found = value_and_gradients(ours, x, index, dim_size=targets, dim=dim)
    assert_same(mode, found, value_and_gradients(theirs, x, index, dim_size=targets, dim=dim))


def test_one_pass_for_several_aggregations(monkeypatch):
    calls, evaluate = [], message_lists.neighborhood_functions
    monkeypatch.setattr(
        message_lists, "neighborhood_functions", lambda *inputs: calls.append(inputs[2:]) or evaluate(*inputs)
    )
    x, index, targets, _ = drawn("many")
    graphact.pyg.MultiAggregation(["sum", "max", "var", "std", "max"])(x, index, dim_size=targets)
    assert calls == [(("max", "std"), True)]


def test_a_hook_inside_is_called():
    aggregation = graphact.pyg.MultiAggregation(["max", "min"])
    aggregation.aggrs[1].register_forward_hook(lambda module, inputs, output: output + 100)
    x, index = torch.tensor([[1.0], [2.0]]), torch.tensor([0, 0])
    assert aggregation(x, index).tolist() == [[2.0, 101.0]]


@pytest.mark.parametrize("name", NAMES)
def test_inside_a_convolution(name):
    ours, theirs = pair(name)
    torch.manual_seed(0)
    conv = SAGEConv(4, 3, aggr=theirs).double()
    fused = SAGEConv(4, 3, aggr=ours).double()
    fused.load_state_dict(conv.state_dict())
    edge_index = torch.cat([torch.arange(12).repeat(2, 1), torch.randint(0, 12, (2, 40))], 1)
    x = torch.randn(12, 4, dtype=torch.float64)
    assert_same("", value_and_gradients(fused, x, edge_index), value_and_gradients(conv, x, edge_index))
    assert isinstance(ours, type(theirs))
    copied = copy.deepcopy(fused)
    assert torch.equal(copied(x, edge_index), fused(x, edge_index))


def test_functions_by_class():
    assert aggregations.function_of(pyg.SumAggregation()) == "sum"
    assert aggregations.function_of(graphact.pyg.StdAggregation()) == "std"
    assert aggregations.function_of(pyg.VarAggregation(semi_grad=True)) is None
    assert aggregations.function_of(pyg.SoftmaxAggregation()) is None
