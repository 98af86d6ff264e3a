"""One graph over several processes: how it scales, how well it can be cut, and how large it may be.

    python benchmarks/scaleout.py cuts                     METIS against blocks on four kinds of graphs
    python benchmarks/scaleout.py strong                   one graph on 1, 2 and 4 processes
    python benchmarks/scaleout.py weak                     a graph that grows with the number of processes
    python benchmarks/scaleout.py large --out DIR          2,000,000 nodes, 32,000,000 edges, two processes, one epoch
    python benchmarks/scaleout.py limit --device cuda      the largest graph that trains on one device

Processes share the cores of this machine, so on C cores more than C processes cannot be faster.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import scipy.sparse
import torch
from graph_kinds import communities, geometric, random_links, small_world
from output import echo

import graphact
from graphact.distributed import (
    DistributedSettings,
    PartitionedGraph,
    assign_nodes,
    connect,
    divide,
    step_cost,
    train,
    write_partition,
)
from graphact.graph import Neighborhoods

GIB = 2**30
MODEL = {"features": [8, 16, 16], "order": 2, "activation": "max-ga", "hops": 1, "start": "uniform"}


# Cuts


def cuts(options):
    echo(
        f"{'graph':14s} {'nodes':>8s} {'edges':>9s} parts {'METIS':>9s} {'blocks':>9s}   values that travel, % of nodes"
    )
    kinds = {
        "geometric": geometric,
        "communities": communities,
        "small world": lambda nodes: graphact.Graph.from_scipy(small_world(nodes)),
        "random": random_links,
    }
    for name, make in kinds.items():
        graph = make(options.nodes)
        for parts in (2, 4, 8):
            shares = []
            for method in ("metis", "blocks"):
                owner, _ = assign_nodes(graph, parts, method)
                halo = sum(int(part.halo_counts.sum()) for part in divide(graph, owner, parts))
                shares.append(100 * halo / graph.num_nodes)
            echo(
                f"{name:14s} {graph.num_nodes:8,d} {graph.num_edges:9,d} {parts:5d} {shares[0]:9.2f}% {shares[1]:9.2f}%"
            )


# Training under torchrun


def torchrun(processes, *arguments, threads=1):
    """Run this script in several processes; what the first one prints as JSON comes back."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    run = subprocess.run(
        [*command, __file__, *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def worker(options):
    """One process of a run: read its part, train, and report time, bytes and memory."""
    rank, processes = connect()
    compile_kernels()
    base = memory("VmRSS")
    begun = time.perf_counter()
    graph = PartitionedGraph.load(options.directory)
    loading = time.perf_counter() - begun
    load_peak, loaded = memory("VmHWM"), memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    torch.manual_seed(0)
    model = graphact.nn.GCNN(**MODEL)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(graph.num_nodes, MODEL["features"][0], generator=generator)
    y = torch.randn(graph.num_nodes, 1, generator=generator)
    train(model, graph, x, y, settings=DistributedSettings(epochs=1))
    graph.traffic.reset()
    stamps, worked = [time.perf_counter()], time.process_time()
    stamp = lambda *_: stamps.append(time.perf_counter())  # noqa: E731
    train(model, graph, x, y, settings=DistributedSettings(epochs=options.epochs), progress=stamp)
    # processes wait for each other in every epoch, so the times of the first one are those of all
    worked = (time.process_time() - worked) / options.epochs
    seconds = min((after - before for before, after in itertools.pairwise(stamps)), default=0.0)
    cost = step_cost(model, graph, MODEL["features"][0])
    traffic = graph.traffic
    assert (traffic.exchanges, traffic.sent) == (options.epochs * cost.exchanges, options.epochs * cost.sent)
    mine = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "halo": graph.num_halo,
        "loading": loading,
        "seconds": seconds,
        "worked": worked,
        "exchanges": cost.exchanges,
        "sent": cost.sent,
        "base": base,
        "loaded": loaded,
        "load_peak": load_peak,
        "peak": memory("VmHWM"),
    }
    everyone = [mine]
    if processes > 1:
        everyone = [None] * processes
        torch.distributed.all_gather_object(everyone, mine)
    if rank == 0:
        echo(json.dumps(everyone))


def compile_kernels():
    """So that what compiled code and its compiler need counts among the libraries, not as memory of the graph."""
    tiny = graphact.Graph.from_edge_index([[0, 1, 2, 0], [1, 0, 1, 2]])
    graphact.nn.GCNN(**MODEL)(torch.randn(3, MODEL["features"][0], requires_grad=True), tiny).sum().backward()


def memory(field):
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise ValueError(field)


def measure(graph, parts, directory, epochs, method="metis", threads=1):
    """Write the parts of a graph and train on them."""
    owner, method = assign_nodes(graph, parts, method)
    write_partition(divide(graph, owner, parts), directory, method=method)
    return torchrun(parts, "worker", directory, "--epochs", epochs, threads=threads)


def scaling(options, sizes):
    columns = "halo  exchanges   MiB sent   s/step  speed-up  CPU s/step  speed-up  peak GiB"
    echo(f"processes     nodes      edges   {columns}")
    first = None
    for parts, nodes in sizes:
        graph = geometric(nodes)
        with tempfile.TemporaryDirectory() as directory:
            everyone = measure(graph, parts, directory, options.epochs)
        # wall time, and the time that the busiest process worked, which others on the machine disturb less
        times = [everyone[0]["seconds"], max(one["worked"] for one in everyone)]
        per_node = [seconds / nodes for seconds in times]
        first = first or per_node
        (wall, wall_gain), (work, work_gain) = (
            (seconds, alone / now) for seconds, alone, now in zip(times, first, per_node, strict=True)
        )
        halo = sum(one["halo"] for one in everyone) / nodes
        sent = sum(one["sent"] for one in everyone) / 2**20
        peak = max(one["peak"] for one in everyone) / GIB
        echo(
            f"{parts:9d} {nodes:9,d} {graph.num_edges:10,d} {100 * halo:5.2f}% {everyone[0]['exchanges']:10d} "
            f"{sent:10.2f} {wall:8.3f} {wall_gain:9.2f} {work:11.3f} {work_gain:9.2f} {peak:9.2f}"
        )


def strong(options):
    scaling(options, [(parts, options.nodes) for parts in (1, 2, 4)])


def weak(options):
    scaling(options, [(parts, options.nodes * parts // 4) for parts in (1, 2, 4)])


def large(options):
    """The acceptance run: two million nodes, through the command line, on two processes."""
    directory = Path(options.out)
    file = directory / "graph.npz"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        scipy.sparse.save_npz(file, small_world(2_000_000), compressed=False)
    begun = time.perf_counter()
    graphact_partition = [sys.executable, "-m", "graphact.cli", "partition", str(file), "--parts", "2"]
    subprocess.run([*graphact_partition, "--method", "blocks", "--out", str(directory / "parts")], check=True)
    echo(f"cut in {time.perf_counter() - begun:.0f} s")
    everyone = torchrun(2, "worker", directory / "parts", "--epochs", 1)
    for rank, one in enumerate(everyone):
        echo(
            f"process {rank}: {one['nodes']:,} nodes, {one['edges']:,} edges, halo {one['halo']:,}; "
            f"loading {one['loading']:.1f} s, one epoch {everyone[0]['seconds']:.1f} s, {one['exchanges']} exchanges, "
            f"{one['sent'] / 2**20:,.0f} MiB sent\n"
            f"  peak memory {one['peak'] / GIB:.2f} GiB (while loading {one['load_peak'] / GIB:.2f}, "
            f"libraries {one['base'] / GIB:.2f}); after loading {one['loaded'] / GIB:.2f}"
        )
        assert max(one["peak"], one["load_peak"]) < 12e9


# The limit of one device


def ring(nodes, degree, device):
    """A ring whose lists are written down directly, so that building it is not what needs most memory."""
    half = degree // 2
    steps = torch.cat([torch.arange(-half, 0), torch.arange(1, half + 1)]).to(device)
    members = ((torch.arange(nodes, device=device).unsqueeze(1) + steps) % nodes).sort(1).values.flatten()
    order = torch.arange(nodes, device=device)
    pointers = torch.arange(0, nodes * degree + 1, degree, device=device)
    lists = Neighborhoods.from_sizes(pointers, members, order, torch.tensor([[degree, nodes]]))
    weight = torch.full((nodes * degree,), 1 / degree, device=device)
    places = torch.arange(degree - 1, -1, -1, dtype=torch.int32, device=device).repeat(nodes)
    ends = torch.cat([order[:degree], order[-degree:]])  # where the ring closes, lists are sorted otherwise
    hearers = ((ends.unsqueeze(1) + steps) % nodes).sort(1).values
    heard = (hearers.unsqueeze(2) + steps) % nodes
    places.view(nodes, degree)[ends] = (heard < ends.view(-1, 1, 1)).sum(2).int()
    return graphact.Graph(lists, lists, weight, weight, None, False, incoming_slot=places)


def trains(nodes, options):
    """Seconds for one step, or None if memory does not suffice."""
    try:
        graph = ring(nodes, options.degree, options.device)
        model = graphact.nn.GCNN(**MODEL).to(options.device)
        x = torch.randn(nodes, MODEL["features"][0], device=options.device)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            begun = time.perf_counter()
            optimizer.zero_grad()
            loss = model(x, graph).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()
        return time.perf_counter() - begun
    except torch.OutOfMemoryError:
        return None


def limit(options):
    """Double the graph until it does not fit, then close in to five per cent."""
    fits, seconds, too_many, nodes = 0, 0.0, None, options.nodes
    while too_many is None or too_many - fits > 0.05 * fits:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        took = trains(nodes, options)
        peak = torch.cuda.max_memory_allocated() / GIB
        said = "does not fit" if took is None else f"{took:.2f} s a step, {peak:.1f} GiB"
        echo(f"{nodes:13,d} nodes {nodes * options.degree:15,d} edges: {said}")
        if took is None:
            too_many = nodes
        else:
            fits, seconds = nodes, took
        nodes = 2 * fits if too_many is None else (fits + too_many) // 2
        if fits == 0:
            nodes = too_many // 2
    echo(
        f"the largest that trains on {torch.cuda.get_device_name()}: {fits:,} nodes, {fits * options.degree:,} edges\n"
        f"features {MODEL['features']}, order {MODEL['order']}, {MODEL['activation']}: {seconds:.2f} s a step"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, nodes in ((cuts, 40_000), (strong, 200_000), (weak, 200_000), (limit, 4_000_000)):
        command = commands.add_parser(function.__name__)
        command.add_argument("--nodes", type=int, default=nodes)
        command.add_argument("--epochs", type=int, default=5)
        command.set_defaults(call=function)
        if function is limit:
            command.add_argument("--device", default="cuda", choices=("cuda",))
            command.add_argument("--degree", type=int, default=16)
    command = commands.add_parser("large")
    command.add_argument("--out", default="out/scaleout-large")
    command.set_defaults(call=large)
    command = commands.add_parser("worker")
    command.add_argument("directory")
    command.add_argument("--epochs", type=int, default=5)
    command.set_defaults(call=worker)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
