"""Uses a graph, moves it to shared memory, and uses it again; started by `test_moved_graph.py`.

What still pointed to the old memory would end this process, or read the numbers that are put there in between.
"""

import sys

import torch
import torch.multiprocessing as mp

from graphact import Graph, functional, nn

NODES, EDGES = 2_000, 20_000  # so many that the memory goes back to the system
KINDS = (nn.GraphAdaptiveMax, nn.GraphAdaptiveMedian, nn.GraphAdaptiveKernel)


def make_graph():
    edge_index = torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))
    return Graph.from_edge_index(edge_index, num_nodes=NODES).normalize("symmetric")


def fill_memory():
    """Numbers that are no indices, where something was freed."""
    sizes = [EDGES, NODES + 1, NODES] * 50
    return [torch.full((size,), 10**12) for size in sizes] + [torch.full((size,), 1e30) for size in sizes]


def shift(graph):
    """A shift, before and after."""
    x = torch.randn(3, NODES, 80)
    return lambda: [functional.shift(x, graph)]


def activate(graph):
    """Activations, before and after."""
    x, modules = torch.randn(NODES, 4), [kind(features=4, start="uniform") for kind in KINDS]
    return lambda: [module(x, graph) for module in modules]


def differentiate(graph):
    """Gradients before and after, of two evaluations before."""
    x = torch.randn(NODES, 4, requires_grad=True)
    modules = [kind(features=4, start="uniform") for kind in KINDS]
    first, second = ([module(x, graph).sum() for module in modules] for _ in range(2))
    sums = iter((first, second))
    return lambda: [torch.autograd.grad(total, x)[0] for total in next(sums)]


def share(graph):
    graph.share_memory_()


def put_into_a_queue(graph):
    context = mp.get_context("spawn")
    sent, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(sent, answers))
    process.start()
    sent.put(graph)
    assert answers.get() == NODES
    process.join()


def answer(received, answers):
    answers.put(received.get().num_nodes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    graph = make_graph()
    use, move = (globals()[name] for name in sys.argv[1:])
    evaluate = use(graph)
    before = evaluate()
    move(graph)
    filled = fill_memory()
    assert all(map(torch.equal, evaluate(), before))
