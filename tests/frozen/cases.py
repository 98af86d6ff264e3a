"""Frozen cases: small computations with fixed inputs, each a function that returns named arrays, numbers or texts.

Inputs are drawn by NumPy and parameters are set from arrays, so that no code under test decides them. Names of the
packages come from ``library.py`` alone.
"""

import json
import struct
import tempfile
import warnings
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from frozen import library as names
from frozen.library import GUARANTEES, Graph, functional, nn

FILES = Path(__file__).parent / "files"
CASES = {}
NEEDS = {}  # the data sets and packages of a case
SLOW = set()  # cases that take more than half a second
SAME_MACHINE = set()  # cases in float32, whose last bits differ on another processor
WHOLE = 18  # arrays up to this size are kept number by number


def case(name, *, data=(), packages=(), slow=False, same_machine=False):
    """Register a function as a case."""

    def keep(function):
        assert name not in CASES, name
        CASES[name] = function
        NEEDS[name] = (tuple(data), tuple(packages))
        SLOW.update([name] if slow else [])
        SAME_MACHINE.update([name] if same_machine else [])
        return function

    return keep


# Inputs


def rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


def tensor(array, dtype=torch.float64):
    return torch.from_numpy(np.array(array)).to(dtype)


def normal(seed, *shape):
    return tensor(rng(seed).normal(size=shape))


def from_matrix(matrix):
    """The graph of a dense shift operator, built from its edges."""
    target, source = np.nonzero(matrix)
    return Graph.from_edge_index(np.stack([source, target]), matrix[target, source], num_nodes=len(matrix))


def symmetric(size, density, seed):
    """A weighted undirected graph, as a matrix."""
    random = rng(seed)
    upper = np.triu(random.random((size, size)) < density, 1) * random.uniform(0.2, 1.0, (size, size))
    return upper + upper.T


def undirected():
    return from_matrix(symmetric(8, 0.45, 1)), normal(2, 8, 2)


def directed():
    """Weights of both signs, and self-loops at some nodes."""
    random = rng(3)
    matrix = (random.random((7, 7)) < 0.4) * random.uniform(-1.0, 1.0, (7, 7))
    np.fill_diagonal(matrix, [0.5, 0.0, -0.7, 0.0, 0.0, 0.3, 0.0])
    return Graph.from_dense(tensor(matrix)), normal(4, 7, 2)


def tied():
    """Isolated nodes, equal values and zeros; weights and values are dyadic, so that ties are exact."""
    matrix = np.zeros((8, 8))
    for one, other in [(0, 1), (0, 2), (0, 3), (1, 2), (4, 0), (4, 2), (5, 1)]:
        matrix[one, other] = matrix[other, one] = 0.5
    return from_matrix(matrix), tensor(rng(5).integers(-2, 3, (8, 2)) / 2)


def united():
    """Three graphs side by side, of which one has no edges."""
    first, last = from_matrix(symmetric(4, 0.8, 6)), from_matrix(symmetric(3, 0.9, 7))
    lonely = Graph.from_edge_index(np.zeros((2, 0), int), np.zeros(0), num_nodes=2)
    return Graph.union([first, lonely, last]), normal(8, 9, 2)


def large():
    """A hub of more than 64 neighbours, nodes with 33 to 64, and a batch: kernels take other ways here."""
    matrix = symmetric(90, 0.3, 9)
    matrix[0, 1:] = matrix[1:, 0] = rng(10).uniform(0.2, 1.0, 89)
    dense = rng(11).random((12, 90)) < 0.5
    matrix[1:13] = np.maximum(matrix[1:13], dense * 0.25)
    np.fill_diagonal(matrix, 0.0)
    return from_matrix(matrix / 20), normal(12, 3, 90, 5)


SMALL = {"undirected": undirected, "directed": directed, "tied": tied, "united": united}


def set_parameters(module, seed, scale=0.7):
    """Draw all parameters, in the order of their names."""
    random = rng(seed)
    with torch.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            parameter.copy_(tensor(random.uniform(-scale, scale, tuple(parameter.shape))))
    return module


# Results


def value_and_gradients(function, x, parameters, label=""):
    """The value for a signal, and the gradients of a fixed functional of it."""
    x = x.clone().requires_grad_()
    out = function(x)
    weights = tensor(rng(99).normal(size=tuple(out.shape)))
    inputs = [x, *parameters.values()]
    grads = torch.autograd.grad((out * weights).sum(), inputs, allow_unused=True, materialize_grads=True)
    found = {f"{label}out": out}
    found |= {f"{label}grad {name}": grad for name, grad in zip(["x", *parameters], grads, strict=True)}
    return found


def module_outputs(module, graph, x, label=""):
    """Value and gradients of a module; in float32 the value is the same up to rounding."""
    found = value_and_gradients(lambda x: module(x, graph), x, dict(sorted(module.named_parameters())), label)
    single = module.float()(x.float(), graph.to(dtype=torch.float32))  # which holds the parameters, as they were drawn
    module.double()
    expected = found[f"{label}out"].detach()
    torch.testing.assert_close(single.double(), expected, rtol=1e-5, atol=1e-5)
    return found


def flat(value):
    """The fields of a result as named arrays, numbers and texts."""
    if not is_dataclass(value):
        return {"value": value}
    found = {}
    for item in fields(value):
        part = getattr(value, item.name)
        if part is None or isinstance(part, str | bool):
            found[item.name] = str(part)
        elif isinstance(part, tuple):
            found[item.name] = np.array([number for _, number in part])
            found[f"{item.name} names"] = " ".join(name for name, _ in part)
        elif is_dataclass(part):
            found[item.name] = repr(part)
        else:
            found[item.name] = part
    return found


def prefixed(prefix, found):
    return {f"{prefix} {name}": value for name, value in found.items()}


# Activations


def variants(name):
    """The options under which an activation is frozen."""
    kind = nn.ACTIVATIONS[name]
    if name in ("max-k",):
        return [{}, {"k": 1}]
    if name in ("prelu", "maxout"):
        return [{}, {"features": 2}]
    if name in ("shiftless-max", "shiftless-median"):
        return [{"features": 2, "hops": hops} for hops in (1, 2)]
    if name == "grelu":
        return [{"features": 2}, {"features": 2, "hops": 2, "pieces": 3}]
    if name == "digraf":
        return [{"features": 2, "cells": 4}, {"features": 2, "cells": 4, "hops": 2}, {"adaptive": False, "cells": 4}]
    if not hasattr(kind(), "hops"):
        return [{}]
    every = [
        {"features": features, "hops": hops, "closed": closed}
        for features in (None, 2)
        for hops in (1, 2)
        for closed in (False, True)
    ]
    if name == "kernel-ga":
        every = [{**options, "gamma": 0.6} for options in every]
        every += [{"gamma": 0.6, "learn_gamma": True, "hops": 2}]
    if name == "mixture-ga":
        every += [{"ops": ["median", "log-mean-exp", "kernel"], "hops": 2}]
    if name == "trimmed-mean-ga":
        every += [{"trim": 0.4}]
    return every


def text_of(options):
    return " ".join(f"{key}={value}" for key, value in options.items())


def config_of(module):
    """The class of a module and its configuration, as files hold them."""
    return json.dumps([type(module).__name__, module.config()], sort_keys=True)


def make(name, options, seed=20):
    """An activation with drawn parameters, such as float32 holds without loss."""
    module = nn.ACTIVATIONS[name](**options)
    return set_parameters(module, seed).double()


def freeze_activation(name):
    @case(f"activation {name}")
    def _():
        found = {}
        for options in variants(name):
            for place, draw in SMALL.items():
                graph, x = draw()
                found |= module_outputs(make(name, options), graph, x, f"{place} {text_of(options)} ")
        return found

    @case(f"activation {name}, large")
    def _():
        graph, x = large()
        wide = [{**options, "features": 5} if options.get("features") else options for options in variants(name)]
        found = {}
        for options in [*wide[: -1 : max(1, len(wide) // 3)], wide[-1]]:
            module = make(name, options)
            parameters = dict(sorted(module.named_parameters()))
            found |= value_and_gradients(partial(module, graph=graph), x, parameters, f"{text_of(options)} ")
        return found


for _name in names.ACTIVATIONS:
    freeze_activation(_name)


@case("activations that read means of graphs")
def _():
    """Signals beyond the interval of DiGRAF, and graphs told apart by a batch."""
    (edge_index, edge_weight), batch = undirected()[0].to_edge_index(), torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    x, found = normal(21, 8, 2) * 3, {}
    for name in ("grelu", "digraf"):
        module = make(name, variants(name)[0])
        found |= value_and_gradients(partial(module, graph=undirected()[0]), x, {}, f"{name} far ")
        found[f"{name} batch"] = module(x, edge_index, edge_weight, batch=batch)
    return found


@case("activations by name")
def _():
    return {
        "names": " ".join(names.ACTIVATIONS),
        **{name: config_of(make(name, variants(name)[-1])) for name in names.ACTIVATIONS},
    }


@case("second derivatives")
def _():
    found = {}
    for name in ("kernel-ga", "max-ga", "median-l", "weighted-mean-ga", "soft-maximum-ga", "mixture-ga"):
        module = make(name, {"hops": 2})
        graph, x = undirected()
        x.requires_grad_()
        (grad,) = torch.autograd.grad((module(x, graph) ** 2).sum(), x, create_graph=True)
        found[name] = grad
        (found[f"{name} second"],) = torch.autograd.grad((grad**2).sum(), x)
    return found


@case("transforms", slow=True)
def _():
    """Activations under torch.func, which uses another path through the library."""
    found = {}
    for name in ("max-ga", "median-ga", "kernel-ga", "max-l", "mean-ga"):
        module, (graph, x) = make(name, {"hops": 2}), undirected()
        parameters = dict(module.named_parameters())
        several = {key: torch.stack([value, value / 2]) for key, value in parameters.items()}

        def call(values, x, module=module, graph=graph):
            return torch.func.functional_call(module, values, (x, graph))

        found[f"{name} vmap"] = torch.func.vmap(call, in_dims=(0, None))(several, x)
        found[f"{name} jvp"] = torch.func.jvp(partial(call, parameters), (x,), (normal(22, 8, 2),))[1]
    return found


# Functions


def sum_of_squares(own, neighbors):
    return (own - neighbors).square().sum(-2)


def freeze_functions(place):
    @case(f"functions, {place}")
    def _():
        graph, x = SMALL[place]()
        f = functional
        beta, shared, each = tensor(0.6), tensor([0.5, -0.4]), tensor(rng(30).uniform(-1, 1, (2, 2)))
        found = value_and_gradients(lambda x: f.shift(x, graph), x, {}, "shift ")
        taps = normal(31, 3, 2, 2).requires_grad_()
        found |= value_and_gradients(lambda x: f.graph_filter(x, graph, taps), x, {"taps": taps}, "graph_filter ")
        for closed in (False, True):
            for op in ("max", "min", "median", "kernel"):
                function = getattr(f, f"neighborhood_{op}")
                options = {"gamma": 0.6} if op == "kernel" else {}
                call = partial(function, graph=graph, closed=closed, **options)
                found |= value_and_gradients(call, x, {}, f"{op} closed={closed} ")
            call = partial(f.neighborhood_apply, graph=graph, function=sum_of_squares, closed=closed)
            found |= value_and_gradients(call, x, {}, f"apply closed={closed} ")
        for op in names.OPERATIONS:  # every registered operation, shifted and over hops
            given = {name: tensor(0.6).requires_grad_() for name in names.OPERATIONS[op].parameters if name != "trim"}
            common = {"graph": graph, "beta": beta, "op": op, "parameters": given or {"trim": 0.3}}
            common |= {} if names.OPERATIONS[op].parameters else {"parameters": {}}
            for kind, weights, closed in (("graph_adaptive", shared, True), ("localized", each, False)):
                call = partial(getattr(f, kind), weights=weights, closed=closed, **common)
                found |= value_and_gradients(call, x, given, f"{kind} {op} ")
        mixed = tensor(rng(32).uniform(-1, 1, (2, 2)))
        found["mixture"] = f.graph_adaptive_mixture(x, graph, beta, mixed, ("median", "mean"))
        found["own function"] = f.graph_adaptive(x, graph, 1.0, shared, lambda neighbors: neighbors.pow(2).sum(-2))
        return found


for _name in SMALL:
    freeze_functions(_name)


@case("functions of the signal")
def _():
    x = normal(33, 6, 4) * 2
    f = functional
    found = value_and_gradients(lambda x: f.cpab(x, tensor(rng(34).normal(size=5)), 1.5), x, {}, "cpab ")
    found |= value_and_gradients(lambda x: f.max_k(x, 2), x, {}, "max_k ")
    slopes, offsets = normal(36, 3, 4), normal(37, 3, 4)
    found |= value_and_gradients(lambda x: f.grelu(x, normal(35, 6, 1), slopes, offsets), x, {}, "grelu ")
    for name in ("relu", "leaky-relu", "elu", "gelu", "silu", "tanh", "abs"):
        found |= value_and_gradients(lambda x, name=name: f.pointwise(x, name), x, {}, f"{name} ")
    return found


@case("medians of long lists")
def _():
    """Degrees from 1 to 89, around every length at which another kernel begins."""
    random, lengths = rng(38), (1, 2, 3, 16, 17, 31, 32, 33, 34, 63, 64, 65, 80, 89)
    lists = [(j, i) for i, d in enumerate(lengths) for j in random.permutation(np.delete(np.arange(90), i))[:d]]
    graph = Graph.from_edge_index(np.array(lists).T, np.ones(len(lists)), num_nodes=90)
    found = {}
    for kind, x in (("drawn", normal(39, 90, 2)), ("tied", tensor(random.integers(-2, 3, (90, 2)) / 2))):
        for closed in (False, True):
            one = value_and_gradients(partial(functional.neighborhood_median, graph=graph, closed=closed), x, {})
            one["out"] = one["out"][: len(lengths)]
            found |= prefixed(f"{kind} closed={closed}", one)
        for name in ("max-ga", "median-ga", "trimmed-mean-ga"):
            found |= prefixed(f"{kind} {name}", {"out": make(name, {"hops": 1})(x, graph)[: len(lengths)]})
    return found


@case("infinite values and NaN")
def _():
    graph, x = undirected()
    x[0, 0], x[1, 1], x[2, 0] = np.nan, np.inf, -np.inf
    found = {op: getattr(functional, f"neighborhood_{op}")(x, graph) for op in ("max", "min", "median", "kernel")}
    return found | {name: make(name, {})(x, graph) for name in ("relu", "max-l", "median-l", "mean-ga", "max-k")}


# Graphs


@case("graphs")
def _():
    found = {}
    for place, draw in SMALL.items():
        graph, _ = draw()
        found[f"{place} dense"] = graph.to_dense()
        found[f"{place} edges"], found[f"{place} weight"] = graph.to_edge_index()
        found[f"{place} degree"] = graph.degree
        found[f"{place} facts"] = [graph.num_nodes, graph.num_edges, graph.is_directed]
        for closed in (False, True):
            lists = graph.hop_pattern(2, closed=closed)
            found[f"{place} hops closed={closed}"] = torch.stack([lists.degree.sum(), lists.col.sum()])
        for kind in names.NORMALIZATIONS:
            with warnings.catch_warnings(action="ignore"):
                try:
                    found[f"{place} {kind}"] = graph.normalize(kind).to_dense()
                except ValueError as error:
                    found[f"{place} {kind}"] = type(error).__name__
    graph, _ = large()
    for kind in names.NORMALIZATIONS:
        found[f"large {kind}"] = graph.normalize(kind).to_dense()
    found["union batch"] = united()[0].batch
    found["permuted"] = directed()[0].permute(rng(40).permutation(7)).to_dense()
    summed = Graph.from_edge_index([[0, 0, 1], [1, 1, 0]], [0.5, 0.25, 2.0], num_nodes=3)
    found["repeated edges"] = summed.to_dense()
    found["nearest"] = Graph.nearest_neighbors(rng(41).random((9, 2)), 2).to_dense()
    generator = torch.Generator().manual_seed(42)
    drawn = names.drawn_graph([5, 4], 0.8, 0.2, generator)
    found["drawn"] = drawn.to_dense()
    found["dropped"] = drawn.drop_edges(0.4, generator=generator).to_dense()
    return found


# Networks


def networks():
    """Networks of each kind with the numbers of features of their input."""
    graph = undirected()[0].normalize("spectral")
    made = {"FIR": nn.FIR([2, 3, 3], order=[2, 1], out_features=2, bias=True)}
    for name in ("relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga", "mean-ga", "prelu", "max-k"):
        made[f"GCNN {name}"] = nn.GCNN([2, 3, 3], order=2, activation=name, hops=2, out_features=2, gamma=0.7)
    shared = {"per_feature": False, "closed": True, "bias": True}
    made["GCNN shared closed"] = nn.GCNN([2, 3], order=1, activation="max-ga", hops=1, out_features=3, **shared)
    made["GCNN learned width"] = nn.GCNN([2, 3], order=1, activation="kernel-ga", gamma=0.7, learn_gamma=True)
    made["GCNN list"] = nn.GCNN([2, 3, 3], activation=["tanh", "mixture-ga"], out_features=2)
    for name, convolution, activation in (
        ("filters", "GraphFilter", "max-ga"),
        ("edges", lambda i, o: nn.EdgeNet(i, o, graph, order=2), "median-ga"),
    ):
        options = {"convolution": convolution, "activation": activation, "out_features": 2}
        made[f"GraphNetwork {name}"] = nn.GraphNetwork([2, 3], **options)
    made["GraphFilter"] = nn.GraphFilter(2, 3, order=3, bias=True)
    made["EdgeNet"] = nn.EdgeNet(2, 3, graph, order=2, bias=True)
    parts = (nn.GraphFilter(2, 3, order=1), nn.GraphAdaptiveMax(hops=3), torch.nn.Linear(3, 2))
    made["Sequential"] = nn.Sequential(*parts)
    made["Residual"] = nn.Residual(nn.GraphFilter(2, 2, order=2), nn.GraphAdaptiveMedian())
    return {name: set_parameters(module, 50, 0.6).double() for name, module in made.items()}, graph


@case("networks")
def _():
    found, x = {}, normal(51, 2, 8, 2)
    made, graph = networks()
    for name, module in made.items():
        found |= module_outputs(module, graph, x, f"{name} ")
        found[f"{name} parameters"] = " ".join(f"{key}{tuple(p.shape)}" for key, p in module.named_parameters())
    return found


@case("networks on an edge_index")
def _():
    """Modules normalise an edge_index by themselves."""
    graph, x = undirected()
    edge_index, edge_weight = graph.to_edge_index()
    found = {}
    for kind in (None, *names.NORMALIZATIONS):
        module = nn.GCNN([2, 3], order=2, activation="max-ga", out_features=2, normalize=kind)
        found[str(kind)] = set_parameters(module, 52).double()(x, edge_index, edge_weight)
    return found


# Losses, training


def tasks_of(count, loss, *, alike=True):
    """Tasks in float64 on a graph each, or all on one."""
    tasks, shared = [], from_matrix(symmetric(8, 0.5, 60)).normalize("spectral")
    for number in range(count):
        graph = shared if alike else from_matrix(symmetric(8, 0.5, 60 + number)).normalize("spectral")
        random = rng(70 + number)
        inputs = tensor(random.normal(size=(14, 8, 1)))
        classes = loss == "cross_entropy"
        targets = (
            tensor(random.integers(0, 3, 14), torch.int64) if classes else torch.tanh(inputs) - inputs.mean(1, True)
        )
        parts = [torch.arange(8), torch.arange(8, 11), torch.arange(11, 14)]
        node, out, metric = (number % 8, 3, "accuracy") if classes else (None, 1, "rmse")
        tasks.append(names.Task("frozen", graph, inputs, targets, *parts, node, out, loss, metric, {}))
    return tasks


class Doubled(torch.nn.Module):
    """A module that does not describe itself, so that it is never stacked."""

    def __init__(self, out):
        super().__init__()
        self.inner = nn.GCNN([1, 3], order=1, activation="max-ga", out_features=out)

    def forward(self, x, graph):
        return 2 * self.inner(x, graph)


SETTINGS = {"epochs": 4, "batch_size": 3, "learning_rate": 0.05}
RECIPES = {
    "plain": {},
    "cosine": {"schedule": "cosine", "weight_decay": 0.1},
    "patient": {"patience": 1, "betas": (0.8, 0.9)},
}


def fleet_models(kind, out, count):
    if kind == "own":
        return [set_parameters(Doubled(out), 80 + number).double() for number in range(count)]
    options = {"order": 1, "activation": kind, "out_features": out, "hops": 2, "gamma": 0.7}
    return [set_parameters(nn.GCNN([1, 3], **options), 80 + number).double() for number in range(count)]


def after(model):
    """The parameters of a trained model, in the order of their names."""
    return torch.cat([parameter.detach().flatten() for _, parameter in sorted(model.named_parameters())])


@case("fleets", slow=True)
def _():
    """Each strategy, and what the fleet of each gives against training alone, to the last bit where it does today."""
    found = {}
    for strategy in names.STRATEGIES:
        for kind in ("max-ga", "median-l", "kernel-ga", "relu"):
            for loss in ("cross_entropy", "mse", "smooth_l1"):
                tasks = tasks_of(3, loss, alike=False)
                models = fleet_models(kind, tasks[0].out_features, 3)
                fleet = names.make_fleet(models, tasks, [5, 6, 7], strategy)
                label = f"{strategy} {kind} {loss}"
                found[f"{label} strategy"] = names.strategy_of(fleet)
                found[f"{label} losses"] = fleet.losses(torch.arange(8).expand(3, 8))
                result = fleet.train(names.TrainingSettings(**SETTINGS))
                found[f"{label} test"], found[f"{label} validation"] = result.test, result.validation
                found[f"{label} best"] = result.best_epoch
                found[f"{label} parameters"] = torch.stack([after(model) for model in models])
                found[f"{label} metric"] = fleet.metric("train")
    return found


@case("fit")
def _():
    found = {}
    for recipe, kind, loss in product(RECIPES, ("max-ga", "own"), ("cross_entropy", "mse")):
        (task,), label = tasks_of(1, loss), f"{recipe} {kind} {loss}"
        (model,) = fleet_models(kind, task.out_features, 1)
        settings = names.TrainingSettings(**{**SETTINGS, **RECIPES[recipe]})
        found |= prefixed(label, flat(names.fit(model, task, settings, seed=5)))
        found[f"{label} parameters"] = after(model)
    return found


@case("losses and metrics")
def _():
    outputs, classes = normal(90, 2, 5, 3), tensor(rng(91).integers(0, 3, (2, 5)), torch.int64)
    numbers, targets = normal(92, 2, 5, 4, 1) * 2, normal(93, 2, 5, 4, 1)
    found = {}
    for leading in (0, 1):
        found[f"cross_entropy {leading}"] = names.loss_of("cross_entropy", outputs, classes, leading=leading)
        found[f"accuracy {leading}"] = names.metric_of("accuracy", outputs, classes, leading=leading)
        for name in ("mse", "smooth_l1"):
            found[f"{name} {leading}"] = names.loss_of(name, numbers, targets, leading=leading)
        found[f"rmse {leading}"] = names.metric_of("rmse", numbers, targets, leading=leading)
    return found


@case("estimators", packages=("sklearn",), slow=True, same_machine=True)
def _():
    graph, _ = undirected()
    graph = graph.normalize("symmetric").to(dtype=torch.float32)
    x, y = rng(94).normal(size=(8, 3)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2, 0, 1])
    found = {}
    early = {"early_stopping": True, "validation_fraction": 0.3, "patience": 2}
    for label, options in (("plain", {}), ("early", early)):
        common = {"epochs": 6, "hidden": (4,), "random_state": 3, "dropout": 0.2, "weight_decay": 0.01, **options}
        model = names.estimator("NodeClassifier", activation="median-ga", **common)
        model.fit(x, y, graph=graph, nodes=np.arange(7))
        found[f"{label} probabilities"] = model.predict_proba(x, graph=graph)
        found[f"{label} classes"], found[f"{label} curve"] = model.predict(x, graph=graph), model.loss_curve_
        regressor = names.estimator("NodeRegressor", activation="identity", **common).fit(x, x.sum(1), graph=graph)
        found[f"{label} regression"] = regressor.predict(x, graph=graph)
        found[f"{label} score"] = regressor.score(x, x.sum(1), graph=graph)
        samples = [rng(95 + number).normal(size=(8, 2)).astype(np.float32) for number in range(6)]
        pooled = names.estimator("GraphClassifier", **common).fit(samples, [0, 1, 0, 1, 1, 0], graphs=graph)
        found[f"{label} pooled"] = pooled.predict_proba(samples, graphs=graph)
    return found


# Guarantees


def describable():
    """Modules for guarantees, each with its number of input features."""
    graph = undirected()[0].normalize("spectral")
    made = {"filter": nn.GraphFilter(2, 3, order=2), "FIR": nn.FIR([2, 3], out_features=2, bias=True)}
    for name in ("relu", "max-ga", "median-ga", "kernel-ga", "max-l", "mean-ga", "gelu", "soft-maximum-ga"):
        made[f"GCNN {name}"] = nn.GCNN([2, 3, 3], order=1, activation=name, hops=2, out_features=3, gamma=0.7)
    made["Residual"] = nn.Residual(nn.GraphFilter(2, 2, order=1), nn.GraphAdaptiveMax(hops=2))
    return {name: set_parameters(module, 100, 0.5).double() for name, module in made.items()}, graph


@case("lipschitz bounds")
def _():
    made, graph = describable()
    found = {}
    for name, module in made.items():
        found |= prefixed(name, flat(GUARANTEES.lipschitz_bound(module, graph)))
    for name in names.ACTIVATIONS:
        options = variants(name)[-1]
        for place in ("undirected", "directed", "tied"):
            try:
                bound = GUARANTEES.lipschitz_bound(make(name, options), SMALL[place]()[0])
            except TypeError as error:
                found[f"activation {name} {place}"] = type(error).__name__
            else:
                found |= prefixed(f"activation {name} {place}", flat(bound))
    return found


@case("lipschitz bound on a large graph", slow=True)
def _():
    graph, _ = large()
    model = set_parameters(nn.GCNN([2, 4, 4], order=1, activation="max-ga", hops=1, out_features=3), 101, 0.3)
    return flat(GUARANTEES.lipschitz_bound(model, graph.normalize("spectral")))


@case("topology bounds", slow=True)
def _():
    made, graph = describable()
    x, found = normal(102, 2, 8, 2), {}
    perturbations = [GUARANTEES.LostLinks(1), GUARANTEES.LostLinks(2), GUARANTEES.EdgeNoise(0.1)]
    signals = {"given": {"x": x}, "all": {"magnitude": 1.5}, "untried": {"x": x, "trials": 0}}
    for name, perturbation, given in product(made, perturbations, signals):
        try:
            bound = flat(GUARANTEES.topology_bound(made[name], graph, perturbation, **signals[given]))
        except TypeError as error:
            bound = {"refused": type(error).__name__}
        found |= prefixed(f"{name} {perturbation} {given}", bound)
    return found


@case("certificates", slow=True)
def _():
    made, graph = describable()
    x, found = normal(103, 2, 8, 2), {}
    for name, module in made.items():
        for kind in ("auto", "regressor"):
            certificate = GUARANTEES.certify(module, graph, x, 0.02, kind=kind)
            found |= prefixed(f"{name} {kind}", flat(certificate))
        found[f"{name} certified"] = GUARANTEES.certify(module, graph, x, 0.02).certified
    return found


@case("certified radii", slow=True)
def _():
    made, graph = describable()
    x, found = normal(104, 8, 2), {}
    for name in ("GCNN relu", "GCNN max-ga", "GCNN median-ga", "GCNN kernel-ga", "FIR"):
        for moving in ("all", "node"):
            radius = GUARANTEES.certified_radius(made[name], graph, x, [0, 3, 6], moving=moving)
            found |= prefixed(f"{name} {moving}", flat(radius))
            found[f"{name} {moving} constants"] = torch.stack([radius.from_constants, radius.from_one_constant])
            generator = torch.Generator().manual_seed(105)
            found[f"{name} {moving} attack"] = GUARANTEES.attack_radius(
                made[name], graph, x, [0, 3], moving=moving, steps=3, restarts=2, generator=generator
            )
    return found


@case("searches")
def _():
    made, graph = describable()
    x, found = normal(106, 8, 2), {}
    for name in ("GCNN max-ga", "GCNN kernel-ga", "filter"):
        model = made[name]

        def seeded():
            return {"generator": torch.Generator().manual_seed(107)}

        found |= prefixed(f"{name} attack", flat(GUARANTEES.attack(model, graph, x, 0.3, steps=3, **seeded())))
        lipschitz = GUARANTEES.empirical_lipschitz(model, graph, x, starts=2, steps=6, **seeded())
        pair = flat(lipschitz)
        for key in ("x", "perturbed") if name == "filter" else ():
            del pair[key]  # any signals attain the constant of a linear model
        changes = model(lipschitz.perturbed, graph) - model(lipschitz.x, graph), lipschitz.perturbed - lipschitz.x
        pair["attained"] = changes[0].abs().max() / changes[1].abs().max()
        found |= prefixed(f"{name} lipschitz", pair)
        for perturbation in (GUARANTEES.LostLinks(2), GUARANTEES.EdgeNoise(0.1)):
            found[f"{name} {perturbation}"] = GUARANTEES.empirical_topology(
                model, graph, x, perturbation, draws=4, **seeded()
            )
        equivariance = GUARANTEES.check_equivariance(model, graph, x, permutations=3, **seeded())
        found[f"{name} equivariant"] = str(equivariance.holds)
        found[f"{name} tolerance"] = equivariance.tolerance
    wrong = GUARANTEES.check_equivariance(
        lambda x, _: x * torch.arange(8).unsqueeze(-1), graph, x, generator=torch.Generator().manual_seed(108)
    )
    found |= {"wrong holds": str(wrong.holds), "wrong deviation": wrong.deviation}
    generator = torch.Generator().manual_seed(109)
    for perturbation in (GUARANTEES.LostLinks(2), GUARANTEES.EdgeNoise(0.1)):
        found[f"drawn {perturbation}"] = perturbation.draw(graph, generator).to_dense()
        found[f"attacked {perturbation}"] = perturbation.attack(graph, normal(110, graph.num_edges)).to_dense()
    return found


@case("constrained training")
def _():
    graph, found = undirected()[0].normalize("spectral"), {}
    (task,) = tasks_of(1, "mse")
    for kind in ("max-ga", "relu"):
        model = nn.GCNN([1, 3], order=1, activation=kind, out_features=1)
        model = GUARANTEES.lipschitz_constrained(set_parameters(model, 111).double(), graph, 0.5)
        found[f"{kind} before"] = model(task.inputs[:2], graph)
        found |= prefixed(kind, flat(names.fit(model, task, names.TrainingSettings(**SETTINGS), seed=1)))
        found[f"{kind} bound"] = GUARANTEES.lipschitz_bound(model, graph).value
        found[f"{kind} released"] = after(GUARANTEES.release(model))
    return found


# Agents


def deployed(model, graph):
    return names.agents.deploy(model, graph, epoch=7, secret=bytes(range(32)))


FAULTS = {
    "none": {},
    "noisy": {"loss": 0.2, "duplicate": 0.1, "corrupt": 0.05, "jitter": 0.002, "reorder": 0.1, "forge": 0.05},
    "lossy": {"loss": 0.1, "link_loss": 0.3, "crash": 0.1, "partition": 0.3, "skew": 0.01, "replay": 0.1},
}


def counted(counters):
    return {item.name: getattr(counters, item.name) for item in fields(counters)}


@case("agents", slow=True)
def _():
    made, graph = networks()
    x, found = rng(120).normal(size=(4, 8, 2)), {}
    for name in ("FIR", "GCNN max-ga", "GCNN median-ga", "GCNN kernel-ga", "GCNN prelu", "GCNN list", "GCNN max-k"):
        for kind, faults in FAULTS.items():
            nodes = deployed(made[name], graph)
            answer = names.agents.simulate_inference(nodes, x, faults=names.agents.Faults(**faults), seed=3)
            label = f"{name} {kind}"
            found[f"{label} out"] = answer.outputs
            found[f"{label} replayed"] = names.replay_inference(nodes, x, answer.outcome)
            found |= prefixed(f"{label} counter", counted(answer.outcome.counters))
            found[f"{label} crashes"] = answer.outcome.crashes
            found[f"{label} lost"] = [len(lost) for lost in answer.outcome.lost_links]
            found[f"{label} survived"] = len(answer.outcome.survived)
    return found


@case("deployments")
def _():
    made, graph = networks()
    found = {}
    for name in ("FIR", "GCNN max-ga", "GCNN learned width"):
        nodes = deployed(made[name], graph)
        found[f"{name} hears"] = " ".join(f"{node.links.node}:{node.links.hears}" for node in nodes)
        found[f"{name} rows"] = np.concatenate([[*node.row.weights, node.row.diagonal] for node in nodes])
        found[f"{name} keys"] = nodes[0].links.keys[nodes[0].links.neighbors[0]].hex()
        found[f"{name} rounds"] = nodes[0].model.rounds
        found[f"{name} parameters"] = np.concatenate(
            [value.ravel() for _, value in sorted(nodes[0].model.parameters.items())]
        )
        found |= prefixed(f"{name} cost", counted(names.agents.cost_of_inference(nodes[0].model, graph.num_edges)))
    with tempfile.TemporaryDirectory() as folder:
        folders = names.agents.split(made["GCNN max-ga"], graph, folder, transport="udp")
        found["folders"] = " ".join(path.name for path in folders)
        found["files"] = " ".join(sorted(path.name for path in folders[0].iterdir()))
    return found


@case("agents learn", slow=True)
def _():
    graph, found = undirected()[0].normalize("spectral"), {}
    signals = rng(121).normal(size=(6, 8, 1))
    for kind, objective in (("max-ga", "mse"), ("median-ga", "smooth_l1"), ("kernel-ga", "cross_entropy")):
        out = 3 if objective == "cross_entropy" else 1
        targets = rng(122).integers(0, 3, (6, 8, 1)).astype(float) if out == 3 else np.tanh(signals)
        model = set_parameters(nn.GCNN([1, 2], order=1, activation=kind, out_features=out), 123).double()
        learning = names.Learning(rate=0.05, objective=objective, batch=4, seed=2)
        faults = names.agents.Faults(loss=0.1, link_loss=0.1)
        nodes = deployed(model, graph)
        trained = names.simulate_training(nodes, signals, targets, learning, steps=3, faults=faults, seed=4)
        found[f"{kind} push-pull copies"] = trained.copies
        found[f"{kind} push-pull losses"] = trained.losses
        found[f"{kind} centrally"] = names.train_centrally(model, graph, signals, targets, learning, 3)
        found[f"{kind} trained centrally"] = after(model)
    return found


# Files


SAVED = ("FIR", "GCNN relu", "GCNN max-ga", "GCNN kernel-ga", "GCNN learned width", "GCNN list", "GraphNetwork filters")
SAVED_ALONE = ("GraphFilter", "EdgeNet")


def header_of(path):
    """The JSON object in the metadata of a model file, without versions of packages."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    metadata = header.pop("__metadata__")
    described = {key: json.loads(value) for key, value in metadata.items()}
    return json.dumps({"metadata": described, "tensors": sorted(header)}, sort_keys=True)


@case("descriptions in model files")
def _():
    """Names of kinds and keys, and hashes: whoever reads files of today must find them."""
    made, _ = networks()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for name in (*SAVED, *SAVED_ALONE):
            names.save(made[name], path)
            found[name] = header_of(path)
        for name in names.ACTIVATIONS:
            names.save(make(name, variants(name)[-1]), path)
            found[f"activation {name}"] = header_of(path)
    return found


@case("files saved before")
def _():
    """The files in this folder still load and give the same outputs."""
    _, graph = networks()
    found = {}
    for path in sorted(FILES.glob("*.safetensors")):
        model = names.load(path)
        found |= {f"{path.stem} out": model(normal(130, 8, 2), graph), f"{path.stem} config": config_of(model)}
    return found


def write_files():
    """Write the files that later versions must read; called by make.py alone."""
    made, _ = networks()
    FILES.mkdir(exist_ok=True)
    for name in (*SAVED, *SAVED_ALONE):
        names.save(made[name], FILES / f"{name.replace(' ', '-')}.safetensors")
    for name in ("max-l", "median-ga", "mixture-ga", "grelu", "digraf", "maxout"):
        names.save(make(name, variants(name)[0]), FILES / f"{name}.safetensors")


# Many processes


@case("partitions")
def _():
    made, graph = networks()
    found, x = {}, normal(131, 8, 2)
    for parts in (2, 3):
        owner = names.owners_in_blocks(graph, parts)
        found[f"{parts} owner"] = owner
        for part in names.scaleout.divide(graph, owner, parts):
            label = f"{parts} part {part.rank}"
            found |= {f"{label} {key}": getattr(part, key) for key in ("known", "owner", "send", "send_counts")}
            found |= {f"{label} {key}": getattr(part.rows, key) for key in ("rowptr", "col", "weight")}
    whole = names.scaleout.PartitionedGraph.from_graph(graph, "blocks")
    for name in ("FIR", "GCNN max-ga", "GCNN median-l"):
        found[f"{name} out"] = made[name](x[whole.nodes], whole)
        exchanges = names.scaleout.exchanges_of(made[name], 2)
        found[f"{name} exchanges"] = [[each.features, each.hops, each.closed, each.returns] for each in exchanges]
        found |= prefixed(f"{name} cost", counted(names.scaleout.step_cost(made[name], whole, 2)))
    return found


# Export


@case("ONNX", packages=("onnx", "onnxscript", "onnxruntime"), slow=True)
def _():
    import onnxruntime

    made, graph = networks()
    x, found = normal(132, 2, 8, 2), {}
    with tempfile.TemporaryDirectory() as folder:
        name, path = "GCNN shared closed", Path(folder) / "model.onnx"
        names.export_onnx(made[name], x, graph, path, edges="input")
        session, (edge_index, edge_weight) = onnxruntime.InferenceSession(path), graph.to_edge_index()
        given = {"x": x.numpy(), "edge_index": edge_index.numpy(), "edge_weight": edge_weight.numpy()}
        (found[f"{name} input"],) = session.run(["out"], given)
        found[f"{name} inputs"] = " ".join(each.name for each in session.get_inputs())
    return found


# Experiments


ROW_NUMBERS = ("value", "validation", "best_epoch", "parameters", "exchanges", "collisions", "final")
ROW_TEXTS = (
    "experiment", "protocol", "kind", "method", "hops", "features", "order", "metric", "graph", "split", "node",
)  # fmt: skip


def rows_found(rows):
    """Return the rows of an experiment, sorted, without times and versions."""
    lines = []
    for row in rows:
        text = json.dumps([row.get(key) for key in (*ROW_TEXTS, "condition", "realization")])
        learned = [row.get("beta") or [], row.get("weights") or []]
        numbers = [np.nan if row.get(key) is None else float(row[key]) for key in ROW_NUMBERS]
        numbers += [checksum(np.array(list(leaves(each)))) for each in learned]
        lines.append((text, numbers))
    lines.sort(key=lambda line: line[0])
    return {"rows": "\n".join(text for text, _ in lines), "numbers": WholeArray([numbers for _, numbers in lines])}


class WholeArray(list):
    """Rows that are kept number by number, however many they are."""


def leaves(value):
    """All numbers in nested lists."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    elif value is not None:
        yield float(value)


def checksum(array):
    """A number that changes with every entry of an array."""
    return float(array @ rng(array.size).uniform(0.5, 1.5, array.size)) if array.size else 0.0


EXPERIMENTS = {  # methods, protocol, data sets, changes
    "source-localization": (("relu", "max-ga", "median-l", "fir"), "paper", (), {}),
    "consensus": (("relu", "max-ga", "fir"), "paper", (), {}),
    "denoising": (("relu", "max-ga", "kernel-ga"), "best", ("molene",), {}),
    "recommendation": (("relu", "median-ga"), "paper", ("ml-100k",), {}),
    "node-classification": (("relu", "max-ga"), None, ("planetoid",), {}),
    "graph-classification": (("relu", "median-ga"), None, ("tu",), {}),
    "robustness": (("relu", "max-ga"), None, ("planetoid",), {}),
}


def freeze_experiment(name, methods, protocol, data, changes):
    @case(f"experiment {name}", data=data, slow=True, same_machine=True)
    def _():
        with tempfile.TemporaryDirectory() as folder:
            return rows_found(names.run_experiment(name, folder, protocol=protocol, methods=methods, changes=changes))


for _name, _settings in EXPERIMENTS.items():
    freeze_experiment(_name, *_settings)


@case("experiment flocking", slow=True, same_machine=True)
def _():
    with tempfile.TemporaryDirectory() as folder:
        return rows_found(names.run_flight(folder, methods=("relu", "max-ga", "fir")))


# What is kept of a result


def kept(value):
    """A text, or an array of float64: small arrays as they are; shape, four entries and four checksums of others."""
    if isinstance(value, str):
        return value
    whole = isinstance(value, WholeArray)
    value = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    array = value.astype(np.float64)
    if array.size <= WHOLE or whole:
        return array
    entries, random = array.reshape(-1), rng(array.size)
    places = np.linspace(0, array.size - 1, 4).astype(int)
    known = np.nan_to_num(entries, nan=0.5, posinf=2.5, neginf=-3.5)
    weights = random.uniform(0.5, 1.5, (4, array.size)) * random.choice([-1.0, 1.0], (4, array.size))
    return np.array([*array.shape, *entries[places], *(weights @ known) / np.sqrt(array.size)])


def compute(name):
    """Return the stored part of a case."""
    torch.manual_seed(0)
    return {key: kept(value) for key, value in CASES[name]().items()}
