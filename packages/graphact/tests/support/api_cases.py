"""Cases of the fuzzer for the public API: each draws a graph, a signal and a way to call, and compares with
the dense operators of ``support.dense``, values and derivatives."""

import contextlib
import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch

import graphact
from graphact import Graph, functional, nn
from graphact.registry import POINTWISE
from support.activations import PAPER
from support.dense import Operator
from support.drawn_graphs import device_of, draw_edges, draw_graph, draw_world, has_cancelling_row, normalized

BATCHES = ((), (1,), (3,), (2, 2), (0,), (2, 0), (40,))
FEATURES = (1, 2, 3, 5, 17, 64, 0)
LAYOUTS = ("contiguous", "transposed", "strided", "expanded", "same feature", "offset")
OPS = ("max", "min", "median", "kernel")
HALVES = (torch.bfloat16, torch.float16)


def draw_values(draw, name, shape, exact):
    """Numbers in float64: small integers where sums must be exact, and sometimes elsewhere."""
    rng = draw.rng(f"{name} values")
    if exact or draw.flag(f"{name} integers", 0.2):
        return torch.from_numpy(rng.integers(-4, 5, size=shape).astype(np.float64))
    return torch.from_numpy(rng.normal(size=shape))


def draw_signal(draw, graph, operator, halves=True, batches=BATCHES, features=FEATURES):
    """A signal for the package, in a dtype and a layout of memory, and the same numbers in float64."""
    batch = draw.choice("batch", batches)
    width = draw.choice("features", features)
    if operator.num_nodes > 60:  # the oracle goes node by node
        batch, width = batch if batch in ((), (3,)) else (), min(width, 5)
    x = draw_values(draw, "signal", (*batch, operator.num_nodes, width), operator.exact)
    layout = draw.choice("layout", LAYOUTS)
    if layout == "expanded" and batch and batch[0] > 0:
        x = x[:1].expand(x.shape)
    elif layout == "same feature" and width > 0:
        x = x[..., :1].expand(x.shape)
    dtype = draw.choice(
        "signal dtype", (graph.dtype, *HALVES) if halves else (graph.dtype,), (6, 1, 1)[: 1 + 2 * halves]
    )
    given = x.to(dtype)
    if layout in ("expanded", "same feature") and given.numel():
        given = (
            given[:1].clone().expand(x.shape)
            if layout == "expanded" and batch
            else given[..., :1].clone().expand(x.shape)
        )
        if layout == "expanded" and not batch:
            given = x.to(dtype)
    elif layout == "transposed":
        given = given.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif layout == "strided":
        wide = torch.full((*x.shape[:-1], 2 * width), torch.nan, dtype=dtype)
        wide[..., ::2] = given
        given = wide[..., ::2]
    elif layout == "offset":
        longer = torch.full((given.numel() + 3,), torch.nan, dtype=dtype)
        longer[3:] = given.flatten()
        given = longer[3:].view(x.shape)
    given = given.to(graph.device)
    assert given.shape == x.shape
    return given, given.detach().double().cpu()


@contextlib.contextmanager
def drawn_settings(draw, graph):
    """A backend and a number of threads."""
    names = ("auto", "reference", "numba" if graph.device.type == "cpu" else "triton")
    threads = torch.get_num_threads()
    torch.set_num_threads(draw.integer("threads", 1, 2))
    try:
        with graphact.backend(draw.choice("backend", names, (3, 1, 1))):
            yield
    finally:
        torch.set_num_threads(threads)


def compare(draw, kind, actual, expected, error):
    """Count a comparison, and raise if it fails; ``error`` is a number or a tensor."""
    draw.count(kind)
    actual, expected = actual.detach().double().cpu(), expected.detach()
    assert actual.shape == expected.shape, f"{kind}: shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    off = torch.where(same, torch.zeros_like(actual), (actual - expected).abs())
    bad = ~(off <= error)
    if bad.any():
        worst = off.nan_to_num(nan=torch.inf).flatten().argmax()
        place = tuple(int(i) for i in np.unravel_index(int(worst), off.shape))
        raise AssertionError(
            f"{kind}: {int(bad.sum())} of {bad.numel()} values differ, at {place} {actual[place].item()!r} instead of "
            f"{expected[place].item()!r}"
        )


def error_of_gradients(expected):
    return 1e-7 * (float(expected.abs().max()) if expected.numel() else 0.0) + 1e-10


def check_call(draw, call, ideal, inputs, error, operator, single_error=0.0):
    """Call the package and the oracle on the same inputs; compare values and, in float64, derivatives.

    Args:
        call: a function of tensors of the package.
        ideal: the same function of float64 tensors.
        inputs: by name, the tensor for the package and the one for the oracle.
        error: of values; a function of the oracle's inputs.
        single_error: of gradients by the first input in float32, beyond that of exact numbers.
    """
    given = {name: value.detach() for name, (value, _) in inputs.items()}
    exact = {name: value.detach().clone().requires_grad_() for name, (_, value) in inputs.items()}
    expected = ideal(**exact)
    allowed = error(**exact)
    mode = draw.choice("mode", ("plain", "no_grad", "inference", "gradient", "second", "jvp", "vmap", "twice"))
    precise = all(value.dtype == torch.float64 for value in given.values()) or (
        operator.exact and all(value.dtype == torch.float32 for value in given.values())
    )
    size = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, contextlib.nullcontext)
    with size():
        actual = call(**given)
    first = next(iter(given))
    assert actual.dtype == given[first].dtype
    allowed = allowed + torch.finfo(actual.dtype).smallest_normal * torch.finfo(actual.dtype).eps  # or it is 0
    compare(draw, "values", actual, expected, allowed)
    if mode == "twice":
        again = call(**{name: value.contiguous() for name, value in given.items()})
        compare(draw, "repeated calls", again, expected, allowed)
    if mode == "vmap" and given[first].dim() > 2 and given[first].size(0) > 0:
        rest = {name: value for name, value in given.items() if name != first}
        mapped = torch.vmap(lambda value: call(**{first: value}, **rest))(given[first])
        compare(draw, "vmap", mapped, expected, allowed)
    if mode not in ("gradient", "second", "jvp") or not precise or operator.unclear:
        return
    single = given[first].dtype == torch.float32
    loosely = 3e3 if single else 1.0
    leaves = {name: value.clone(memory_format=torch.preserve_format).requires_grad_() for name, value in given.items()}
    out = call(**leaves)
    direction = draw_values(draw, "direction", tuple(out.shape), True)
    wanted = torch.autograd.grad(expected, list(exact.values()), direction, create_graph=True, allow_unused=True)
    found = torch.autograd.grad(
        out, list(leaves.values()), direction.to(out), create_graph=mode == "second", allow_unused=True
    )
    # terms of a normalisation that cancel grow with one over the weights
    least = min([1.0, *exact.get("weight", torch.ones(1)).detach().abs().flatten().tolist()]) or 1.0
    for name, one, other, leaf in zip(leaves, found, wanted, exact.values(), strict=True):
        one = torch.zeros(leaf.shape) if one is None else one
        other = torch.zeros_like(leaf) if other is None else other
        allowed = loosely * error_of_gradients(other) + 1e-14 / least
        allowed += single_error if single and name == first else 0.0
        compare(draw, f"gradients of {name}", one, other, allowed)
    if mode == "jvp" and not single:
        tangent = draw_values(draw, "tangent", tuple(given[first].shape), True).to(given[first])
        rest = {name: value for name, value in given.items() if name != first}
        _, moved = torch.func.jvp(lambda value: call(**{first: value}, **rest), (leaves[first].detach(),), (tangent,))
        left = (moved.double().cpu() * direction).sum()
        right = (wanted[0].detach() * tangent.double().cpu()).sum() if wanted[0] is not None else torch.tensor(0.0)
        scale = float((moved.abs().cpu() * direction.abs()).sum()) + 1.0
        compare(draw, "jvp", left, right.double(), 1e-8 * scale)
    if mode == "second" and not single and all(value is not None for value in wanted):
        scale = 0.0
        sums = []
        for grads in (found, wanted):
            total = 0.0
            for name, grad in zip(leaves, grads, strict=True):
                other = draw_values(draw, f"second {name}", tuple(grad.shape), True).to(grad)
                total = total + (grad * other).sum()
            sums.append(total)
        if not sums[1].requires_grad:
            return
        further = torch.autograd.grad(sums[1], list(exact.values()), allow_unused=True)
        seconds = [None] * len(leaves)
        if sums[0].requires_grad:
            seconds = torch.autograd.grad(sums[0], list(leaves.values()), allow_unused=True)
        scale = max([float(value.abs().max()) for value in further if value is not None and value.numel()] or [0.0])
        scale += 1e-6 / least**2
        for name, one, other, leaf in zip(leaves, seconds, further, exact.values(), strict=True):
            one = torch.zeros(leaf.shape) if one is None else one
            other = torch.zeros_like(leaf) if other is None else other
            compare(draw, f"second derivatives by {name}", one, other, 1e-7 * scale + 1e-9)


# the kinds of cases


def graphs(draw):
    """Graphs built in every way and changed in any order."""
    graph, operator = draw_world(draw, steps=5)
    with drawn_settings(draw, graph):
        x, exact = draw_signal(draw, graph, operator, halves=False)
        error = operator.roundoff(torch.finfo(x.dtype).eps, 1) * operator.sizes(exact, 1)[1]
        compare(draw, "values", functional.shift(x, graph), operator.shift(exact), error + 1e-30)


def overflows(operator, x, exact, shifts):
    """Return whether float16 cannot hold the intermediate numbers."""
    largest = max(operator.sizes(exact, shifts)) * 8 * max(1, x.size(-1))
    return x.dtype == torch.float16 and largest > torch.finfo(x.dtype).max


def activations(draw):
    """Graph-adaptive and localized activations as functions."""
    graph, operator = draw_world(draw)
    kind = draw.choice("kind", ("graph_adaptive", "localized"))
    op, closed = draw.choice("op", OPS), draw.flag("closed", 0.3)
    hops = draw.choice("hops", (1, 2, 3, 9), (4, 3, 2, 0.3))
    if operator.num_nodes > 60:
        hops = min(hops, 2)
    x, exact = draw_signal(draw, graph, operator)
    if overflows(operator, x, exact, hops):
        return
    shape = (hops,) if draw.flag("shared weights") else (hops, x.size(-1))
    inputs = {"x": (x, exact)}
    for name, of in (("beta", ()), ("weights", shape)):
        value = draw_values(draw, name, of, True) / 4
        inputs[name] = (value.to(x), value)
    gamma = draw.choice("gamma", (1.0, 0.1, 4.0))
    if op == "kernel" and draw.flag("trained gamma"):
        inputs["gamma"] = (torch.tensor(gamma).to(x), torch.tensor(gamma).to(x).double().cpu())
    function = getattr(functional, kind)

    def call(x, beta, weights, gamma=gamma):
        return function(x, graph, beta, weights, op, gamma=gamma, closed=closed)

    def ideal(x, beta, weights, gamma=gamma):
        return operator.activation(kind, x, beta, weights, op, gamma, closed)

    def error(x, beta, weights, gamma=gamma):
        return operator.activation_error(
            kind, x, beta, weights, op, gamma, closed, torch.finfo(inputs["x"][0].dtype).eps
        )

    if x.dtype == torch.float32 and not operator.is_exact_in_single(exact, hops if kind == "graph_adaptive" else 0):
        operator.unclear = True
    single_error = 0.0  # numbers are exact, and exponentials of them are not
    if op == "kernel":
        eps, shifts = torch.finfo(torch.float32).eps, kind == "graph_adaptive"
        single_error = operator.kernel_gradient_error(inputs["weights"][1], gamma, closed, eps, shifts)
    with drawn_settings(draw, graph):
        check_call(draw, call, ideal, inputs, error, operator, single_error)


def trained_edges(draw):
    """Gradients that reach the weights of edges, through building, normalising and permuting."""
    source, target, weight, nodes, exact = draw_edges(draw)
    device = device_of(draw)
    if nodes > 60 or exact is None:
        return
    weight = torch.from_numpy(weight)
    pair = torch.from_numpy(np.stack([source, target])).to(device)
    norm = draw.choice("normalization", (None, "laplacian", "symmetric", "random_walk"))
    edges = np.zeros((nodes, nodes), bool)
    edges[target, source] = True
    op, closed = draw.choice("op", OPS), draw.flag("closed", 0.3)
    hops, kind = draw.integer("hops", 1, 3), draw.choice("kind", ("graph_adaptive", "filter"))
    x = draw_values(draw, "signal", (*draw.choice("batch", ((), (3,))), nodes, draw.choice("features", (1, 2))), False)
    beta, weights = torch.tensor(0.5).double(), torch.linspace(-1, 1, hops).double()
    taps = torch.linspace(-1, 1, hops + 1).double()
    operator = Operator(torch.zeros(nodes, nodes).double(), edges, False)

    def call(x, weight):
        graph = Graph.from_edge_index(pair, weight, nodes)
        graph = graph if norm is None else graph.normalize(norm)
        if kind == "filter":
            return functional.graph_filter(x, graph, taps.to(x))
        return functional.graph_adaptive(x, graph, beta.to(x), weights.to(x), op, gamma=1.0, closed=closed)

    def ideal(x, weight):
        matrix = torch.zeros(nodes, nodes).double()
        matrix = matrix.index_put((pair[1].cpu(), pair[0].cpu()), weight, accumulate=True)
        if norm is not None and (matrix.abs().sum(0) == 0).any() | (matrix.abs().sum(1) == 0).any():
            operator.unclear = True  # where a sum of magnitudes is zero, it has no derivative
        if norm is not None and bool(((matrix == 0) & torch.from_numpy(edges)).any()):
            operator.unclear = True  # nor has a magnitude at zero
        operator.matrix = matrix if norm is None else normalized(matrix, norm)
        if kind == "filter":
            return operator.filter(x, taps)
        return operator.activation("graph_adaptive", x, beta, weights, op, 1.0, closed)

    def error(x, weight):
        scale = sum(operator.sizes(x, hops)) + 1
        return 1e-11 * scale

    inputs = {"x": (x.to(device), x), "weight": (weight.to(device), weight)}
    with drawn_settings(draw, Graph.from_edge_index(pair, weight.to(device), nodes)):
        check_call(draw, call, ideal, inputs, error, operator)


def mean_of(neighbors):
    return neighbors.mean(-2)


def furthest_of(own, neighbors):
    return (own - neighbors).abs().amax(-2)


def neighborhoods(draw):
    """Functions of one neighbourhood, built in and of one's own; numbers that are not finite."""
    graph, operator = draw_world(draw)
    op, closed = draw.choice("op", (*OPS, "mean", "furthest")), draw.flag("closed", 0.3)
    x, exact = draw_signal(draw, graph, operator)
    if op in OPS[:3] and draw.flag("special", 0.4) and x.numel():
        numbers = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
        share = draw.choice("share of special numbers", (0.1, 0.5, 1.0))
        rng = draw.rng("special numbers")
        drawn = torch.from_numpy(np.where(rng.random(x.shape) < share, rng.choice(numbers, x.shape), exact.numpy()))
        x, exact = drawn.to(x), drawn.to(x.dtype).double()
        operator.unclear = True
    eps = torch.finfo(x.dtype).eps
    pattern = operator.pattern(1, closed)
    calls = {
        "max": functional.neighborhood_max,
        "min": functional.neighborhood_min,
        "median": functional.neighborhood_median,
        "kernel": lambda x, graph, closed: functional.neighborhood_kernel(x, graph, 1.0, closed=closed),
        "mean": lambda x, graph, closed: functional.neighborhood_apply(x, graph, mean_of, closed=closed),
        "furthest": lambda x, graph, closed: functional.neighborhood_apply(x, graph, furthest_of, closed=closed),
    }

    def ideal(x):
        if op == "mean":
            sums = torch.from_numpy(pattern).double()
            return sums / sums.sum(1, keepdim=True).clamp(min=1) @ x
        if op == "furthest":
            operator.unclear = True  # |.| at 0
            gaps = (x.unsqueeze(-2) - x.unsqueeze(-3)).abs()
            return torch.where(torch.from_numpy(pattern)[:, :, None], gaps, torch.zeros_like(gaps)).amax(-2)
        return operator.hop(x, pattern, op, 1.0)

    def error(x):
        if op in OPS[:3]:
            return 0.0
        if op == "kernel":
            zero, one = torch.zeros(()).double(), torch.ones(1).double()
            return operator.activation_error("localized", x, zero, one, op, 1.0, closed, eps)
        return operator.roundoff(eps, 2) * operator.sizes(x, 0)[0]

    if op == "furthest" and (operator.num_nodes > 60 or x.numel() > 2000):
        return
    with drawn_settings(draw, graph):
        check_call(draw, lambda x: calls[op](x, graph, closed=closed), ideal, {"x": (x, exact)}, error, operator)


def filters(draw):
    """Filters and banks of filters."""
    graph, operator = draw_world(draw)
    x, exact = draw_signal(draw, graph, operator, features=FEATURES[:-2])
    order = draw.choice("order", (0, 1, 2, 3, 6))
    out = draw.choice("out features", (1, 2, 3, 7))
    if overflows(operator, x, exact, order):
        return
    shape = (order + 1,) if draw.flag("one filter") else (order + 1, x.size(-1), out)
    taps = draw_values(draw, "taps", shape, True) / 4
    inputs = {"x": (x, exact), "taps": (taps.to(x), taps)}
    eps = torch.finfo(x.dtype).eps

    def error(x, taps):
        sizes = operator.sizes(x, order)
        return (
            8
            * sum(
                float(tap.abs().sum()) * operator.roundoff(eps, order) * size
                for tap, size in zip(taps, sizes, strict=True)
            )
            + 1e-30
        )

    with drawn_settings(draw, graph):
        check_call(
            draw, lambda x, taps: functional.graph_filter(x, graph, taps), operator.filter, inputs, error, operator
        )


def draw_network(draw):
    """A module with its settings."""
    kind = draw.choice("module", ("GraphFilter", "FIR", "activation", "GCNN"), (1, 1, 2, 4))
    wide = draw.choice("widths", ([1, 2], [2, 3], [3, 1, 4], [5, 2, 2, 3], [1, 1]))
    bias = draw.flag("bias")
    options = {
        "hops": draw.integer("hops", 1, 3),
        "closed": draw.flag("closed", 0.3),
        "gamma": draw.choice("gamma", (1.0, 0.1, 3.0)),
        "learn_gamma": draw.flag("learn gamma"),
    }
    name = draw.choice("activation", (*PAPER, *POINTWISE))
    torch.manual_seed(draw.seed)
    norm = draw.choice("normalize", (None, "symmetric", "random_walk", "laplacian", "gcn"))
    options["start"] = draw.choice("start", ("uniform", "small", "zero"))
    if kind == "GraphFilter":
        order = draw.integer("order", 0, 3)
        return nn.GraphFilter(wide[0], wide[1], order=order, bias=bias, normalize=norm), wide[0]
    if kind == "activation":
        features = wide[0] if draw.flag("per feature") else None
        return nn.make_activation(name, features=features, normalize=norm, **options), wide[0]
    options["normalize"] = norm
    readout = {"out_features": draw.choice("readout", (None, 1, 3)), "readout_bias": draw.flag("readout bias")}
    order = [draw.integer(f"order {i}", 0, 3) for i in range(len(wide) - 1)]
    if kind == "FIR":
        return nn.FIR(wide, order=order, bias=bias, normalize=norm, **readout), wide[0]
    several = draw.flag("an activation for each layer", 0.3)
    activation = [draw.choice(f"activation {i}", (*PAPER, *POINTWISE)) for i in range(len(order))] if several else name
    return nn.GCNN(
        wide, order=order, activation=activation, bias=bias, per_feature=draw.flag("per feature"), **options, **readout
    ), wide[0]


def apply_ideally(module, values, x, operator, prefix=""):
    """Return what a module computes, from the values of its parameters in float64."""
    if isinstance(module, (nn.GCNN, nn.FIR)):
        for number in range(len(module.filters)):
            x = apply_ideally(module.filters[number], values, x, operator, f"filters.{number}.")
            if isinstance(module, nn.GCNN):
                x = apply_ideally(module.activations[number], values, x, operator, f"activations.{number}.")
        if "readout.weight" in values:
            x = x @ values["readout.weight"].T + values.get("readout.bias", 0.0)
        return x
    if isinstance(module, nn.GraphFilter):
        return operator.filter(x, values[f"{prefix}taps"]) + values.get(f"{prefix}bias", 0.0)
    if isinstance(module, nn.ReLU):
        return operator.relu(x)
    name = next((name for name, kind in POINTWISE.items() if type(module).__name__ == kind), None)
    if name is not None:
        return operator.pointwise(name, x, *(values[f"{prefix}{array}"] for array, _ in module.named_parameters()))
    op = {"Max": "max", "Median": "median", "Kernel": "kernel"}
    op = next(op[end] for end in op if type(module).__name__.endswith(end))
    kind = "localized" if type(module).__name__.startswith("Localized") else "graph_adaptive"
    gamma = values[f"{prefix}log_gamma"].exp() if f"{prefix}log_gamma" in values else getattr(module, "gamma", 1.0)
    return operator.activation(kind, x, values[f"{prefix}beta"], values[f"{prefix}weights"], op, gamma, module.closed)


def networks(draw):
    """Modules: called with graphs, edge lists, sparse tensors; trained, copied, saved, changed between calls."""
    module, features = draw_network(draw)
    source, target, weight, nodes, _ = draw_edges(draw)
    device = device_of(draw)
    if nodes > 300:
        return
    dtype = draw.choice("module dtype", (torch.float64, torch.float32))
    module = module.to(device, dtype)
    pair = torch.from_numpy(np.stack([source, target])).to(device)
    weight = torch.from_numpy(weight).to(device, dtype)
    form = draw.choice("graph given as", ("graph", "edge_index", "int32", "sparse", "no weights"))
    pair = pair.int() if form == "int32" else pair
    for turn in range(draw.integer("turns", 1, 4)):
        action = draw.choice(
            f"action {turn}",
            ("call", "train", "copy", "pickle", "save", "eval", "flip edges", "scale weights", "fill weights", "state",
             "reset", "data"),
        )  # fmt: skip
        module = act(draw, action, module, pair, weight, nodes, turn)
        check_network(draw, module, features, pair, weight, nodes, form, turn)


def act(draw, action, module, pair, weight, nodes, turn):
    """Change the module, or its edges in place."""
    rng = draw.rng(f"{action} {turn}")
    if action == "copy":
        return copy.deepcopy(module)
    if action == "pickle":
        return pickle.loads(pickle.dumps(module))
    if action == "save":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            graphact.save(module, path)
            device = next((p.device for p in module.parameters()), torch.device("cpu"))
            again = graphact.load(path, device)
        for (name, one), (other_name, other) in zip(
            module.state_dict().items(), again.state_dict().items(), strict=True
        ):
            assert name == other_name
            assert torch.equal(one, other)
        assert again.config() == module.config()
        draw.count("model files")
        return again
    if action == "state":
        module.load_state_dict(copy.deepcopy(module.state_dict()))
    if action == "reset":
        module.reset_parameters()
    if action == "eval":
        module.train(not module.training)
    if action == "flip edges":
        pair.copy_(pair.flip(0))
    if action == "scale weights":
        weight.mul_(-0.5)
    if action == "fill weights":
        weight.copy_(torch.from_numpy(rng.normal(size=weight.shape)))
    if action == "train":
        optimizer = torch.optim.Adam(module.parameters(), lr=0.05) if list(module.parameters()) else None
        if optimizer:
            for parameter in module.parameters():
                parameter.grad = torch.from_numpy(rng.normal(size=parameter.shape)).to(parameter)
            optimizer.step()
            optimizer.zero_grad()
    if action == "data":
        for parameter in module.parameters():
            parameter.data = parameter.data.clone() * 0.5
    return module


def check_network(draw, module, features, pair, weight, nodes, form, turn):
    """One call of a module, and its gradients."""
    given = torch.ones_like(weight) if form == "no weights" else weight
    matrix = torch.zeros(nodes, nodes).double()
    index = (pair[1].long().cpu(), pair[0].long().cpu())
    matrix = matrix.index_put(index, given.double().cpu(), accumulate=True)
    edges = np.zeros((nodes, nodes), bool)
    edges[index] = True
    if form in ("edge_index", "int32", "no weights") and module.normalize is not None:
        if module.normalize == "gcn" and has_cancelling_row(matrix):
            return
        matrix = normalized(matrix, module.normalize)
    operator = Operator(matrix, edges, False)
    batch = draw.choice(f"batch {turn}", ((), (3,), (2, 2), (0,)))
    exact = draw_values(draw, f"signal {turn}", (*batch, nodes, features), False).to(weight.dtype).double()
    x = exact.to(weight)
    if draw.flag(f"transposed {turn}", 0.3):
        x = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    arguments = {
        "graph": lambda: (Graph.from_edge_index(pair, given, nodes),),
        "edge_index": lambda: (pair, given),
        "int32": lambda: (pair, given),
        "no weights": lambda: (pair,),
        "sparse": lambda: (torch.sparse_coo_tensor(pair.long().flip(0), given, (nodes, nodes)),),
    }[form]()
    mode = draw.choice(f"mode {turn}", ("gradient", "no_grad", "inference", "plain"))
    values = {
        name: parameter.detach().double().cpu().clone().requires_grad_()
        for name, parameter in module.named_parameters()
    }
    exact.requires_grad_()
    expected = apply_ideally(module, values, exact, operator)
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, contextlib.nullcontext)
    x = x.detach().requires_grad_(mode == "gradient")
    with drawn_settings(draw, Graph.from_edge_index(pair, given, nodes)), context():
        actual = module(x, *arguments)
    compare(draw, "networks", actual, expected, network_error(module, values, exact, operator, weight.dtype))
    if mode != "gradient" or weight.dtype != torch.float64 or operator.unclear:
        return
    direction = draw_values(draw, f"direction {turn}", tuple(actual.shape), True)
    parameters = dict(module.named_parameters())
    wanted = torch.autograd.grad(expected, [exact, *values.values()], direction, allow_unused=True)
    found = torch.autograd.grad(actual, [x, *parameters.values()], direction.to(actual), allow_unused=True)
    scale = max([float(grad.abs().max()) for grad in wanted if grad is not None and grad.numel()] or [0.0])
    for name, one, other, like in zip(("x", *values), found, wanted, (exact, *values.values()), strict=True):
        one = torch.zeros(like.shape) if one is None else one
        other = torch.zeros_like(like) if other is None else other
        compare(draw, f"gradients of networks by {name.rpartition('.')[2]}", one, other, 1e-7 * scale + 1e-9)


def network_error(module, values, x, operator, dtype):
    """Return the error allowed to a network: rounding times the gain of each layer, in the infinity norm."""
    eps = torch.finfo(dtype).eps * (16 + operator.num_nodes**0.5)
    size, error = float(x.abs().max()) if x.numel() else 0.0, 0.0
    norm = float(operator.matrix.abs().sum(1).max()) if operator.num_nodes else 0.0
    degree = int(operator.edges.sum(1).max(initial=0))

    def through(size, error, taps, orders):
        gain = sum(float(tap) * norm**k for k, tap in zip(orders, taps, strict=True))
        return gain * size, gain * (error + eps * (len(taps) + 1) * size)

    layers = [module]
    prefixes = [""]
    if isinstance(module, (nn.GCNN, nn.FIR)):
        layers, prefixes = [], []
        for number in range(len(module.filters)):
            layers.append(module.filters[number])
            prefixes.append(f"filters.{number}.")
            if isinstance(module, nn.GCNN):
                layers.append(module.activations[number])
                prefixes.append(f"activations.{number}.")
    for layer, prefix in zip(layers, prefixes, strict=True):
        if isinstance(layer, nn.GraphFilter):
            taps = [float(tap.abs().sum(0).max()) for tap in values[f"{prefix}taps"]]
            size, error = through(size, error, taps, range(len(taps)))
            if f"{prefix}bias" in values:
                size += float(values[f"{prefix}bias"].abs().max())
        elif type(layer).__name__ in {*POINTWISE.values(), "ReLU"}:
            lines = [values[f"{prefix}{name}"].detach().abs().max() for name, _ in layer.named_parameters()]
            steepest = max([1.13, *map(float, lines[:1])])  # GELU's slope, or a trained one
            size = steepest * size + sum(map(float, lines[1:]))
            error = steepest * error + eps * size
        else:
            weights = values[f"{prefix}weights"].detach().abs().reshape(layer.hops, -1).amax(1).tolist()
            beta = abs(float(values[f"{prefix}beta"]))
            if type(layer).__name__.endswith("Kernel"):
                log = values.get(f"{prefix}log_gamma")
                gamma = float(log.exp()) if log is not None else float(layer.gamma)
                slope = 2 * degree**0.5 / gamma
                off = sum(
                    weight * min(1.0, slope * norm**k * (error + eps * (k + 1) * size) + 4 * eps)
                    for k, weight in enumerate(weights, start=1)
                )
                size, error = beta * size + sum(weights), beta * (error + eps * size) + off
            else:
                shifts = [k if type(layer).__name__.startswith("Graph") else 0 for k in range(1, layer.hops + 1)]
                size, error = through(size, error, [beta, *weights], [0, *shifts])
    if "readout.weight" in values:
        gain = float(values["readout.weight"].abs().sum(1).max())
        size, error = gain * size, gain * (error + eps * size)
        size += float(values["readout.bias"].abs().max()) if "readout.bias" in values else 0.0
    return 4 * (error + eps * size) + 1e-30


def refusals(draw):
    """Arguments that are wrong are refused with a TypeError or ValueError of one line, and nothing is broken by it."""
    graph, operator = draw_graph(draw, device=device_of(draw))
    nodes, dtype = graph.num_nodes, graph.dtype
    x = draw_values(draw, "signal", (2, nodes, 3), True).to(graph.weight)
    pair, weight = graph.to_edge_index()
    wrong_dtype = torch.float32 if dtype == torch.float64 else torch.float64
    wrong = {
        "fewer nodes": lambda: functional.shift(x[:, 1:], graph),
        "more nodes": lambda: functional.neighborhood_max(torch.cat([x, x[:, :1]], 1), graph),
        "one dimension": lambda: functional.shift(x[0, :, 0], graph),
        "integers": lambda: functional.neighborhood_median(x.long(), graph),
        "complex": lambda: functional.shift(x.to(torch.complex64), graph),
        "boolean": lambda: functional.shift(x > 0, graph),
        "other dtype": lambda: functional.shift(x.to(wrong_dtype), graph),
        "array": lambda: functional.shift(x.cpu().numpy(), graph),
        "no graph": lambda: functional.shift(x, None),
        "unknown op": lambda: functional.graph_adaptive(x, graph, 1.0, x.new_ones(1), "mode"),
        "no weights": lambda: functional.localized(x, graph, 1.0, x.new_ones(0)),
        "weights of other width": lambda: functional.localized(x, graph, 1.0, x.new_ones(1, 4)),
        "beta of two": lambda: functional.graph_adaptive(x, graph, x.new_ones(2), x.new_ones(1)),
        "beta of text": lambda: functional.graph_adaptive(x, graph, "1", x.new_ones(1)),
        "gamma of zero": lambda: functional.neighborhood_kernel(x, graph, 0.0),
        "gamma that is NaN": lambda: functional.neighborhood_kernel(x, graph, float("nan")),
        "taps": lambda: functional.graph_filter(x, graph, x.new_ones(2, 4, 3)),
        "no taps": lambda: functional.graph_filter(x, graph, x.new_ones(0)),
        "edge_index of floats": lambda: Graph.from_edge_index(torch.full((2, 1), 0.5), None, nodes),
        "three rows": lambda: Graph.from_edge_index(torch.cat([pair, pair[:1]]), weight, nodes),
        "too large an index": lambda: Graph.from_edge_index(pair.new_full((2, 1), nodes), None, nodes),
        "negative index": lambda: Graph.from_edge_index(pair.new_full((2, 1), -1), None, nodes),
        "weights too few": lambda: Graph.from_edge_index(pair, weight.new_ones(len(weight) + 1), nodes),
        "NaN weight": lambda: Graph.from_edge_index(pair.new_zeros(2, 1), weight.new_full((1,), torch.nan), nodes),
        "infinite weight": lambda: Graph.from_edge_index(pair.new_zeros(2, 1), weight.new_full((1,), torch.inf), nodes),
        "complex weight": lambda: Graph.from_edge_index(pair, weight.to(torch.complex128), nodes),
        "no nodes": lambda: Graph.from_edge_index(pair[:, :0], num_nodes=0),
        "nodes of text": lambda: Graph.from_edge_index(pair, weight, "3"),
        "not square": lambda: Graph.from_dense(torch.ones(nodes, nodes + 1)),
        "empty matrix": lambda: Graph.from_dense(torch.ones(0, 0)),
        "NaN in a matrix": lambda: Graph.from_dense(torch.full((nodes, nodes), torch.nan)),
        "union of nothing": lambda: Graph.union([]),
        "union of dtypes": lambda: Graph.union([graph, graph.to(dtype=wrong_dtype)]),
        "perm twice": lambda: graph.permute(torch.zeros(nodes + 1, dtype=torch.long)),
        "probability": lambda: graph.drop_edges(1.5),
        "unknown normalization": lambda: graph.normalize("rows"),
        "weights beside a graph": lambda: nn.GraphAdaptiveMax()(x, graph, weight),
        "hops of zero": lambda: nn.GraphAdaptiveMax(hops=0),
        "features of another width": lambda: nn.LocalizedMedian(features=5).to(x)(x, graph),
        "one width": lambda: nn.GCNN([3]),
        "order of text": lambda: nn.GCNN([3, 2], order="two"),
        "dtype of integers": lambda: graph.to(dtype=torch.int64),
    }  # fmt: skip
    name = draw.choice("wrong", tuple(wrong))
    try:
        wrong[name]()
    except (TypeError, ValueError) as error:
        refusal = str(error).strip()
    else:
        raise AssertionError(f"{name}: nothing was refused")
    assert len(refusal) > 10, f"{name}: {refusal!r}"
    assert "\n" not in refusal, f"{name}: more than one line: {refusal}"
    draw.count("refusals")
    expected = operator.shift(x.double().cpu())
    error = operator.roundoff(torch.finfo(dtype).eps, 1) * operator.sizes(x.double().cpu(), 1)[1]
    compare(draw, "values", functional.shift(x, graph), expected, error + 1e-30)


def threads(draw):
    """Graphs and signals so large that a pass is shared among threads; no gradient is compared there but that of x."""
    rng = draw.rng("edges")
    nodes = draw.choice("nodes", (700, 2000))
    degree = draw.choice("degree", (4, 12))
    source, target = rng.integers(nodes, size=(2, degree * nodes))
    hub = draw.choice("hub", (0, 40, 600))
    source, target = np.append(source, np.arange(hub)), np.append(target, np.zeros(hub, np.int64))
    dtype = draw.choice("dtype", (torch.float64, torch.float32))
    device = device_of(draw)
    pair = torch.from_numpy(np.stack([source, target]))
    graph = Graph.from_edge_index(pair.to(device), torch.ones(len(source), dtype=dtype, device=device), nodes)
    edges = np.zeros((nodes, nodes), bool)
    edges[target, source] = True
    operator = Operator(graph.to_dense().double().cpu(), edges, True)
    features = draw.choice("features", (130, 260))
    few = draw_values(draw, "signal", (nodes, 2), True)
    column = rng.integers(2, size=features)
    sign = torch.from_numpy(rng.choice([1.0, 2.0, 4.0], features))
    x = (few[:, column] * sign).to(device, dtype)
    op, closed = draw.choice("op", OPS[:3]), draw.flag("closed", 0.3)
    kind = draw.choice("kind", ("graph_adaptive", "localized"))
    hops = draw.integer("hops", 1, 2 if kind == "graph_adaptive" else 1)
    weights = torch.tensor([0.5, -0.25])[:hops].to(x)
    exact = few.clone().requires_grad_()
    expected = operator.activation(kind, exact, 0.5, weights.double().cpu(), op, 1.0, closed)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x.requires_grad_()
        actual = getattr(functional, kind)(x, graph, 0.5, weights, op, closed=closed)
        direction = draw_values(draw, "direction", (nodes, 2), True)
        (found,) = torch.autograd.grad(actual, x, (direction[:, column]).to(actual))
    finally:
        torch.set_num_threads(torch_threads)
    # scaling a column by a power of two scales the result, and changes neither rounding nor the gradient
    compare(draw, "values with threads", actual, (expected.detach()[:, column] * sign), 0.0)
    (wanted,) = torch.autograd.grad(expected, exact, direction)
    compare(draw, "gradients with threads", found, wanted[:, column], 1e-6 * float(wanted.abs().max()))


SCENARIOS = {
    "graphs": graphs,
    "activations": activations,
    "neighborhoods": neighborhoods,
    "filters": filters,
    "networks": networks,
    "trained edges": trained_edges,
    "refusals": refusals,
    "threads": threads,
}
SHARES = {"graphs": 4, "activations": 8, "neighborhoods": 4, "filters": 3, "networks": 6, "trained edges": 3,
          "refusals": 2, "threads": 0.1}  # fmt: skip
