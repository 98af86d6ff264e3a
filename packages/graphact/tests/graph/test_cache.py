"""One build for many layers: sharing, building again, and that nothing is kept alive."""

import gc
import threading
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_geometric import EdgeIndex

from graphact import Graph, nn
from graphact.graph.cache import BuildCache
from graphact.nn import call as base


@pytest.fixture(autouse=True)
def _nothing_built_before():
    base.BUILT.clear()
    yield
    base.BUILT.clear()


@pytest.fixture
def builds(monkeypatch):
    """Return the list of calls that built a graph from an edge list."""
    calls, right = [], Graph.from_edge_index

    def counted(*arguments, **options):
        calls.append(arguments)
        return right(*arguments, **options)

    monkeypatch.setattr(Graph, "from_edge_index", counted)
    return calls


@pytest.fixture
def edges():
    return torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([1.0, 2.0, 3.0, 4.0])


X = torch.randn(3, 2)


def test_layers_share_one_graph(builds, edges):
    edge_index, weight = edges
    layers = [nn.GraphAdaptiveMax(hops=2), nn.GraphAdaptiveMedian(), nn.GraphFilter(2, 2, order=1)]
    outputs = [layer(X, edge_index, weight) for layer in layers]
    assert len(builds) == 1
    graph = Graph.from_edge_index(edge_index, weight, 3).normalize("symmetric")
    for layer, output in zip(layers, outputs, strict=True):
        assert torch.equal(layer(X, graph), output)
    assert base.resolve_graph(X, edge_index, weight) is base.resolve_graph(X, edge_index, weight)


def test_what_belongs_to_the_key(builds, edges):
    edge_index, weight = edges
    for x, *arguments in [
        (X, edge_index, None),
        (X, edge_index, weight),
        (X, edge_index, weight.double()),
        (X.double(), edge_index, None),
        (torch.randn(4, 2), edge_index, None),
        (X, edge_index.clone(), None),
        (X, edge_index, None, "symmetric"),
        (X, edge_index, weight, "gcn"),
    ]:
        before = len(builds)
        graph = base.resolve_graph(x, *arguments)
        assert len(builds) == before + 1
        assert base.resolve_graph(x, *arguments) is graph
        assert graph.num_nodes == x.size(-2)
        assert graph.dtype == (x.dtype if arguments[1] is None else arguments[1].dtype)
        assert len(builds) == before + 1
    assert base.resolve_graph(X.half(), edge_index, None) is base.resolve_graph(X, edge_index, None)


def test_another_layout_of_the_same_memory_is_noticed(builds):
    """The shape stays, and so do the numbers in memory."""
    edge_index = torch.tensor([[0, 1], [2, 2]])
    changes = [torch.Tensor.t_, lambda index: index.as_strided_((2, 2), (2, 1)), lambda index: index.swapaxes_(0, 1)]
    for change in (None, *changes):
        if change is not None:
            change(edge_index)
        found = base.resolve_graph(X, edge_index, None)
        assert torch.equal(found.to_dense(), Graph.from_edge_index(edge_index, num_nodes=3).to_dense())
    window = torch.tensor([[0, 1, 0], [2, 2, 1]])[:, :2]
    base.resolve_graph(X, window, None)
    window.as_strided_((2, 2), (3, 1), 1)
    found = base.resolve_graph(X, window, None)
    assert torch.equal(found.to_dense(), Graph.from_edge_index([[1, 0], [2, 1]], num_nodes=3).to_dense())


def test_integer_weights_become_the_default_type_of_now(edges):
    edge_index, weight = edges[0], torch.tensor([1, 2, 3, 4])
    assert base.resolve_graph(X, edge_index, weight).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert base.resolve_graph(X.double(), edge_index, weight).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_changes_that_torch_does_not_count(builds, edges):
    edge_index, _ = edges
    first = base.resolve_graph(X, edge_index, None)
    edge_index.numpy()[:] = [[0, 1, 1, 2], [1, 0, 0, 1]]
    edge_index.data.add_(0)
    assert base.resolve_graph(X, edge_index, None) is first  # the documented limit
    nn.clear_graph_cache()
    assert not torch.equal(base.resolve_graph(X, edge_index, None).to_dense(), first.to_dense())


def test_a_change_in_place_is_noticed(builds, edges):
    edge_index, weight = edges
    base.resolve_graph(X, edge_index, weight)
    weight[0] = 7.0
    assert base.resolve_graph(X, edge_index, weight).to_dense()[1, 0] == 7.0
    edge_index[:, 3] = torch.tensor([0, 2])
    assert base.resolve_graph(X, edge_index, weight).to_dense()[2, 0] == 4.0
    assert len(builds) == 3
    weight.data = torch.zeros(4)
    assert not base.resolve_graph(X, edge_index, weight).to_dense().any()
    assert len(base.BUILT) == 1  # the older ones are gone


def test_nothing_is_kept_alive(edges):
    edge_index, weight = (tensor.clone() for tensor in edges)
    graph = base.resolve_graph(X, edge_index, weight)
    gone = [weakref.ref(thing) for thing in (edge_index, weight, graph)]
    del edge_index, graph
    gc.collect()
    assert gone[0]() is None
    assert gone[2]() is None
    assert len(base.BUILT) == 0
    assert gone[1]() is weight
    other = edges[0].clone()
    base.resolve_graph(X, other, weight)
    del weight
    gc.collect()
    assert gone[1]() is None
    assert len(base.BUILT) == 0


def test_only_the_last_few_are_kept(edges):
    cache, given = BuildCache(max_entries=3), [edges[0].clone() for _ in range(5)]
    for number, tensor in enumerate(given):
        assert cache.get((tensor,), None, lambda number=number: number) == number
    assert len(cache) == 3
    assert cache.get((given[2],), None, lambda: "again") == 2  # used lately: stays longer
    cache.get((given[0],), None, lambda: "new")
    assert cache.get((given[2],), None, lambda: "again") == 2
    assert cache.get((given[3],), None, lambda: "again") == "again"


def test_an_identity_that_is_used_again_is_not_mistaken():
    """A new tensor may get the identity of one that is gone."""
    cache = BuildCache()
    for number in range(200):
        tensor = torch.tensor([number])
        assert cache.get((tensor,), None, lambda number=number: number) == number
        del tensor


def test_weights_that_want_gradients_are_not_shared(builds, edges):
    edge_index, weight = edges[0], edges[1].requires_grad_()
    for _ in range(2):
        base.resolve_graph(X, edge_index, weight).weight.sum().backward()
    assert weight.grad.tolist() == [2.0] * 4
    assert len(builds) == 2
    with torch.no_grad():
        base.resolve_graph(X, edge_index, weight)
    assert (len(builds), len(base.BUILT)) == (3, 0)


def test_inference_mode(builds, edges):
    edge_index, model = edges[0], nn.GraphAdaptiveMax()
    with torch.inference_mode():
        inferred = model(X, edge_index)
        model(X, edge_index)
        assert len(builds) == 1
        made_inside = edge_index.clone()
        model(X, made_inside)
        model(X, made_inside)
        assert len(builds) == 3  # such tensors have no version
    out = model(X.clone().requires_grad_(), edge_index)  # a graph made in inference mode could not be trained with
    out.sum().backward()
    assert torch.equal(out, inferred)
    assert len(builds) == 4


def test_transforms_and_fake_tensors(builds, edges):
    edge_index, model = edges[0], nn.GraphAdaptiveMax()
    model(X, edge_index)
    torch.func.grad(lambda x: model(x, edge_index).sum())(X)
    torch.func.vmap(lambda x: model(x, edge_index))(X.expand(2, 3, 2))
    assert len(builds) == 3
    assert len(base.BUILT) == 1
    cache = BuildCache()
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(edge_index)
        assert cache.get((fake,), None, lambda: "fake") == "fake"
    assert cache.get((edge_index.to("meta"),), None, lambda: "meta") == "meta"
    assert len(cache) == 0


def test_compiled_modules_share_it_outside_of_what_is_compiled(builds, edges):
    torch.compiler.reset()
    model = torch.compile(nn.GraphAdaptiveMax(), backend="eager")
    out = model(X, edges[0])
    model(X, edges[0])
    assert len(builds) == 1
    assert torch.equal(out, model(X, Graph.from_edge_index(edges[0], None, 3).normalize("symmetric")))


def test_an_edge_index_of_pyg_is_shared(builds, edges):
    edge_index = EdgeIndex(edges[0], sparse_size=(3, 3))
    model = nn.GraphAdaptiveMax()
    assert torch.equal(model(X, edge_index), model(X, edges[0]))
    assert len(builds) == 1


def test_many_threads(edges):
    cache, errors = BuildCache(max_entries=2), []
    shared = [edges[0].clone() for _ in range(4)]

    def work(seed):
        try:
            for turn in range(200):
                tensor = shared[(seed + turn) % 4] if turn % 3 else torch.tensor([turn])
                expected = tensor.sum().item()
                assert cache.get((tensor,), "sum", lambda tensor=tensor: tensor.sum().item()) == expected
                if turn % 50 == 0:
                    gc.collect()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)
    assert len(cache) <= 2


FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
STEPS = [(optimizer, {"fused": True}) for optimizer in FUSED] + [
    (optimizer, {"foreach": is_foreach})
    for optimizer in (*FUSED, torch.optim.RMSprop, torch.optim.NAdam, torch.optim.Adadelta, torch.optim.Rprop)
    for is_foreach in (True, False)
]


@pytest.mark.parametrize("made", [torch.nn.Parameter, torch.Tensor.requires_grad_], ids=["parameter", "tensor"])
@pytest.mark.parametrize("freeze", [True, False], ids=["frozen", "detached"])
@pytest.mark.parametrize(("optimizer", "options"), STEPS, ids=[f"{kind.__name__}-{options}" for kind, options in STEPS])
def test_weights_trained_between_two_evaluations(edges, optimizer, options, made, freeze):
    """A fused step changes the numbers, but not the version that torch counts."""
    edge_index, weight = edges[0], made(edges[1].clone())
    step, model = optimizer([weight], lr=0.5, **options), nn.GraphAdaptiveMax(start="uniform")
    alias = weight.detach()  # shares the memory and the version
    for _ in range(3):
        evaluated = weight.requires_grad_(False) if freeze else alias
        for _ in range(2):
            expected = Graph.from_edge_index(edge_index, weight.detach().clone(), 3).normalize("symmetric")
            assert torch.equal(
                base.resolve_graph(X, edge_index, evaluated, "symmetric").to_dense(), expected.to_dense()
            )
            assert torch.equal(model(X, edge_index, evaluated), model(X, expected))
        weight.requires_grad_()
        model(X, edge_index, weight).square().sum().backward()
        step.step()
        step.zero_grad()


@pytest.mark.parametrize("change", [lambda weight: weight.data.mul_(2), lambda weight: weight.numpy().fill(2.0)])
def test_uncounted_changes_of_weights_are_noticed(edges, builds, change):
    edge_index, weight = edges
    base.resolve_graph(X, edge_index, weight)
    version = weight._version
    change(weight)
    assert weight._version == version
    assert torch.equal(
        base.resolve_graph(X, edge_index, weight).to_dense(), Graph.from_edge_index(edge_index, weight, 3).to_dense()
    )
    before = len(builds)
    base.resolve_graph(X, edge_index, weight)
    assert len(builds) == before
