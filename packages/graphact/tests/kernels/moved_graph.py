"""Uses a graph, moves it to shared memory, and uses it again; started by `test_moved_graph.py`.

What still pointed to the old memory would end this process, or read the numbers that are put there in between.
"""

import sys

import torch
import torch.multiprocessing as mp

from graphact import Graph, functional, nn

NODES, EDGES = 2_000, 20_000  # so many that the memory goes back to the system


def graph():
    edge_index = torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))
    return Graph.from_edge_index(edge_index, num_nodes=NODES).normalize("symmetric")


def fill_memory():
    """Numbers that are no indices, where something was freed."""
    sizes = [EDGES, NODES + 1, NODES] * 50
    return [torch.full((size,), 10**12) for size in sizes] + [torch.full((size,), 1e30) for size in sizes]


def shift_then_shift(used, move):
    x = torch.randn(3, NODES, 80)
    before = functional.shift(x, used)
    move(used)
    filled = fill_memory()
    assert torch.equal(functional.shift(x, used), before)
    del filled


def activation_then_activation(used, move):
    x = torch.randn(NODES, 4)
    modules = [getattr(nn, f"GraphAdaptive{name}")(features=4, start="uniform") for name in ("Max", "Median", "Kernel")]
    before = [module(x, used) for module in modules]
    move(used)
    filled = fill_memory()
    assert all(torch.equal(module(x, used), value) for module, value in zip(modules, before, strict=True))
    del filled


def forward_then_backward(used, move):
    x = torch.randn(NODES, 4, requires_grad=True)
    modules = [getattr(nn, f"GraphAdaptive{name}")(features=4, start="uniform") for name in ("Max", "Median", "Kernel")]
    expected = [torch.autograd.grad(module(x, used).sum(), x)[0] for module in modules]
    out = [module(x, used).sum() for module in modules]
    move(used)
    filled = fill_memory()
    assert all(torch.equal(torch.autograd.grad(o, x)[0], grad) for o, grad in zip(out, expected, strict=True))
    del filled


def share(used):
    used.share_memory_()


def put_into_a_queue(used):
    context = mp.get_context("spawn")
    sent, answers = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(sent, answers))
    process.start()
    sent.put(used)
    assert answers.get() == NODES
    process.join()


def answer(received, answers):
    answers.put(received.get().num_nodes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](graph(), globals()[sys.argv[2]])
