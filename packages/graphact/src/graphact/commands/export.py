"""graphact export: a trained model as an ONNX file."""

import argparse
import logging
import sys
from pathlib import Path

from graphact._extras import require
from graphact.commands.parser import command, option, print_json


@command(
    "model",
    option("--graph", "a file that Graph.load reads: .npz or a list of edges", type=Path, required=True, metavar="G"),
    "--normalize",
    option("--out", "the ONNX file to write", type=Path, required=True, metavar="FILE"),
    option(
        "--edges",
        "constant: the model keeps this graph; input: the edges are inputs of the ONNX file (default: constant)",
        choices=("constant", "input"),
        default="constant",
    ),
    "--json",
)
def export(options: argparse.Namespace) -> int:
    """Write a trained model as an ONNX file, for one graph or with the edges as inputs. The number of samples in a
    batch may differ from call to call.
    """
    import torch

    import graphact
    from graphact.storage import check_writable

    require("graphact export needs", "onnx", "onnxscript")
    if options.out.is_dir():
        raise IsADirectoryError(
            f"--out must be a file such as {options.out / 'model.onnx'}, got the folder {options.out}"
        )
    model = graphact.load(options.model)
    graph = graphact.Graph.load(options.graph)
    weights = next(model.parameters(), torch.empty(0))
    graph = graph.to(dtype=weights.dtype)
    if options.normalize:
        graph = graph.normalize(options.normalize)
    features = next((layer.in_features for layer in model.layers() if layer.in_features), 1)
    check_writable(options.out.parent)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # else it warns of operations of torchvision
    signal = torch.zeros(2, graph.num_nodes, features, dtype=weights.dtype)
    graphact.export_onnx(model, signal, graph, options.out, edges=options.edges)
    size = options.out.stat().st_size
    if options.json:
        return print_json({"file": str(options.out), "bytes": size, "nodes": graph.num_nodes, "features": features})
    sys.stdout.write(f"{options.out}: {size:,} bytes, input x of shape (batch, {graph.num_nodes}, {features})\n")
    return 0
