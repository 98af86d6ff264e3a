"""Damaged files and wrong arguments, of which all processes must say what one finds; then training. For 3 processes.

The folder holds a sound partition in parts/, and the graph."""

import shutil

import torch
import torch.distributed as dist

import graphact
from graphact.distributed import (
    DistributedSettings,
    PartitionedGraph,
    PartitionError,
    assign_nodes,
    divide,
    step_cost,
    train,
    write_partition,
)
from graphact.distributed.halo import _Ticket

PART = "part-0000{}-of-00003.safetensors"


def remove(path):
    path.unlink()


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def alter(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


MISHAPS = {
    "missing": (remove, PART.format(1)),
    "truncated": (truncate, PART.format(2)),
    "altered": (alter, PART.format(0)),
    "no manifest": (remove, "manifest.json"),
    "altered manifest": (alter, "manifest.json"),
}


def mishaps(directory, rank):
    """The message of every damage."""
    for name, (damage, file) in MISHAPS.items():
        folder = directory / name
        if rank == 0:
            shutil.copytree(directory / "parts", folder)
            damage(folder / file)
        dist.barrier()
        yield name, message_of(lambda folder=folder: PartitionedGraph.load(folder))


def message_of(function):
    try:
        function()
    except PartitionError as error:
        return str(error)
    return "nothing was wrong"


def order_of_events(graph):
    """Record the order of events in one hop, forward and backward."""
    events, start, finish = [], _Ticket.start, _Ticket.finish

    def work(x, *graphs):
        where = "interior" if x.size(-2) == graph.num_nodes else "boundary"
        events.append(where)
        return (Noted.apply(x, where),)

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, where):
            ctx.where = where
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            events.append(ctx.where)
            return 2 * grad, None

    _Ticket.start = lambda ticket, values: (events.append("begin"), start(ticket, values))[1]
    _Ticket.finish = lambda ticket: (events.append("end"), finish(ticket))[1]
    try:
        x = torch.ones(graph.num_nodes, 1, dtype=torch.float64, requires_grad=True)
        graph.one_hop(x, work)[0].sum().backward()
    finally:
        _Ticket.start, _Ticket.finish = start, finish
    return events


def model_and_signal(nodes):
    torch.manual_seed(0)
    model = graphact.nn.GCNN([2, 4, 3], order=2, activation="max-ga", hops=2, out_features=2, start="uniform").double()
    return model, torch.randn(nodes, 2, dtype=torch.float64), torch.randint(2, (nodes,))


def trained_together(graph, checkpoint, steps=6):
    """Parameters and losses after training on the parts; the nodes with an even number are for training.

    ``steps`` is how many of the six epochs the checkpoint leaves."""
    model, x, classes = model_and_signal(graph.total_nodes)
    chosen = (graph.nodes % 2 == 0).nonzero().squeeze(1)
    settings = DistributedSettings(epochs=6, learning_rate=0.01, checkpoint_every=4)
    options = {"loss": "cross_entropy", "train_nodes": chosen, "settings": settings, "checkpoint": checkpoint}
    graph.traffic.reset()
    losses = train(model, graph, x[graph.nodes], classes[graph.nodes][chosen], **options)
    cost = step_cost(model, graph, 2, dtype=x.dtype)
    assert (graph.traffic.exchanges, graph.traffic.sent) == (steps * cost.exchanges, steps * cost.sent)
    return list(model.parameters()), losses


def trained_alone(graph):
    """The same in plain torch."""
    model, x, classes = model_and_signal(graph.num_nodes)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, graph)[::2], classes[::2])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return list(model.parameters()), losses


class Idle(torch.nn.Module):
    """A model with a parameter that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.model, self.idle = graphact.nn.GCNN([2, 2]).double(), torch.nn.Linear(2, 2).double()

    def forward(self, x, graph):
        return self.model(x, graph)


def different(whole, graph, directory, rank):
    """The message where one process has something else than the others."""
    if rank == 0:
        twice = graphact.Graph.from_dense(2 * whole.to_dense())
        owner, _ = assign_nodes(twice, 3)
        write_partition(divide(twice, owner, 3), directory / "twice", method="by hand")
    dist.barrier()
    folder = directory / ("twice" if rank == 2 else "parts")
    yield "another partition", message_of(lambda: PartitionedGraph.load(folder))
    other = graphact.Graph.from_dense(whole.to_dense() * (1 + 1e-15)) if rank == 1 else whole
    yield "another graph", message_of(lambda: PartitionedGraph.from_graph(other))
    model, x, _ = model_and_signal(graph.num_nodes)
    several = x.expand(2, -1, -1) if rank == 1 else x
    yield "another batch", message_of(lambda: train(model, graph, several, several))
    single = x.float() if rank == 2 else x
    yield "another precision", message_of(lambda: train(model, graph, x, single))
    wider = graphact.nn.GCNN([2, 4 + (rank == 1)], out_features=2).double()
    yield "another model", message_of(lambda: train(wider, graph, x, x))
    yield "unused parameter", message_of(lambda: train(Idle(), graph, x, x[:, :1]))


def run(rank, directory):
    """Meet all mishaps, then train; what was said and how it went."""
    found = dict(mishaps(directory, rank))
    whole = graphact.Graph.load(directory / "graph.npz")
    graph = PartitionedGraph.load(directory / "parts")
    found |= different(whole, graph, directory, rank)
    owner = torch.zeros(whole.num_nodes if rank != 1 else 3, dtype=torch.int64)
    found["wrong owner"] = message_of(lambda: PartitionedGraph.from_graph(whole, owner))
    wrong = torch.zeros(graph.num_nodes + (rank == 2), 2, dtype=torch.float64)
    found["wrong inputs"] = message_of(lambda: train(model_and_signal(1)[0], graph, wrong, wrong))
    found["order"] = order_of_events(graph)
    together, losses = trained_together(graph, directory / "checkpoint")
    alone, expected = trained_alone(whole)
    distances = [(a - b).abs().max().item() for a, b in zip(together, alone, strict=True)]
    found["distance"] = max(*distances, *(abs(a - b) for a, b in zip(losses, expected, strict=True)))
    again, same = trained_together(graph, directory / "checkpoint", steps=0)  # finds its end in the checkpoint
    found["resumed"] = same == losses and all(torch.equal(a, b) for a, b in zip(together, again, strict=True))
    model, x, _ = model_and_signal(graph.total_nodes)
    other = {"settings": DistributedSettings(epochs=6, learning_rate=0.01), "checkpoint": directory / "checkpoint"}
    found["other work"] = message_of(lambda: train(model, graph, x[graph.nodes], x[graph.nodes], **other))
    dist.barrier()
    if rank == 0:
        alter(directory / "checkpoint")
    dist.barrier()
    found["altered checkpoint"] = message_of(lambda: trained_together(graph, directory / "checkpoint"))
    return found
