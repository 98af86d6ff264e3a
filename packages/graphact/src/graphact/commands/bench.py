"""graphact bench: times of activations on your own graph."""

import argparse
import sys

from graphact.commands.parser import command, option, print_json


@command(
    "graph",
    option("--features", "columns of the signal (default: 64)", type=int, default=64, metavar="F"),
    option("--hops", "hops of the activations (default: 2)", type=int, default=2, metavar="K"),
    option("--device", "device to run on (default: cuda where available)"),
    option("--repeats", "timed calls of each activation (default: 9)", type=int, default=9, metavar="R"),
    option("--without-pyg", "skip PyG, which may be slow", action="store_true"),
    "--json",
)
def bench(options: argparse.Namespace) -> int:
    """Time each activation on a graph, forward and with the backward pass, beside the plain shift and beside the same
    activation composed of PyG's aggregations where PyG is installed. Results are checked before they are timed. The
    "gather floor" is the time to read a row for every edge in each pass, at the copy bandwidth measured in the same
    run.
    """
    import torch

    from graphact._checks import check_integer
    from graphact._extras import is_installed
    from graphact.benchmarking import OPERATIONS, Bench, copy_bandwidth, markdown
    from graphact.graph import Graph

    for name in ("features", "hops", "repeats"):
        check_integer(f"--{name}", getattr(options, name), minimum=1)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device must be cpu where there is no CUDA device, got cuda")
    graph = Graph.load(options.graph).to(device, torch.float32)
    against_pyg = is_installed("torch_geometric") and not options.without_pyg
    bandwidth = copy_bandwidth(device)
    run = Bench(graph, options.features, options.hops, bandwidth, options.repeats)
    table = [run.shift(), *(run.activation(op, against_pyg=against_pyg) for op in OPERATIONS)]
    if options.json:
        return print_json({"nodes": graph.num_nodes, "edges": graph.num_edges, "bandwidth": bandwidth, "rows": table})
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    sys.stdout.write(
        f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {options.features} features, {options.hops} hops; "
        f"{name}, copies at {bandwidth / 1e9:.0f} GB/s\n\n{markdown(table)}\n"
    )
    return 0
