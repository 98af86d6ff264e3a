"""From a trained model and a graph to what each node holds."""

import os
import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact.agents.addresses import Address, Addresses
from graphact.agents.certificates import can_make_certificates, make_certificates
from graphact.agents.deployment import Deployment
from graphact.agents.inference import evaluate_operation
from graphact.agents.links import Links, Row
from graphact.agents.messages import KEY_BYTES, link_key
from graphact.agents.model import Model
from graphact.layers import HopMixture, UnsupportedModelError

if TYPE_CHECKING:
    from graphact.graph import Graph
    from graphact.nn import GraphModule


def plain_model(model: "GraphModule") -> Model:
    """A torch model in NumPy; half precision becomes float32.

    Raises:
        UnsupportedModelError: the model is not one of graphact's, was changed, holds a function that is not registered
            or that gives other values in NumPy than in torch, or has a localized activation of several hops.
    """
    import torch

    from graphact.files import coefficients, describe_model

    header = describe_model(model)
    state = {key: value.detach().cpu() for key, value in coefficients(model).items()}
    wide = torch.float64 if any(value.dtype == torch.float64 for value in state.values()) else torch.float32
    parameters = {key: value.to(wide).numpy().copy() for key, value in state.items()}
    plain = Model(header["module"], header["config"], parameters, header["layers"], header["frozen"])
    for part, layer in zip(plain.parts, plain.layers, strict=True):
        if isinstance(layer, HopMixture) and not layer.operation.is_built_in:
            check_equal_values(layer, part)
    return plain


def check_equal_values(layer: HopMixture, part: str) -> None:
    """Raise if an operation gives other values in NumPy than in torch, on nodes with 0, 1, 2 and 5 neighbours."""
    import torch

    from graphact.graph import Graph
    from graphact.nn import GraphAdaptive

    heard_by_node = [(), (2,), (1, 3), (), (0, 1, 2, 3, 5), (0, 4)]
    edges = [(j, i) for i, heard in enumerate(heard_by_node) for j in heard]
    graph = Graph.from_edge_index(np.array(edges).T, np.ones(len(edges)), num_nodes=len(heard_by_node))
    options: dict[str, Any] = {name: float(value) for name, value in layer.parameters.items()}
    module = GraphAdaptive(layer.operation, closed=layer.closed, **options).double()
    x = np.random.default_rng(0).normal(size=(len(heard_by_node), 3))
    shifted = np.stack([x[list(heard)].sum(0) for heard in heard_by_node])
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        module.weights.fill_(1.0)
        expected = module(torch.from_numpy(x), graph).numpy() - np.maximum(x, 0)
        values = [evaluate_operation(layer, shifted[i], shifted[list(heard)]) for i, heard in enumerate(heard_by_node)]
    if not np.allclose(values, expected, rtol=1e-9, atol=1e-9, equal_nan=True):
        reason = f"its operation {layer.operation.name!r} gives other values in NumPy than in torch"
        raise UnsupportedModelError(part, reason)


def deploy(
    model: "GraphModule | Model", graph: "Graph", *, epoch: int | None = None, secret: bytes | None = None
) -> list[Deployment]:
    """What each node of a graph holds, to run a model together.

    Args:
        model: a :class:`~graphact.nn.GCNN`, :class:`~graphact.nn.FIR`, filter bank or activation.
        graph: the graph; its weights are converted to the dtype of the model.
        epoch: number of the deployment; drawn at random when left out.
        secret: 32 bytes from which the keys of the links are derived; drawn at random, and forgotten, when left out.

    Example:
        >>> import graphact
        >>> from graphact.agents import deploy
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> nodes = deploy(graphact.nn.GCNN([1, 4], order=2, activation="max-ga"), path)
        >>> nodes[1].links.hears, nodes[2].links.hears
        ((0, 2), (1,))
    """
    plain = model if isinstance(model, Model) else plain_model(model)
    epoch = secrets.randbits(63) if epoch is None else epoch
    secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
    if len(secret) != KEY_BYTES:
        raise ValueError(f"secret must have {KEY_BYTES} bytes, got {len(secret)}")
    starts, sources = graph.incoming.pointers.tolist(), graph.incoming.members.tolist()
    starts_out, targets = graph.outgoing.pointers.tolist(), graph.outgoing.members.tolist()
    weights = graph.weight.detach().cpu().numpy().astype(plain.dtype)
    diagonal = np.zeros(graph.num_nodes) if graph.diagonal is None else graph.diagonal.detach().cpu().numpy()
    nodes = []
    for i in range(graph.num_nodes):
        entries = slice(starts[i], starts[i + 1])
        hears, heard_by = tuple(sources[entries]), tuple(targets[starts_out[i] : starts_out[i + 1]])
        keys = {j: link_key(secret, i, j) for j in sorted({*hears, *heard_by})}
        row = Row(hears, weights[entries], float(diagonal[i]))
        nodes.append(Deployment(Links(i, epoch, hears, heard_by, keys), row, plain))
    return nodes


def split(
    model: "GraphModule",
    graph: "Graph",
    out: str | os.PathLike[str],
    *,
    epoch: int | None = None,
    addresses: Sequence[Address | str] | None = None,
    tls: bool | None = None,
) -> list[Path]:
    """Write one folder for each node, ``out/node-0`` and so on; see :class:`~graphact.agents.Deployment`.

    Args:
        model: the model, as in :func:`deploy`.
        graph: the graph.
        out: folder for the folders.
        epoch: number of the deployment; drawn at random when left out.
        addresses: where each node is reached; a node is given its own and those of its neighbours.
        tls: make a certificate for each node, of an authority that is forgotten; it names the host of the address. None
            does so if there are addresses and cryptography.

    Raises:
        FileExistsError: ``out`` holds nodes already; their keys and run numbers must not be mixed with new ones.
    """
    if any(Path(out).glob("node-*")):
        raise FileExistsError(f"{out} holds nodes already; choose another folder")
    if addresses is not None and len(addresses) != graph.num_nodes:
        raise ValueError(f"addresses must be {graph.num_nodes}, one for each node, got {len(addresses)}")
    places = [each if isinstance(each, Address) else Address.parse(each) for each in addresses or ()]
    folders = []
    for deployment in deploy(model, graph, epoch=epoch):
        folders.append(Path(out) / f"node-{deployment.node}")
        deployment.save(folders[-1])
        if places:
            neighbors = {j: places[j] for j in deployment.links.neighbors}
            Addresses(places[deployment.node], neighbors).save(folders[-1])
    if places and (can_make_certificates() if tls is None else tls):
        make_certificates(folders, [place.host for place in places])
    return folders
