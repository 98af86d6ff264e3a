"""graphact certify: what is guaranteed of a trained model on a graph."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from graphact.commands.certify_findings import Findings

HELP = "certify a trained model on a graph: equivariance, Lipschitz constant, safe radius"
DESCRIPTION = """\
Check that a model does not depend on how nodes are numbered, certify its Lipschitz constant on this graph and, for
given signals, the share of decisions that no perturbation within a radius can change (or, for a regressor, how far
outputs can move). Beside every certified number stands what a search has found, so that the truth lies between the
two. The statements and their proofs are in docs/guarantees.md.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser("certify", help=HELP, description=DESCRIPTION)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file that graphact.save has written")
    parser.add_argument(
        "--graph", type=Path, required=True, metavar="G", help="a file that Graph.load reads: .npz or a list of edges"
    )
    parser.add_argument(
        "--normalize",
        choices=("spectral", "symmetric", "random_walk", "laplacian"),
        help="rescale the shift operator first, as Graph.normalize does",
    )
    parser.add_argument(
        "--signals", type=Path, metavar="X", help="NumPy file (.npy) of signals, (..., N, F), or (..., N) for F = 1"
    )
    parser.add_argument(
        "--radius",
        type=float,
        action="append",
        default=[],
        metavar="R",
        help="largest change of any input (repeatable; default: seven radii around the size of the signals)",
    )
    parser.add_argument(
        "--most", type=int, default=60, metavar="M", help="certify at most that many of the signals (default: 60)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the figure and the numbers (default: out/certify-MODEL)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides where searches start (default: 0)")
    parser.set_defaults(command=certify)


def certify(options: argparse.Namespace) -> int:
    """Load, certify, print, draw."""
    import torch

    import graphact
    from graphact._checks import check_integer, check_positive
    from graphact.commands.certify_figure import draw
    from graphact.commands.certify_findings import find, table, to_json
    from graphact.files import write_atomically
    from graphact.training.memory import keep_freed_memory

    check_integer("--most", options.most, minimum=1)
    for radius in options.radius:
        check_positive("--radius", radius)
    if options.radius and options.signals is None:
        raise ValueError("--radius needs --signals: a radius is certified around signals")
    keep_freed_memory()
    model = graphact.load(options.model).double()
    graph = graphact.Graph.load(options.graph).to(dtype=torch.float64)
    graph = graph if options.normalize is None else graph.normalize(options.normalize)
    signals = None if options.signals is None else read_signals(options.signals, graph.num_nodes, options.most)
    findings: Findings = find(model, graph, signals, options.radius, options.seed)
    directory = options.out or Path("out") / f"certify-{options.model.stem}"
    sys.stdout.write(table(findings))
    write_atomically(directory / "certificate.json", to_json(findings).encode())
    png, svg = draw(findings)
    write_atomically(directory / "certificate.png", png)
    write_atomically(directory / "certificate.svg", svg.encode())
    sys.stdout.write(f"\nfigure: {directory / 'certificate.png'}\n")
    return 0


def read_signals(path: Path, num_nodes: int, most: int) -> "Tensor":
    """Signals of a NumPy file, as float64 ``(M, N, F)``, evenly taken where there are more than ``most``.

    Raises:
        ValueError: the file holds no numbers, or they do not fit the graph.
    """
    import numpy as np
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"there is no signal file {path}")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a NumPy file of numbers, as numpy.save writes it, or is damaged") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise ValueError(f"{path} must hold one array of real numbers")
    if array.ndim >= 1 and array.shape[-1] == num_nodes and (array.ndim == 1 or array.shape[-2] != num_nodes):
        array = array[..., None]
    if array.ndim < 2 or array.shape[-2] != num_nodes or not np.isfinite(array).all():
        raise ValueError(
            f"{path} must hold finite signals of shape (..., N, F) with N = {num_nodes}, got {array.shape}"
        )
    signals = torch.from_numpy(array.astype(np.float64)).reshape(-1, *array.shape[-2:])
    if len(signals) == 0:
        raise ValueError(f"{path} must hold at least one signal, got the shape {array.shape}")
    return signals[torch.linspace(0, len(signals) - 1, min(most, len(signals))).round().long()]
