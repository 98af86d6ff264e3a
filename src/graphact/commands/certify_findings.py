"""What graphact certify finds out, and how it prints it."""

import json
from dataclasses import dataclass

import torch
from torch import Tensor

from graphact.analysis import (
    EmpiricalLipschitz,
    Equivariance,
    LipschitzBound,
    attack,
    certify,
    check_equivariance,
    empirical_lipschitz,
    lipschitz_bound,
)
from graphact.graph import Graph
from graphact.nn import FIR, GCNN, GraphModule

RADII = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1)  # in units of the largest value of the signals


@dataclass(frozen=True)
class AtRadius:
    """One line of the table: certified and found, as shares of decisions (classifier) or as widths (regressor)."""

    radius: float
    certified: float
    found: float


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that is printed and drawn."""

    module: str
    graph: str
    equivariance: Equivariance
    bound: LipschitzBound
    found: EmpiricalLipschitz
    signals: int
    classifier: bool
    radii: tuple[AtRadius, ...]


def find(model: GraphModule, graph: Graph, signals: Tensor | None, radii: list[float], seed: int) -> Findings:
    """Check, certify and search."""
    generator = torch.Generator().manual_seed(seed)
    features = in_features(model)
    x = torch.randn(20, graph.num_nodes, features or 1, generator=generator, dtype=torch.float64)
    x = x if signals is None else signals
    if features is not None and x.size(-1) != features:
        raise ValueError(f"the signals must have {features} features, as the model has, got {x.size(-1)}")
    with torch.no_grad():
        outputs = model(x, graph)
    classifier = isinstance(model, GCNN | FIR) and outputs.size(-1) > 1
    size = x.abs().max().item() or 1.0
    lines = []
    if signals is not None:
        for radius in sorted(radii) or [share * size for share in RADII]:
            lines.append(at_radius(model, graph, x, radius, classifier, generator))
    return Findings(
        f"{type(model).__name__} with {sum(p.numel() for p in model.parameters()):,} parameters",
        f"{graph.num_nodes} nodes, {graph.num_edges} directed edges",
        check_equivariance(model, graph, x, generator=generator),
        lipschitz_bound(model, graph),
        empirical_lipschitz(model, graph, x, generator=generator),
        0 if signals is None else len(x),
        classifier,
        tuple(lines),
    )


def in_features(model: GraphModule) -> int | None:
    """How many features a signal has; None for an activation with shared weights, which takes any number."""
    config = model.config()
    given = config.get("in_features", config.get("features"))
    return given[0] if isinstance(given, list) else given


def at_radius(
    model: GraphModule, graph: Graph, x: Tensor, radius: float, classifier: bool, generator: torch.Generator
) -> AtRadius:
    """Certificate and attack at one radius."""
    certificate = certify(model, graph, x, radius, kind="classifier" if classifier else "regressor")
    found = attack(model, graph, x, radius, generator=generator)
    if classifier:
        return AtRadius(radius, certificate.certified.double().mean().item(), 1 - found.changed.double().mean().item())
    return AtRadius(
        radius,
        (certificate.upper - certificate.lower).mean().item() / 2,
        (found.upper - found.lower).mean().item() / 2,
    )


def table(findings: Findings) -> str:
    """The findings in text."""
    bound, found = findings.bound, findings.found
    lines = [findings.module, findings.graph, str(findings.equivariance), "", "Lipschitz constant, infinity norm"]
    lines += [f"  {name:22s} {constant:14.6g}" for name, constant in bound.layers]
    if len(bound.layers) > 1:
        lines.append(f"  {'product of layers':22s} {bound.composed:14.6g}")
    if bound.paper is not None:
        lines.append(f"  {'Proposition 2':22s} {bound.paper:14.6g}")
    lines.append(f"  {'certified':22s} {bound.value:14.6g}{ratio(bound.composed, bound.value, ' below the product')}")
    lines.append(f"  {'found by search':22s} {found.value:14.6g}{ratio(bound.value, found.value, ' below certified')}")
    if findings.radii:
        what = ("decisions kept", "no change found") if findings.classifier else ("outputs within", "found")
        lines += ["", f"{findings.signals} signals", f"  {'radius':>12s} {what[0]:>18s} {what[1]:>18s}"]
        for line in findings.radii:
            if findings.classifier:
                lines.append(f"  {line.radius:12.3g} {line.certified:17.1%}  {line.found:17.1%} ")
            else:
                lines.append(f"  {line.radius:12.3g}  ± {line.certified:15.6g}  ± {line.found:15.6g}")
    return "\n".join(lines) + "\n"


def ratio(larger: float, smaller: float, words: str) -> str:
    """How many times one number is below another, where that says something."""
    return f"   {larger / smaller:.2g} times{words}" if smaller > 0 and larger / smaller > 1.005 else ""


def to_json(findings: Findings) -> str:
    """The findings for a machine."""
    return json.dumps(
        {
            "module": findings.module,
            "graph": findings.graph,
            "equivariant": findings.equivariance.holds,
            "largest_deviation": findings.equivariance.deviation,
            "layers": dict(findings.bound.layers),
            "product_of_layers": findings.bound.composed,
            "proposition_2": findings.bound.paper,
            "certified": findings.bound.value,
            "certified_per_node": findings.bound.per_node.tolist(),
            "found": findings.found.value,
            "found_per_node": findings.found.per_node.tolist(),
            "signals": findings.signals,
            "measure": "share of decisions" if findings.classifier else "half width of outputs",
            "radii": [vars(line) for line in findings.radii],
        },
        indent=1,
    )
