"""graphact partition: cut a graph into files, one for each process that will share it."""

import argparse
import sys
from typing import Any

from graphact.commands.parser import command, option, print_json


@command(
    "graph",
    option("--parts", "number of processes", type=int, required=True, metavar="P"),
    option("--out", "folder for the files; one that holds a partition is refused", required=True),
    option(
        "--method",
        "metis: few links between parts; blocks: consecutive nodes (default: metis where it is installed)",
        choices=("auto", "metis", "blocks"),
        default="auto",
    ),
    "--normalize",
    "--json",
)
def partition(options: argparse.Namespace) -> int:
    """Cut a graph into one file for each process, so that no process has to load all of it. The processes are then
    started with torchrun and read the folder with graphact.distributed.PartitionedGraph.load(DIR).
    """
    from graphact._checks import check_integer
    from graphact.distributed import assign_nodes, divide, write_partition
    from graphact.distributed.partition import MANIFEST, PART_FILES
    from graphact.graph import Graph
    from graphact.storage import check_writable

    check_integer("--parts", options.parts, minimum=1)
    graph = Graph.load(options.graph)
    if any(any(options.out.glob(name)) for name in (MANIFEST, PART_FILES)):
        raise FileExistsError(f"{options.out} holds a partition already: delete it or choose another --out")
    if options.parts > graph.num_nodes:
        raise ValueError(
            f"--parts must be at most {graph.num_nodes}, the number of nodes of the graph, got {options.parts}"
        )
    check_writable(options.out)
    if options.normalize:
        graph = graph.normalize(options.normalize)
    owner, method = assign_nodes(graph, options.parts, options.method)
    manifest = write_partition(divide(graph, owner, options.parts), options.out, method=method)
    if options.json:
        return print_json(manifest)
    sys.stdout.write(summary(manifest) + f"\nwritten to {options.out}\n")
    return 0


def summary(manifest: dict[str, Any]) -> str:
    """A table of the parts."""
    lines = ["part       nodes        edges     values received  sent to others"]
    for rank, file in enumerate(manifest["files"]):
        share = 100 * file["halo"] / max(1, file["nodes"])
        lines.append(
            f"{rank:4d} {file['nodes']:11,d} {file['edges']:12,d} {file['halo']:11,d} {share:6.1f}% {file['sent']:15,d}"
        )
    halo = sum(file["halo"] for file in manifest["files"])
    lines.append(
        f"{manifest['nodes']:,} nodes in {manifest['parts']} parts by {manifest['method']}: in every exchange "
        f"{halo:,} values of nodes travel for each feature, {100 * halo / manifest['nodes']:.2f} % of the nodes"
    )
    return "\n".join(lines)
