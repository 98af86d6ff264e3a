"""Forms in blocks of columns: the same constants as forms held at once, and larger ones where the budget ends."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from graphact import Graph
from graphact.guarantees import (
    budget,
    certify,
    columns,
    empirical_lipschitz,
    forms,
    lipschitz,
    lipschitz_bound,
    rules,
    segments,
    windows,
)
from graphact.guarantees.description import read_layers
from graphact.guarantees.models import read_model
from graphact.guarantees.powers import bank_norms
from graphact.nn import FIR, GCNN, GraphAdaptiveMax, GraphFilter, Sequential
from graphact.training import TrainingSettings, fit
from guarantees.draws import draw, violations
from support.graphs import random_graph

CPU = torch.device("cpu")
KINDS = ("chain", "gcnn", "fir", "activation", "filter")
ACTIVATIONS = ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga")


@pytest.fixture
def in_blocks(monkeypatch):
    """Every network is large, and every block lives on the nodes it has reached."""
    monkeypatch.setattr(forms, "MOST_COEFFICIENTS", 0)
    monkeypatch.setattr(windows, "WIDE", 2.0)
    return monkeypatch


def norms(case):
    layers, features = read_layers(case.module)
    with torch.no_grad():
        return columns.column_norms(layers, features, case.graph, budget.Budget(None), CPU, lambda _: None)


@pytest.mark.parametrize("wide", [0.0, 0.4, 2.0], ids=["whole graph", "either", "reached nodes"])
@pytest.mark.parametrize("compiled", [True, False], ids=["numba", "torch"])
@pytest.mark.parametrize("seed", range(10))
def test_blocks_change_nothing(monkeypatch, seed, compiled, wide):
    """All kinds of modules; forms held at once compare pairs of columns for the kernel, which blocks cannot."""
    monkeypatch.setattr(rules, "MOST_GRAM_COLUMNS", 0)
    monkeypatch.setattr(windows, "WIDE", wide)
    monkeypatch.setitem(windows.BLOCK, "cpu", 60)
    if not compiled:
        for module in (windows, segments):
            monkeypatch.setattr(module, "is_compiled", lambda _: False)
    case = draw(seed, KINDS[seed % len(KINDS)], max_nodes=5)
    layers, features = read_layers(case.module)
    with torch.no_grad():
        expected = forms.output_norms(layers, features, case.graph)
    found, followed = norms(case)
    assert followed == 1.0
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("seed", range(20))
def test_less_work_gives_larger_constants_that_hold(monkeypatch, seed):
    """From the full forms over partly merged ones to one layer at a time, never below and never above the product."""
    case = draw(seed, "gcnn" if seed % 2 else "chain", max_nodes=5)
    generator = torch.Generator().manual_seed(seed)
    monkeypatch.setattr(windows, "WIDE", 2.0)
    monkeypatch.setitem(windows.BLOCK, "cpu", 60)
    before, _ = norms(case)
    monkeypatch.setattr(budget.Budget, "spend", lambda *_: None)
    for work in (1e4, 1e3, 100, 0):
        monkeypatch.setattr(budget, "MOST_WORK", work)
        after, _ = norms(case)
        assert (after >= before * (1 - 1e-12)).all()
        assert violations(case, after.amax(-1), *case.signals(6, generator))[0] == 0
        before = after


def test_a_bound_in_blocks_lies_between_forms_and_product(in_blocks):
    graph, model = random_graph(30, 0.1), GCNN([3, 4, 4], activation="median-ga", hops=2, out_features=2).double()
    complete = lipschitz_bound(model, graph)
    in_blocks.setattr(budget.Budget, "allows", lambda *_: False)
    merged = lipschitz_bound(model, graph)
    too_short = lipschitz_bound(model, graph, budget=1e-9)
    assert complete.followed == 1.0
    assert merged.followed < 1.0
    assert too_short.followed == 0.0
    assert complete.value < merged.value < too_short.value <= too_short.composed
    assert complete.composed == merged.composed <= too_short.composed  # norms of single layers take time, too


@pytest.mark.parametrize("seed", range(12))
def test_norms_of_layers_end_with_the_budget(monkeypatch, seed):
    """What remains are sums of magnitudes, never below the norms and never broken; nothing is followed either."""
    case = draw(seed, KINDS[seed % len(KINDS)], max_nodes=5)
    layers, features = read_layers(case.module)
    with torch.no_grad():
        exact = lipschitz.layer_norms(layers, features, case.graph)
        monkeypatch.setattr(budget, "MOST_NORM_WORK", -1.0)
        ended = lipschitz.layer_norms(layers, features, case.graph, budget.Budget(None))
        late = lipschitz.layer_norms(layers, features, case.graph, budget.Budget(1e-9))
    for norms, without_signs, other in zip(exact, ended, late, strict=True):
        assert norms.shape == without_signs.shape
        assert (without_signs >= norms * (1 - 1e-12)).all()
        torch.testing.assert_close(without_signs, other)
    monkeypatch.setattr(forms, "MOST_COEFFICIENTS", 0)
    bound = lipschitz_bound(case.module, case.graph, budget=1e-9)
    assert violations(case, bound.per_node, *case.signals(6, torch.Generator().manual_seed(seed)))[0] == 0


@pytest.mark.parametrize("name", ["max-ga", "kernel-ga", "median-l"])
def test_a_budget_is_asked_while_norms_are_computed(name, monkeypatch):
    """With a second of budget, norms of dense powers took 77: they are asked for every few rows, and then end."""
    graph, spent, zero = random_graph(40, 0.2), [], torch.zeros(40, 1, dtype=torch.float64)
    model = GCNN([1, 4, 4], order=4, activation=name, hops=3, out_features=2).double()
    monkeypatch.setattr("graphact.guarantees.powers.MOST_ROWS", 8)
    monkeypatch.setattr(budget.Budget, "spend_on_norms", lambda budget, work: spent.append(work))
    for check in (lambda: lipschitz_bound(model, graph), lambda: certify(model, graph, zero, 0.1)):
        spent.clear()
        check()
        assert len(spent) > 2 * 4 * 40 / 8  # filters, hops and blocks of rows
        assert sum(spent) > 40 * 40


def test_a_filter_of_one_tap_has_the_norms_of_its_dense_matrix():
    """A matrix over nodes times one over features, as a GCNConv is, needs no table of all entries."""
    graph = random_graph(9, 0.4).to(torch.float64)
    for power in range(3):
        taps = torch.zeros(3, 4, 5, dtype=torch.float64)
        taps[power] = torch.randn(4, 5, dtype=torch.float64)
        rows = torch.linalg.matrix_power(graph.to_dense(), power).abs().sum(1)
        expected = rows[:, None] * taps[power].abs().sum(0)
        torch.testing.assert_close(bank_norms(taps, graph), expected)
        torch.testing.assert_close(bank_norms(taps.requires_grad_(), graph), expected)


def test_what_takes_long_is_said_before_it_begins(in_blocks, capsys):
    graph, model = random_graph(30, 0.1), GCNN([3, 4, 4], activation="max-ga", out_features=2).double()
    x = torch.zeros(30, 3, dtype=torch.float64)
    lipschitz_bound(model, graph)
    assert capsys.readouterr().err == ""
    in_blocks.setattr(budget, "SECOND", 1e3)
    complete = lipschitz_bound(model, graph)
    line = capsys.readouterr().err
    assert line.startswith("graphact: lipschitz_bound takes about ")
    assert "budget= limits the seconds" in line
    assert "certified_radius certifies single nodes without it\n" in line
    assert line.count("\n") == 1
    lipschitz_bound(model, graph, budget=60)
    lipschitz_bound(model, graph, progress=lambda _: None)
    assert capsys.readouterr().err == ""
    in_blocks.setattr(budget, "MOST_NEEDED", 1.0)
    in_blocks.setattr(columns, "follow", lambda *_: pytest.fail("it is known before that this takes too long"))
    bound = lipschitz_bound(model, graph)
    assert "lipschitz_bound would take about" in capsys.readouterr().err
    certify(model, graph, x, 0.1)
    assert "certify would take about" in capsys.readouterr().err
    assert bound.followed == 0
    assert bound.value > complete.value
    assert repr(bound).endswith("followed=0%)")


def test_many_small_blocks_take_long_and_that_is_said(in_blocks, capsys):
    """Few operations in each of them: what one costs beside these counts."""
    graph, model = random_graph(30, 0.1), GCNN([3, 4, 4], activation="max-ga", out_features=2).double()
    in_blocks.setitem(windows.BLOCK, "cpu", 1)
    in_blocks.setattr(budget, "LONG", 100 * budget.BLOCK_SECONDS)  # there are 210 columns, a block each
    lipschitz_bound(model, graph)
    assert "lipschitz_bound takes about" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.1, "1 seconds"), (100, "100 seconds"), (150, "2 minutes"), (9000, "2 hours"), (1e7, "116 days")],
)
def test_seconds_in_words(seconds, words):
    assert budget.in_words(seconds) == f"about {words}"


def test_the_expected_work_is_about_what_is_done(in_blocks):
    graph, model = random_graph(60, 0.05), GCNN([3, 4, 4], order=1, activation="max-ga", out_features=2).double()
    layers, features = read_layers(model)
    found, expected = budget.Budget(None), []
    in_blocks.setattr(budget.Budget, "reserve", lambda _, *work: expected.extend(work))
    with torch.no_grad():
        columns.column_norms(layers, features, graph, found, CPU, lambda _: None)
    needed, every = expected
    assert 0.3 < needed / found.operations[True] < 3
    assert 0.3 < every / sum(found.operations.values()) < 3


def test_progress_of_small_networks_ends_at_one():
    shares = []
    lipschitz_bound(GCNN([1, 2]).double(), random_graph(5, 0.5), progress=shares.append)
    assert shares == [1.0]


def test_seconds_and_progress(in_blocks):
    graph, model = random_graph(30, 0.1), GCNN([3, 4, 4], activation="max-ga").double()
    shares = []
    bound = lipschitz_bound(model, graph, budget=600, progress=shares.append)
    assert bound.followed == 1.0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert lipschitz_bound(model, graph, progress=True).value == bound.value
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="budget must be a finite number above 0"):
            lipschitz_bound(model, graph, budget=wrong)


def test_the_largest_float_error_is_on_the_safe_side(in_blocks):
    """Linear networks with exact constants, by rational arithmetic on the very numbers that float64 holds."""
    from fractions import Fraction

    torch.manual_seed(0)
    for _ in range(10):
        graph = random_graph(6, 0.6)
        model = FIR([1, 2, 1], order=1).double()
        matrix = [[Fraction(entry) for entry in row] for row in graph.to_dense().tolist()]
        taps = [[[[Fraction(t) for t in g] for g in k] for k in bank.taps.tolist()] for bank in model.filters]
        forms = {(i, 0): {i: Fraction(1)} for i in range(6)}
        for bank in taps:
            new = {}
            for i, f in itertools.product(range(6), range(len(bank[0][0]))):
                row = {}
                for g in range(len(bank[0])):
                    for j in range(6):
                        weight = bank[0][g][f] * (i == j) + bank[1][g][f] * matrix[i][j]
                        for m, value in forms[j, g].items():
                            row[m] = row.get(m, 0) + weight * value
                new[i, f] = row
            forms = new
        scale = [[Fraction(w) for w in row] for row in model.readout.weight.tolist()]
        exact = max(sum(abs(scale[0][0] * value) for value in forms[i, 0].values()) for i in range(6))
        value = lipschitz_bound(model, graph).value
        assert Fraction(value) >= exact
        assert value == pytest.approx(float(exact), rel=1e-12)


def test_a_bound_one_per_cent_too_small_is_caught_in_linear_networks(in_blocks):
    """The signs of the strongest row attain the constant of a linear network, on a graph that takes several blocks."""
    graph = random_graph(40, 0.08)
    model = FIR([2, 3, 2], order=2, out_features=2).double()
    bound = lipschitz_bound(model, graph)
    x = torch.zeros(graph.num_nodes, 2, dtype=torch.float64)
    found = empirical_lipschitz(model, graph, x.expand(4, -1, -1), starts=1, steps=3)
    assert (found.per_node <= bound.per_node * (1 + 1e-12)).all()
    assert (found.per_node > 0.99 * bound.per_node).any()
    jacobian = torch.func.jacrev(lambda x: model(x, graph))(x).abs().sum((-1, -2)).amax(-1)
    assert (jacobian > 0.99 * bound.per_node).all()


def trained(name, seed=0):
    from graphact_lab.tasks import source_localization

    torch.manual_seed(seed)
    task = source_localization(graph=0, split=0, node=0)
    model = GCNN([1, 4, 4], order=2, activation=name, hops=1, out_features=4)
    fit(model, task, TrainingSettings(epochs=6, batch_size=240, learning_rate=0.02))
    return model.double(), task.graph.to(torch.float64), task.inputs[task.test].double()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_attacks_on_trained_models(in_blocks, name):
    """Gradient ascent on pairs of signals: 12,480 evaluations for each activation, against both kinds of bound."""
    model, graph, x = trained(name)
    evaluations = 0

    def counted(signals, graph):
        nonlocal evaluations
        evaluations += signals.shape[:-2].numel()
        return model(signals, graph)

    complete = lipschitz_bound(model, graph)
    in_blocks.setattr(budget, "MOST_WORK", 1.0)
    in_blocks.setattr(budget.Budget, "spend", lambda *_: None)
    merged = lipschitz_bound(model, graph)
    found = empirical_lipschitz(counted, graph, x, starts=2, steps=40)
    assert evaluations >= 12_000
    assert (found.per_node <= complete.per_node * (1 + 1e-9)).all()
    assert (complete.per_node <= merged.per_node * (1 + 1e-9)).all()
    assert found.value > complete.value / 200


def test_certificates_of_large_networks(in_blocks):
    """Without forms of values, and from constants in blocks, certificates are wider and still hold."""
    model, graph, x = trained("max-ga")
    narrow = certify(model, graph, x[:4], 1e-3)
    in_blocks.setattr("graphact.guarantees.certificates.MOST_GENERATORS", 0)
    wide = certify(model, graph, x[:4], 1e-3)
    assert (wide.lower <= narrow.lower).all()
    assert (wide.upper >= narrow.upper).all()
    assert (wide.margins <= narrow.margins).all()
    assert wide.certified.any()


@pytest.mark.parametrize("block", [1 << 18, 500, 60])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Sequential(GraphAdaptiveMax(features=6, start="uniform"), nn.Linear(6, 3)),
        lambda: Sequential(nn.ReLU(), GraphFilter(6, 8, order=1), nn.ReLU(), nn.Linear(8, 3)),
        lambda: Sequential(GraphFilter(6, 5, order=2), nn.LayerNorm(5, eps=0.1), nn.ReLU(), nn.Linear(5, 3)),
        lambda: Sequential(GraphFilter(6, 5, order=1), nn.Tanh(), GraphAdaptiveMax(features=5, start="uniform")),
    ],
    ids=["activation", "ReLU", "norm", "two activations"],
)
def test_features_that_no_map_mixes_are_split_over_blocks(in_blocks, make, block):
    """An activation with nothing linear in front of it, at the beginning or behind another one."""
    torch.manual_seed(0)
    graph, model = random_graph(30, 0.1), make().double()
    in_blocks.setitem(windows.BLOCK, "cpu", block)
    found = lipschitz_bound(model, graph)
    in_blocks.undo()
    assert found.followed == 1.0
    assert found.value == pytest.approx(lipschitz_bound(model, graph).value, rel=1e-9)


@pytest.mark.parametrize(("width", "outputs"), [(8, 1), (8, 7), (16, 7), (16, None), (70, None)])
@pytest.mark.parametrize("name", ["relu", "max-ga", "max-l"])
def test_blocks_try_as_many_slopes_as_forms_held_at_once(in_blocks, name, width, outputs):
    """The same features where all of them are tried; among more, estimates say which."""
    torch.manual_seed(0)
    graph = random_graph(20, 0.2).normalize("random_walk")
    start = {} if name == "relu" else {"start": "uniform"}
    model = GCNN([2, width, width], order=1, activation=name, out_features=outputs, **start).double()
    blocks = lipschitz_bound(model, graph)
    in_blocks.undo()
    held = lipschitz_bound(model, graph)
    assert blocks.followed == held.followed == 1.0
    assert blocks.value == pytest.approx(held.value, rel=1e-9 if width == 8 or outputs is None else 0.01)


def test_large_networks_try_a_few_slopes():
    weight, sizes = torch.ones(7, 16).double(), torch.arange(16).double()
    assert segments.features_tried(weight, sizes, 10**12, False).tolist() == [[15, 14, 13]] * 7
    assert segments.features_tried(weight, sizes, 10**4, False).size(1) == 8
    assert segments.features_tried(torch.eye(100).double(), torch.ones(100).double(), 10**12, True).size(1) == 1
    assert segments.features_tried(torch.ones(100, 16).double(), sizes, 10**12, False).size(1) == 0


@pytest.mark.parametrize("name", ["relu", "max-ga", "max-l", "kernel-ga", "prelu", "trimmed-mean-ga"])
def test_everything_is_on_the_device_of_the_graph(name, monkeypatch):
    """The meta device stands for a GPU: it refuses to compute with tensors of the CPU, and has no numbers."""
    monkeypatch.setitem(windows.BLOCK, "meta", 1 << 18)
    monkeypatch.setattr(windows.Operator, "__matmul__", on_meta)
    options = {"learn_gamma": True} if name == "kernel-ga" else {}
    model = Sequential(
        GCNN([2, 4, 4], order=2, activation=name, hops=1, bias=True, out_features=5, **options),
        nn.LayerNorm(5),
        nn.LeakyReLU(0.1),
        nn.Linear(5, 3),
    ).double()
    layers, features = read_model(model, random_graph(20, 0.2))
    device = torch.device("meta")
    with torch.no_grad():
        norms, followed = columns.column_norms(
            layers, features, random_graph(20, 0.2), budget.Budget(None), device, lambda _: None
        )
    assert (norms.device, norms.shape, followed) == (device, (20, 3), 1.0)


def on_meta(operator, x):
    assert x.device == operator.device == torch.device("meta")
    return torch.empty_like(x)


def test_fewer_signs_are_tried_where_there_are_too_many(monkeypatch):
    """All signs of the last ReLUs, some, none: ever larger, and nothing changes at once."""
    graph, model = random_graph(12, 0.3), GCNN([1, 6], order=1, activation="relu", out_features=3).double()
    values = []
    for most in (10**9, 12 * 12 * 3 * 16, 12 * 12 * 3 * 4, 0):
        monkeypatch.setattr(forms, "MOST_TRIED", most)
        values.append(lipschitz_bound(model, graph).value)
    assert values == sorted(values)
    assert values[0] < values[-1]


def test_a_large_path_takes_memory_and_time_in_proportion():
    """The constant of every inner node of a path is that of a short path: 3,000 nodes with 9 million inputs squared."""

    def path(size):
        ends = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
        return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1)).to(torch.float64)

    torch.manual_seed(0)
    model = GCNN([2, 2, 2], order=1, activation="max-ga", out_features=2).double()
    short, long = (lipschitz_bound(model, path(size)) for size in (30, 3000))
    assert long.value == pytest.approx(short.value, rel=1e-6)
    np.testing.assert_allclose(long.per_node[:15], short.per_node[:15], rtol=1e-6)
    assert long.value < long.composed
    assert lipschitz_bound(GraphAdaptiveMax(hops=2), path(3000)).paper is not None


@pytest.mark.parametrize("seed", range(40, 60))
def test_magnitudes_hold(seed):
    """What remains where the budget ends at once: no signs, one pass over the edges for each hop."""
    case = draw(seed, KINDS[seed % len(KINDS)])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        largest, _ = lipschitz.magnitudes(*read_layers(case.module), case.graph)
    assert violations(case, largest.amax(-1), *case.signals(12, generator))[0] == 0
