"""ONNX files against torch: all activations, with the graph inside and with edges as inputs."""

import functools
import re
import subprocess
import sys

import pytest
import torch

import graphact
from graphact import Graph, nn
from graphact.onnx.edge_graph import EdgeGraph
from graphact.registry import FURTHER, POINTWISE
from graphact.spec import UnsupportedModelError
from support.activations import PAPER
from support.graphs import directed_graph
from support.places import ROOT

DOCUMENTATION = ROOT / "docs" / "conventions.md"
NAMES = [name for name in PAPER if name != "relu"]
MEANS = ("soft-maximum-ga", "trimmed-mean-ga", "weighted-mean-ga")  # of lists of neighbours
CLOSED_OR_NOT = [(name, closed) for name in NAMES for closed in (False, True)]


directed = functools.partial(directed_graph, dtype=torch.float32)


def hostile(*shape, dtype=torch.float32):
    """Signals with ties, NaN and infinities."""
    x = torch.randn(*shape, dtype=dtype).mul(2).round()
    x[0, 6, 0] = x[0, 1, 1] = torch.nan
    x[1, :, 1] = torch.nan
    x[2, 3, 0], x[2, 0, 1] = torch.inf, -torch.inf
    return x


def make(name, **options):
    torch.manual_seed(5)
    kernel = {"learn_gamma": True, "gamma": 2.0} if "kernel" in name else {}
    return nn.make_activation(name, **{"hops": 2, "features": 2, **kernel, **options})


# the steps that are exported, by torch


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_edge_by_edge_is_the_same(name, closed, loops):
    graph, x = directed(loops=loops), hostile(3, 9, 2)
    edge_index, weight = graph.to_edge_index()
    for hops in (1,) if name in ("median-l",) else (1, 2, 3):
        module = make(name, hops=hops, closed=closed)
        with torch.no_grad():
            found = module(x, EdgeGraph(edge_index, weight, 9))
            torch.testing.assert_close(found, module(x, graph), equal_nan=True)


@pytest.mark.parametrize("op", ["min", "max", "median", "kernel"])
def test_edge_by_edge_without_edges(op):
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=3)
    x = torch.randn(2, 3, 1)
    module = nn.GraphAdaptive(op, hops=2)
    with torch.no_grad():
        torch.testing.assert_close(module(x, EdgeGraph(*graph.to_edge_index(), 3)), module(x, graph))


@pytest.mark.parametrize("missing", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(missing, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=rf"export_onnx needs the packages? .*{missing}.*'graphact\[onnx\]'"):
        graphact.export_onnx(make("max-ga"), torch.randn(9, 2), directed(), tmp_path / "model.onnx")


# files


@pytest.fixture(scope="module", autouse=True)
def _one_table_of_translations():
    """Torch makes the table of all that it can translate again for each file, which takes a quarter of the time."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # onnxscript is missing, or torch keeps the table elsewhere
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib)))
        yield


class Session:
    """An exported model, called like the model."""

    def __init__(self, model, x, graph, path, **options):
        onnxruntime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
        pytest.importorskip("onnxscript")
        graphact.export_onnx(model, x, graph, path, **options)
        self.session = onnxruntime.InferenceSession(path)
        self.names = [each.name for each in self.session.get_inputs()]

    def __call__(self, x, graph):
        edge_index, edge_weight = graph.to_edge_index()
        given = {"x": x, "edge_index": edge_index, "edge_weight": edge_weight}
        (out,) = self.session.run(["out"], {name: given[name].numpy() for name in self.names})
        return torch.from_numpy(out)


class Calling(torch.nn.Module):
    """A model that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, graph):
        return self.function(x, graph)


@pytest.mark.parametrize("name", ["max-ga", pytest.param("median-ga", marks=pytest.mark.slow)])
def test_a_network(name, tmp_path):
    torch.manual_seed(0)
    graph = directed()
    model = nn.GCNN([1, 4, 4], order=2, activation=name, hops=2, out_features=3)
    session = Session(model, torch.randn(1, 9, 1), graph, tmp_path / "model.onnx")
    assert session.names == ["x"]
    for batch in (1, 6):
        x = torch.randn(batch, 9, 1)
        torch.testing.assert_close(session(x, graph), model(x, graph).detach())
    assert model.training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "closed"), [*CLOSED_OR_NOT, *((name, False) for name in ("relu", *POINTWISE, *FURTHER))]
)
def test_every_activation_with_the_graph_inside(name, closed, tmp_path):
    graph, x = directed(), hostile(3, 9, 2)
    module = make(name, closed=closed, start="uniform")
    if name == "gelu":  # of which torch makes NaN at -inf, and ONNX 0
        x = x.nan_to_num(0.0, 9.0, -9.0)
    session = Session(module, torch.randn(2, 9, 2), graph, tmp_path / "model.onnx")
    with torch.no_grad():
        torch.testing.assert_close(session(x, graph), module(x, graph), equal_nan=True)
        torch.testing.assert_close(session(x[:1], graph), module(x[:1], graph), equal_nan=True)


def test_no_activation_is_left_out():
    assert {*nn.ACTIVATIONS} == {"relu", *NAMES, *POINTWISE, *FURTHER}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *(name for name in FURTHER if name not in MEANS)])
def test_every_activation_with_edges_as_inputs(name, tmp_path):
    module = make(name, hops=1 if name == "median-l" else 2, start="uniform")
    session = Session(module, torch.randn(9, 2), directed(), tmp_path / "model.onnx", edges="input")
    assert session.names == ["x", "edge_index", "edge_weight"]
    no_edges = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=4)
    for graph in (directed(), directed(loops=False), directed(14, seed=3), no_edges):
        x = torch.randn(graph.num_nodes, 2)
        x[1, 1] = torch.nan
        with torch.no_grad():
            torch.testing.assert_close(session(x, graph), module(x, graph), equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("edges", ["constant", "input"])
def test_adaptive_banks_and_unshifted_terms(edges, tmp_path):
    torch.manual_seed(0)
    ops = ["max", "std", "mean", ("kernel", {"gamma": 2.0})]
    bank = nn.GCNN([2, 4, 4], order=1, bank="adaptive", ops=ops, residual=True, bias=True, out_features=3)
    for number, module in enumerate((bank, nn.GraphAdaptiveMedian(2, hops=0, unshifted=True, start="uniform"))):
        session = Session(module, torch.randn(9, 2), directed(), tmp_path / f"{number}.onnx", edges=edges)
        for graph in (directed(), *([directed(14, seed=3)] if edges == "input" else [])):
            x = torch.randn(graph.num_nodes, 2)
            x[:5] = 0.1  # equal values, of which the standard deviation is exactly 0
            torch.testing.assert_close(session(x, graph), module(x, graph).detach())


@pytest.mark.slow
def test_double_precision_and_a_function_of_ones_own(tmp_path):
    graph = directed(dtype=torch.float64)
    module = nn.GraphAdaptive(lambda own, neighbors: (own - neighbors).abs().mean(-2), hops=2).double()
    session = Session(module, torch.randn(2, 9, 2).double(), graph, tmp_path / "model.onnx")
    x = torch.randn(5, 9, 2).double()
    torch.testing.assert_close(session(x, graph), module(x, graph).detach())


def test_what_is_refused(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    graph, x, path = directed(), torch.randn(9, 2), tmp_path / "model.onnx"
    own = nn.GraphAdaptive(lambda neighbors: neighbors.sum(-2))
    means = [(make(name), "the function '.*mean.*'") for name in MEANS]
    for module, words in (
        (make("median-l"), "a localized median over 2 hops"),
        (own, "the function '<lambda>'"),
        *means,
    ):
        with pytest.raises(UnsupportedModelError, match=f'{words}.* needs edges="constant"'):
            graphact.export_onnx(module, x, graph, path, edges="input")
    network = nn.GraphNetwork([2, 2], convolution={"name": "EdgeNet", "graph": graph})
    with pytest.raises(UnsupportedModelError, match="an EdgeNet needs the whole graph.* ONNX"):
        graphact.export_onnx(network, x, graph, path)
    lonely = Graph.from_edge_index([[0], [1]], num_nodes=3)
    with pytest.raises(ValueError, match="at least 2 nodes and 2 edges, got 3 and 1"):
        graphact.export_onnx(make("max-ga"), torch.randn(3, 2), lonely, path, edges="input")
    with pytest.raises(ValueError, match="edges must be one of"):
        graphact.export_onnx(make("max-ga"), x, graph, path, edges="inputs")
    with pytest.raises(TypeError, match="graph must be a graphact.Graph"):
        graphact.export_onnx(make("max-ga"), x, graph.to_edge_index()[0], path)

    two, untranslatable = Calling(lambda x, _: (x, x)), Calling(lambda x, _: torch.linalg.eigvalsh(x.mT @ x))
    with pytest.raises(UnsupportedModelError, match="it must return a tensor, got tuple"):
        graphact.export_onnx(two, x, graph, path)
    with pytest.raises(UnsupportedModelError, match="torch cannot translate it to ONNX") as caught:
        graphact.export_onnx(untranslatable, x, graph, path)
    assert "\n" not in str(caught.value)
    assert not path.exists()


def with_convolutions():
    """PyG's convolutions with an activation: in a forward of one's own, in PassGraph, and in a chain."""
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(3)

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.act, self.last = pyg.GCNConv(2, 4), make("max-ga", features=4), pyg.GCNConv(4, 3)

        def forward(self, x, graph):
            edge_index, edge_weight = graph.to_edge_index()
            return self.last(self.act(self.first(x, edge_index, edge_weight), graph), edge_index)

    class Passing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            act = graphact.pyg.PerLayer(make("median-ga", features=4, start="uniform"), layers=1)
            self.model = graphact.pyg.PassGraph(pyg.GCN(2, 4, num_layers=2, out_channels=3, act=act))

        def forward(self, x, graph):
            return self.model(x, graph.to_edge_index()[0], graph=graph)

    chain = nn.Sequential(pyg.SAGEConv(2, 4), make("max-ga", features=4, start="uniform"), pyg.GCNConv(4, 3))
    return {"own": Own(), "passing": Passing(), "chain": chain}


@pytest.mark.slow
@pytest.mark.parametrize("edges", ["constant", "input"])
@pytest.mark.parametrize("kind", ["own", "passing", "chain"])
def test_convolutions_of_pyg_take_the_edges_of_the_graph(kind, edges, tmp_path):
    model, (edge_index, weight) = with_convolutions()[kind].eval(), directed(loops=False).to_edge_index()
    graph, x = Graph.from_edge_index(edge_index, weight.abs(), 9), torch.randn(9, 2)  # weights that have roots
    session = Session(model, x, graph, tmp_path / "model.onnx", edges=edges)
    torch.testing.assert_close(session(x, graph), model(x, graph).detach())


def test_a_model_that_takes_an_edge_index_is_told_the_way_out(tmp_path):
    pyg = pytest.importorskip("torch_geometric.nn")
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    graph, x = directed(loops=False), torch.randn(9, 2)

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act = pyg.GCNConv(2, 4), make("max-ga", features=4)

        def forward(self, x, edge_index):
            return self.act(self.conv(x, edge_index), edge_index)

    for model in (Own(), pyg.GCN(2, 4, num_layers=2), graphact.pyg.PassGraph(pyg.GIN(2, 4, num_layers=2))):
        for given in (graph, graph.to_edge_index()[0]):
            with pytest.raises(
                UnsupportedModelError, match=r"takes an edge_index: .*graph[.]to_edge_index\(\)"
            ) as caught:
                graphact.export_onnx(model, x, given, tmp_path / "model.onnx")
            assert "\n" not in str(caught.value)

    def fail(x, graph):
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        graphact.export_onnx(Calling(fail), x, graph, tmp_path / "model.onnx")


@pytest.mark.slow
def test_the_example_of_the_documentation(tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    (block,) = re.findall(r"```python\n(import onnxruntime.*?)```", DOCUMENTATION.read_text(), flags=re.DOTALL)
    check = "\ntorch.testing.assert_close(torch.from_numpy(scores), model(inputs['x'], graph).detach())"
    done = subprocess.run(
        [sys.executable, "-c", block + check], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
