"""The value of a module from its parameters, by the loops of the oracle."""

from graphact import nn
from graphact.nn.neighborhood_activation import NeighborhoodActivation
from graphact.registry import POINTWISE
from support import oracle


def apply_by_loops(module, x, matrix, edges):
    """The value of a network, a filter or an activation, in NumPy float64."""
    values = {name: parameter.detach().double().cpu().numpy() for name, parameter in module.named_parameters()}
    if isinstance(module, (nn.GCNN, nn.FIR)):
        for number, bank in enumerate(module.filters):
            x = apply_by_loops(bank, x, matrix, edges)
            if isinstance(module, nn.GCNN):
                x = apply_by_loops(module.activations[number], x, matrix, edges)
        if "readout.weight" in values:
            x = x @ values["readout.weight"].T + values.get("readout.bias", 0.0)
        return x
    if isinstance(module, nn.GraphFilter):
        return oracle.graph_filter(matrix, x, values["taps"]) + values.get("bias", 0.0)
    if isinstance(module, NeighborhoodActivation):
        kind = "localized" if module.reads == "hops" else "graph_adaptive"
        gamma = float(module.gamma) if module.op == "kernel" else None
        coefficients = values["beta"], values["weights"]
        return oracle.activation(kind, matrix, edges, x, *coefficients, module.op, gamma, module.closed)
    (name,) = (name for name, known in {"relu": "ReLU", **POINTWISE}.items() if known == type(module).__name__)
    return oracle.pointwise(name, x, *values.values()) if x.size else x
