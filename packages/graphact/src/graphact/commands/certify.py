"""graphact certify: bounds of a trained model on a graph."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphact.commands.parser import command, option, print_json

if TYPE_CHECKING:
    from torch import Tensor

    from graphact import Graph
    from graphact.nn import GraphModule

RADII = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1)  # in units of the largest value of the signals
DECISIONS, OUTPUTS = "share of decisions", "half width of outputs"


@command(
    "model",
    option("--graph", "a file that Graph.load reads: .npz or a list of edges", type=Path, required=True, metavar="G"),
    "--normalize",
    option("--signals", "NumPy file (.npy) of signals, (..., N, F), or (..., N) for F = 1", metavar="X"),
    option(
        "--radius",
        "largest change of any input (repeatable; default: seven radii around the size of the signals)",
        type=float,
        action="append",
        default=[],
        metavar="R",
    ),
    option(
        "--max-signals", "certify at most that many of the signals (default: 60)", type=int, default=60, metavar="M"
    ),
    option("--seed", "decides where searches start (default: 0)"),
    "--json",
)
def certify(options: argparse.Namespace) -> int:
    """Test the equivariance of a model and certify its Lipschitz constant on this graph. For given signals, certify
    the share of decisions that no perturbation within a radius changes or, for a regressor, intervals of its outputs.
    A search for counterexamples stands beside every certified number; the truth lies between the two. The statements
    and their proofs are in docs/guarantees.md.
    """
    import torch

    import graphact
    from graphact._checks import check_integer, check_positive
    from graphact.training.malloc import keep_freed_memory

    check_integer("--max-signals", options.max_signals, minimum=1)
    for radius in options.radius:
        check_positive("--radius", radius)
    if options.radius and options.signals is None:
        raise ValueError("--radius needs --signals: a radius is certified around signals")
    keep_freed_memory()
    model = graphact.load(options.model).double()
    graph = graphact.Graph.load(options.graph).to(dtype=torch.float64)
    graph = graph if options.normalize is None else graph.normalize(options.normalize)
    signals = None if options.signals is None else read_signals(options.signals, graph.num_nodes, options.max_signals)
    verdict, findings = find(model, graph, signals, options.radius, options.seed)
    if options.json:
        return print_json(findings)
    sys.stdout.write(table(verdict, findings))
    return 0


def read_signals(path: Path, num_nodes: int, max_signals: int) -> "Tensor":
    """Read signals of a NumPy file as float64 ``(M, N, F)``, at most ``max_signals`` at equal distances."""
    import numpy as np
    import torch

    from graphact.storage import read_array

    if not path.is_file():
        raise FileNotFoundError(f"there is no signal file {path}")
    array = read_array(path)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{path} must hold one array of real numbers")
    if array.ndim >= 1 and array.shape[-1] == num_nodes and (array.ndim == 1 or array.shape[-2] != num_nodes):
        array = array[..., None]
    if array.ndim < 2 or array.shape[-2] != num_nodes:
        raise ValueError(f"{path} must hold signals of shape (..., N, F) with N = {num_nodes}, got {array.shape}")
    if not np.isfinite(array).all():
        bad = array[~np.isfinite(array)]
        raise ValueError(f"{path} must hold finite signals, got {bad[0]} ({bad.size} such values)")
    if array.size == 0:
        raise ValueError(f"{path} must hold at least one signal with one feature, got the shape {array.shape}")
    signals = torch.from_numpy(array.astype(np.float64)).reshape(-1, *array.shape[-2:])
    return signals[torch.linspace(0, len(signals) - 1, min(max_signals, len(signals))).round().long()]


def find(
    model: "GraphModule", graph: "Graph", signals: "Tensor | None", radii: list[float], seed: int
) -> tuple[str, dict[str, Any]]:
    """Return the verdict on equivariance in words, and all findings as JSON values."""
    import torch

    from graphact import guarantees
    from graphact.nn import FIR, GCNN

    generator = torch.Generator().manual_seed(seed)
    features = model.layers()[0].in_features  # None: an activation with shared weights takes any number
    x = torch.randn(20, graph.num_nodes, features or 1, generator=generator, dtype=torch.float64)
    x = x if signals is None else signals
    if features is not None and x.size(-1) != features:
        raise ValueError(f"the signals must have {features} features, as the model has, got {x.size(-1)}")
    with torch.no_grad():
        outputs = model(x, graph)
    classifier = isinstance(model, GCNN | FIR) and outputs.size(-1) > 1
    size = x.abs().max().item() or 1.0
    chosen = [] if signals is None else sorted(radii) or [share * size for share in RADII]
    lines = []
    for radius in chosen:  # shares of decisions (classifier) or half widths (regressor), certified and by attack
        safe = guarantees.certify(model, graph, x, radius, kind="classifier" if classifier else "regressor")
        hit = guarantees.attack(model, graph, x, radius, generator=generator)
        if classifier:
            kept = safe.certified.double().mean().item(), 1 - hit.changed.double().mean().item()
        else:
            kept = (safe.upper - safe.lower).mean().item() / 2, (hit.upper - hit.lower).mean().item() / 2
        lines.append({"radius": radius, "certified": kept[0], "found": kept[1]})
    equivariance = guarantees.check_equivariance(model, graph, x, generator=generator)
    bound = guarantees.lipschitz_bound(model, graph)
    found = guarantees.empirical_lipschitz(model, graph, x, generator=generator)
    return str(equivariance), {
        "module": f"{type(model).__name__} with {sum(p.numel() for p in model.parameters()):,} parameters",
        "graph": f"{graph.num_nodes} nodes, {graph.num_edges} directed edges",
        "equivariant": equivariance.holds,
        "largest_deviation": equivariance.deviation,
        "layers": dict(bound.layers),
        "product_of_layers": bound.composed,
        "proposition_2": bound.paper,
        "certified": bound.value,
        "certified_per_node": bound.per_node.tolist(),
        "found": found.value,
        "found_per_node": found.per_node.tolist(),
        "signals": 0 if signals is None else len(x),
        "measure": DECISIONS if classifier else OUTPUTS,
        "radii": lines,
    }


def table(verdict: str, findings: dict[str, Any]) -> str:
    """Return the findings as text."""
    product, certified, found = (findings[name] for name in ("product_of_layers", "certified", "found"))
    lines = [findings["module"], findings["graph"], verdict, "", "Lipschitz constant, infinity norm"]
    lines += [f"  {name:22s} {constant:14.6g}" for name, constant in findings["layers"].items()]
    if len(findings["layers"]) > 1:
        lines.append(f"  {'product of layers':22s} {product:14.6g}")
    if findings["proposition_2"] is not None:
        lines.append(f"  {'Proposition 2':22s} {findings['proposition_2']:14.6g}")
    lines.append(f"  {'certified':22s} {certified:14.6g}{ratio(product, certified, ' below the product')}")
    lines.append(f"  {'found by search':22s} {found:14.6g}{ratio(certified, found, ' below certified')}")
    if findings["radii"]:
        decisions = findings["measure"] == DECISIONS
        what = ("decisions kept", "no change found") if decisions else ("outputs within", "found")
        count = findings["signals"]
        lines += ["", f"{count} signal{'' if count == 1 else 's'}", f"  {'radius':>12s} {what[0]:>18s} {what[1]:>18s}"]
        columns = "{certified:17.1%}  {found:17.1%} " if decisions else " ± {certified:15.6g}  ± {found:15.6g}"
        lines += [f"  {{radius:12.3g}} {columns}".format(**line) for line in findings["radii"]]
    return "\n".join(lines) + "\n"


def ratio(larger: float, smaller: float, words: str) -> str:
    """Return how many times one number is below another, empty if they are equal."""
    return f"   {larger / smaller:.2g} times{words}" if smaller > 0 and larger / smaller > 1.005 else ""
