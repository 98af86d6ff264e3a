"""The Numba kernels against the reference, and what only they can get wrong: cuts between threads, and compiling."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import graphact
from graphact.kernels import dispatch, reference
from graphact.kernels.autograd import tensors_of
from support.graphs import random_graph
from support.kernel_cases import (
    KernelCases,
    check_functions,
    check_hop,
    check_select,
    check_sums,
    graph_of,
    hub,
    random_edges,
    signal,
)

pytest.importorskip("numba")
from graphact.kernels import numba as compiled
from graphact.kernels.numba import launch, median


@pytest.fixture
def three_threads(monkeypatch):
    """However small the work, it is cut."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(launch, "SMALL", 8)
    yield
    torch.set_num_threads(before)


class TestCases(KernelCases):
    @pytest.fixture
    def module(self):
        return compiled


class TestCasesOnThreeThreads(KernelCases):
    @pytest.fixture
    def module(self, three_threads):
        return compiled


ONE_SAMPLE = [((), columns) for columns in (1, 3, 7, 17, 65, 257, 1100)]
SEVERAL = [((2,), columns) for columns in (1, 3, 63, 65, 257)] + [((40, 2), columns) for columns in (1, 7, 17)]


@pytest.mark.parametrize(("batch", "columns"), ONE_SAMPLE + SEVERAL)
def test_rows_of_odd_length(batch, columns):
    """Short rows are joined, long ones are cut into sections, and blocks of columns may end early."""
    graph = graph_of(13, random_edges(13, 60)).to(dtype=torch.float32)
    x = signal((*batch, 13, columns), "ties").float()
    check_sums(compiled, graph, x)
    check_select(compiled, graph, x)
    check_hop(compiled, graph, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_medians_of_every_length(dtype):
    """Node i hears the i nodes before it: networks of all lengths, and longer lists."""
    last = median.LONGEST + 6
    graph = graph_of(last + 1, [(j, i) for i in range(last + 1) for j in range(i)])
    for kind in ("normal", "ties", "special"):
        x = signal((graph.num_nodes, 5), kind).to(dtype)
        check_select(compiled, graph, x, ["median"])
        check_hop(compiled, graph, x, ["median"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "ties"])
def test_hub(kind, three_threads):
    graph = hub(20_000, 19_000, 15_000).to(dtype=torch.float32)
    x = signal((graph.num_nodes, 3), kind).float()
    check_sums(compiled, graph, x)
    check_select(compiled, graph, x, ["max", "median"])
    check_hop(compiled, graph, x, ["max", "median"], closed=[False])


def test_rows_that_are_asked_for_ahead(monkeypatch, three_threads):
    """Neighbours are prefetched where the signal exceeds the cache; here, always."""
    monkeypatch.setattr(launch, "CACHE", 0)
    for graph in (graph_of(40, random_edges(40, 200)), hub(50, 45, 40), graph_of(4, [])):
        x = signal((2, graph.num_nodes, 70)).float()
        check_sums(compiled, graph.to(dtype=torch.float32), x)
        check_hop(compiled, graph.to(dtype=torch.float32), x)
        check_functions(compiled, graph.to(dtype=torch.float32), x)


def test_comparisons_leave_the_median_in_place():
    steps, starts = median.tables()
    for length in range(1, median.LONGEST + 1):
        values = torch.randn(50, length)
        expected = values.median(dim=1).values
        for a, b, _ in steps[starts[length] : starts[length + 1]].tolist():
            values[:, [a, b]] = torch.stack([values[:, a].minimum(values[:, b]), values[:, a].maximum(values[:, b])], 1)
        assert torch.equal(values[:, (length - 1) // 2], expected)


def test_ranges_cover_all_rows_once(three_threads):
    rowptr = hub(500, 400, 100).incoming.rowptr.numpy()
    for planes in (1, 2, 7):
        work = launch.ranges(rowptr, planes, 10**6)
        assert len(work) > 3
        assert [first for first, _ in work] == [0, *(last for _, last in work[:-1])]
        assert work[-1][1] == planes * 500


def test_sums_do_not_depend_on_the_number_of_threads(three_threads):
    graph, x = random_graph(60, dtype=torch.float32), torch.randn(3, 60, 70)
    lists, tensors = graph.incoming, tensors_of(graph)

    def results():
        sums = compiled.shift(x, graph.weight, lists), compiled.sum_sq_diff(x, lists)
        differences = compiled.sum_sq_diff_backward(x, x, lists, lists)
        one = [compiled.neighborhood_functions(x, tensors, [op], True, True, 60) for op in ("max", "median", "kernel")]
        several = compiled.neighborhood_functions(x, tensors, ["max", "min", "std"], True, True, 60)
        passes = [part for found in (*one, several) for part in found.values()]
        back = compiled.neighborhood_functions_backward({"max": x, "shift": x}, one[0], tensors, True)
        grads = dict.fromkeys(("shift", "max", "min", "std"), x)
        back_of_several = compiled.neighborhood_functions_backward(grads, {**several, "x": x}, tensors, True)
        mixed = compiled.mix_backward(x, x, [x, x], torch.ones(3), torch.ones(3, 2, 70))[2:]
        scattered = compiled.scatter_selected(x, compiled.select(x, None, lists, "max", False)[1])
        grad_weight = compiled.shift_weight_grad(x, x, lists)
        return *sums, differences, grad_weight, scattered, *passes, back, back_of_several, *mixed

    on_three = results()
    torch.set_num_threads(1)
    assert all(torch.equal(*pair) for pair in zip(on_three, results(), strict=True))


def test_calls_from_several_threads(three_threads):
    graph = random_graph(60, dtype=torch.float32)
    lists = graph.incoming
    signals = [torch.randn(4, 60, 40) for _ in range(40)]
    expected = [reference.select(x, None, lists, "median", False) for x in signals]
    with ThreadPoolExecutor(6) as callers:
        results = list(callers.map(lambda x: compiled.select(x, None, lists, "median", False), signals))
    for result, right in zip(results, expected, strict=True):
        assert torch.equal(result[0], right[0])
        assert torch.equal(result[1], right[1])


def _shifted_in_a_fork(connection, x, graph):
    torch.set_num_threads(2)
    connection.send(compiled.shift(x, graph.weight, graph.incoming).tolist())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_has_threads_of_its_own(three_threads):
    graph, x = random_graph(30, dtype=torch.float32), torch.randn(30, 4)
    here = compiled.shift(x, graph.weight, graph.incoming)
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_shifted_in_a_fork, args=(send, x, graph))
    child.start()
    assert receive.poll(30)
    assert torch.equal(torch.tensor(receive.recv()), here)
    child.join()


def test_an_error_in_a_helper_reaches_the_caller(three_threads):
    def fail(first, last):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        launch.run(fail, [(0, 1), (1, 2), (2, 3)])


def test_compiles_without_a_place_for_the_result(monkeypatch):
    import numba.core.caching

    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    assert launch.kernel(lambda number: number + 1)(1) == 2


def test_import_compiles_nothing():
    script = (
        "import sys, graphact; assert 'numba' not in sys.modules\n"
        "from graphact.kernels.numba.functions import functions_kernel\n"
        "from graphact.kernels.numba.median import median_kernel\n"
        "assert not any(kernel.signatures for kernel in (functions_kernel, median_kernel))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_backend_is_the_default_and_refuses_what_it_cannot_do(monkeypatch):
    assert dispatch.implementation(torch.zeros(2, 1)) is compiled
    whole = torch.zeros(2, 1, dtype=torch.int64)
    assert dispatch.implementation(whole) is reference
    with graphact.backend("numba"):
        assert dispatch.implementation(torch.zeros(2, 1)) is compiled
        with pytest.raises(TypeError, match='backend "numba" does not support torch.int64'):
            dispatch.implementation(whole)
        with pytest.raises(ValueError, match='backend "numba" needs x on a cpu device, got meta'):
            dispatch.implementation(torch.zeros(2, 1, device="meta"))
        monkeypatch.setitem(dispatch._found, "numba", False)
        with pytest.raises(RuntimeError, match="needs the package numba"):
            dispatch.implementation(torch.zeros(2, 1))
    dispatch._warn_of_fallback.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"numba is not installed.*pip install 'graphact\[cpu\]'"):
        assert dispatch.implementation(torch.zeros(2, 1)) is reference
    assert dispatch.implementation(torch.zeros(2, 1)) is reference  # and not a word more
