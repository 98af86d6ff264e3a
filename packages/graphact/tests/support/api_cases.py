"""Cases of the fuzzer for the public API: each draws a graph, a signal and a way to call, and compares with the loops
of ``support.oracle``."""

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
from support import oracle
from support.activations import PAPER
from support.by_loops import apply_by_loops
from support.drawn_graphs import draw_edges, draw_world
from support.tolerances import TOLERANCE

BATCHES = ((), (1,), (3,), (2, 2), (0,), (2, 0), (40,))
FEATURES = (1, 2, 3, 5, 17, 0)
LAYOUTS = ("contiguous", "transposed", "strided", "expanded", "offset")
OPS = ("max", "min", "median", "kernel")
MODES = ("plain", "no_grad", "inference", "gradient", "vmap", "twice")


def draw_signal(draw, world):
    """A signal in a dtype and a layout of memory, and the same numbers in float64."""
    graph, batch, width = world.graph, draw.choice("batch", BATCHES), draw.choice("features", FEATURES)
    if graph.num_nodes > 13:  # the oracle goes node by node
        batch, width = (), min(width, 2)
    width = min(width, 2) if len(batch) and batch[0] > 3 else width
    shape, rng = (*batch, graph.num_nodes, width), draw.rng("signal")
    x = rng.integers(-4, 5, shape).astype(float) if draw.flag("integers", 0.3) else rng.normal(size=shape)
    dtype = draw.choice("signal dtype", (graph.dtype, torch.bfloat16, torch.float16), (6, 1, 1))
    given, layout = torch.from_numpy(x).to(graph.device, dtype), draw.choice("layout", LAYOUTS)
    if layout == "expanded":
        given = given[..., :1].expand(shape) if width else given
    elif layout == "transposed":
        given = given.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif layout == "strided":
        given = torch.stack([given, torch.full_like(given, torch.nan)], -1).flatten(-2)[..., ::2]
    elif layout == "offset":
        given = torch.cat([given.new_full((3,), torch.nan), given.flatten()])[3:].view(shape)
    return given, given.double().cpu().numpy()


@contextlib.contextmanager
def drawn_settings(draw):
    """A backend and a number of threads."""
    names = ("auto", "reference", "triton" if torch.cuda.is_available() else "numba")
    threads = torch.get_num_threads()
    torch.set_num_threads(draw.integer("threads", 1, 2))
    try:
        with graphact.backend(draw.choice("backend", names, (3, 1, 1))):
            yield
    finally:
        torch.set_num_threads(threads)


def compare(draw, kind, actual, expected, error):
    """Count a comparison, and raise if a value is off by more than ``error``."""
    draw.count(kind)
    np.testing.assert_allclose(actual.detach().double().cpu().numpy(), expected, rtol=0, atol=error, err_msg=kind)


def check_call(draw, call, expected, x, parameters, error):
    """Call the package in one of several modes; derivatives of float64 numbers that differ are compared with steps."""
    mode = draw.choice("mode", MODES, (2, 1, 1, 4, 1, 1))
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, contextlib.nullcontext)
    with drawn_settings(draw):
        with context():
            actual = call(x, *parameters)
        assert actual.dtype == x.dtype
        compare(draw, "values", actual, expected, error)
        if mode == "twice":
            compare(draw, "repeated calls", call(x.contiguous(), *parameters), expected, error)
        if mode == "vmap" and x.dim() > 2 and x.size(0) > 0:
            compare(draw, "vmap", torch.vmap(lambda x: call(x, *parameters))(x), expected, error)
        is_smooth = "integers" in draw.chosen and not draw.chosen["integers"][1]
        if mode == "gradient" and x.dtype == torch.float64 and x.numel() and is_smooth:
            leaves = [part.detach().clone().requires_grad_() for part in (x, *parameters)]
            draw.count("gradients")
            assert torch.autograd.gradcheck(call, leaves, fast_mode=True, rtol=1e-3, atol=1e-4)


def sizes(matrix, x, hops):
    """The largest of |S|^k |x| for k = 0 .. hops, relative to which another precision may be off."""
    found, y = [], np.abs(x)
    for _ in range(hops + 1):
        found.append(y.max(initial=0.0))
        y = np.abs(matrix) @ y
    return found


def graphs(draw):
    """Graphs built in every way and changed in any order."""
    world = draw_world(draw, steps=5)
    x, exact = draw_signal(draw, world)
    largest = max(sizes(world.matrix, exact, 1))
    if x.dtype != torch.float16 or largest < 1e4:
        with drawn_settings(draw):
            shifted = functional.shift(x, world.graph)
        compare(draw, "values", shifted, world.matrix @ exact, 8 * TOLERANCE[x.dtype] * largest)


def activations(draw):
    """Graph-adaptive and localized activations as functions."""
    world = draw_world(draw)
    (graph, matrix, edges), kind = world, draw.choice("kind", ("graph_adaptive", "localized"))
    op, closed, hops = draw.choice("op", OPS), draw.flag("closed", 0.3), draw.choice("hops", (1, 2, 3))
    x, exact = draw_signal(draw, world)
    rng, per_feature = draw.rng("weights"), draw.flag("weights for each feature")
    beta, weights = np.round(rng.normal(), 1), rng.integers(-8, 9, (hops, exact.shape[-1]) if per_feature else hops) / 4
    gamma = draw.choice("gamma", (1.0, 4.0))
    largest = sizes(matrix, exact, hops if kind == "graph_adaptive" else 0)
    if max(largest) > (1e3 if x.dtype == torch.float16 else 1e6):
        return
    scale = np.abs(beta) * largest[0] + np.abs(weights).sum(0).max(initial=0.0) * max(largest)
    if op == "kernel":  # whose slope is at most e^-1/2 sqrt(4 d) / gamma
        scale *= 1 + 1.3 * len(edges) ** 0.5 / gamma
        scale += np.abs(weights).sum(0).max(initial=0.0)
    expected = oracle.activation(kind, matrix, edges, exact, beta, weights, op, gamma, closed)

    def call(x, beta, weights):
        return getattr(functional, kind)(x, graph, beta, weights, op, gamma=gamma, closed=closed)

    parameters = [torch.as_tensor(part).to(x) for part in (beta, weights)]
    check_call(draw, call, expected, x, parameters, 32 * TOLERANCE[x.dtype] * (scale + 1e-3))


def filters(draw):
    """Filters and banks of filters."""
    world = draw_world(draw)
    x, exact = draw_signal(draw, world)
    rng, order = draw.rng("taps"), draw.choice("order", (0, 1, 2, 3, 6))
    shape = () if draw.flag("one filter") else (exact.shape[-1], draw.choice("out features", (1, 2, 3, 7)))
    taps = rng.integers(-8, 9, (order + 1, *shape)) / 8
    largest = sizes(world.matrix, exact, order)
    if exact.shape[-1] == 0 or max(largest) > (1e3 if x.dtype == torch.float16 else 1e6):
        return
    bank = taps if shape else taps[:, None, None] * np.eye(exact.shape[-1])
    expected = oracle.graph_filter(world.matrix, exact, bank)
    error = (
        8 * TOLERANCE[x.dtype] * sum(np.abs(tap).sum(0).max() * size for tap, size in zip(bank, largest, strict=True))
    )

    def call(x, taps):
        return functional.graph_filter(x, world.graph, taps)

    check_call(draw, call, expected, x, [torch.from_numpy(taps).to(x)], error + 1e-12)


def trained_edges(draw):
    """Gradients that reach the weights of edges, through building, normalising and an activation."""
    source, target, weight, nodes = draw_edges(draw)
    if nodes > 13 or draw.chosen["zeros"][1]:  # a magnitude has no derivative at zero
        return
    weight = torch.from_numpy(weight + draw.rng("noise").uniform(0, 0.01, len(weight)))
    pair, norm = torch.from_numpy(np.stack([source, target])), draw.choice(
        "normalization", (None, "laplacian", "symmetric", "random_walk")
    )  # fmt: skip
    op, closed = draw.choice("op", OPS), draw.flag("closed", 0.3)
    x = torch.from_numpy(draw.rng("signal").normal(size=(nodes, draw.choice("features", (1, 2)))))
    weights = torch.linspace(-1, 1, draw.choice("hops", (2, 1, 3)), dtype=torch.float64)

    def call(x, weight):
        graph = Graph.from_edge_index(pair, weight, nodes)
        graph = graph if norm is None else graph.normalize(norm)
        return functional.graph_adaptive(x, graph, 0.5, weights, op, gamma=1.0, closed=closed)

    draw.count("gradients of edges")
    leaves = (x.requires_grad_(), weight.requires_grad_())
    with drawn_settings(draw):
        assert torch.autograd.gradcheck(call, leaves, fast_mode=True, rtol=1e-3, atol=1e-4)


def draw_network(draw):
    """A module with its settings, and the number of its input features."""
    kind = draw.choice("module", ("GraphFilter", "FIR", "activation", "GCNN"), (1, 1, 2, 4))
    wide = draw.choice("widths", ([1, 2], [2, 3], [3, 1, 4], [5, 2, 2, 3], [1, 1]))
    options = {
        "hops": draw.integer("hops", 1, 3),
        "closed": draw.flag("closed", 0.3),
        "gamma": draw.choice("gamma", (1.0, 0.5, 3.0)),
        "learn_gamma": draw.flag("learn gamma"),
        "start": draw.choice("start", ("uniform", "small", "zero")),
        "normalize": draw.choice("normalize", (None, "symmetric", "random_walk", "laplacian", "gcn")),
    }
    torch.manual_seed(draw.seed)
    order = [draw.integer(f"order {i}", 0, 3) for i in range(len(wide) - 1)]
    names = [draw.choice(f"activation {i}", (*PAPER, *POINTWISE)) for i in range(len(order))]
    common = {"bias": draw.flag("bias"), "normalize": options["normalize"]}
    readout = {"out_features": draw.choice("readout", (None, 1, 3)), "readout_bias": draw.flag("readout bias")}
    if kind == "GraphFilter":
        return nn.GraphFilter(wide[0], wide[1], order=order[0], **common), wide[0]
    if kind == "activation":
        features = wide[0] if draw.flag("per feature") else None
        return nn.make_activation(names[0], features=features, **options), wide[0]
    if kind == "FIR":
        return nn.FIR(wide, order=order, **common, **readout), wide[0]
    per_feature = draw.flag("per feature")
    options |= readout | common
    return nn.GCNN(wide, order=order, activation=names, per_feature=per_feature, **options), wide[0]


def networks(draw):
    """Modules: called with graphs, edge lists, sparse tensors; trained, copied, saved, changed between calls."""
    module, features = draw_network(draw)
    source, target, weight, nodes = draw_edges(draw)
    if nodes > 13:
        return
    module, weight = module.double(), torch.from_numpy(weight)
    pair = torch.from_numpy(np.stack([source, target]))
    form = draw.choice("graph given as", ("graph", "edge_index", "int32", "sparse", "no weights"))
    pair = pair.int() if form == "int32" else pair
    actions = ("call", "train", "copy", "pickle", "save", "eval", "flip edges", "scale weights", "fill weights",
               "state", "reset", "data")  # fmt: skip
    for turn in range(draw.integer("turns", 1, 4)):
        module = act(draw, draw.choice(f"action {turn}", actions), module, pair, weight, turn)
        check_network(draw, module, features, pair, weight, nodes, form, turn)


def act(draw, action, module, pair, weight, turn):
    """Change the module, or its edges in place."""
    rng = draw.rng(f"{action} {turn}")
    if action == "copy":
        return copy.deepcopy(module)
    if action == "pickle":
        return pickle.loads(pickle.dumps(module))
    if action == "save":
        with tempfile.TemporaryDirectory() as folder:
            graphact.save(module, Path(folder) / "model.safetensors")
            again = graphact.load(Path(folder) / "model.safetensors")
        torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
        assert again.config() == module.config()
        draw.count("model files")
        return again
    if action == "state":
        module.load_state_dict(copy.deepcopy(module.state_dict()))
    elif action == "reset":
        module.reset_parameters()
    elif action == "eval":
        module.train(not module.training)
    elif action == "flip edges":
        pair.copy_(pair.flip(0))
    elif action == "scale weights":
        weight.mul_(-0.5)
    elif action == "fill weights":
        weight.copy_(torch.from_numpy(rng.normal(size=weight.shape)))
    elif action == "train" and list(module.parameters()):
        optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
        for parameter in module.parameters():
            parameter.grad = torch.from_numpy(rng.normal(size=parameter.shape))
        optimizer.step()
        optimizer.zero_grad()
    elif action == "data":
        for parameter in module.parameters():
            parameter.data = parameter.data.clone() * 0.5
    return module


def check_network(draw, module, features, pair, weight, nodes, form, turn):
    """One call of a module: its value by loops, and the gradients that it has on a graph built for this call."""
    given = torch.ones_like(weight) if form == "no weights" else weight
    matrix, edges = np.zeros((nodes, nodes)), np.zeros((nodes, nodes), bool)
    np.add.at(matrix, (pair[1].numpy(), pair[0].numpy()), given.numpy())
    edges[pair[1].numpy(), pair[0].numpy()] = True
    normalize = module.normalize if form in ("edge_index", "int32", "no weights") else None
    matrix = matrix if normalize is None else oracle.normalized(matrix, normalize)
    if matrix is None:
        return
    graph = Graph.from_edge_index(pair, given, nodes)
    arguments = {
        "graph": lambda: (graph,),
        "sparse": lambda: (torch.sparse_coo_tensor(pair.long().flip(0), given, (nodes, nodes)),),
        "no weights": lambda: (pair,),
    }.get(form, lambda: (pair, given))()
    exact = draw.rng(f"signal {turn}").normal(
        size=(*draw.choice(f"batch {turn}", ((), (3,), (2, 2), (0,))), nodes, features)
    )
    expected = apply_by_loops(module, exact, matrix, edges)
    x, mode = torch.from_numpy(exact), draw.choice(f"mode {turn}", ("gradient", "no_grad", "inference", "plain"))
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, contextlib.nullcontext)
    with drawn_settings(draw):
        with context():
            actual = module(x, *arguments)
        compare(draw, "networks", actual, expected, 1e-9 * max(1.0, np.abs(expected).max(initial=0.0)))
        if mode == "gradient":
            graph = graph if normalize is None else graph.normalize(normalize)
            leaves = [x.requires_grad_(), *module.parameters()]
            found, wanted = (
                torch.autograd.grad(module(x, *way).sum(), leaves, allow_unused=True, materialize_grads=True)
                for way in (arguments, (graph,))
            )
            draw.count("gradients of networks")
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


SCENARIOS = {
    "graphs": graphs,
    "activations": activations,
    "filters": filters,
    "networks": networks,
    "trained edges": trained_edges,
}
SHARES = {"graphs": 4, "activations": 8, "filters": 3, "networks": 6, "trained edges": 3}
