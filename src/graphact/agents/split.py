"""From a model file and a graph file to the folder of each node."""

import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphact.agents.addresses import Address, Addresses
from graphact.agents.certificates import can_make_certificates, make_certificates
from graphact.agents.deployment import Deployment
from graphact.agents.graph_file import ShiftOperator, load_graph
from graphact.agents.links import Links, Row
from graphact.agents.messages import KEY_BYTES, link_key
from graphact.agents.model import Model
from graphact.agents.model_file import load_model


def to_model(model: Any) -> Model:
    """Return a model, from a file or through one.

    A torch model is written by ``graphact.save`` and read back: agents know model files, and nothing of torch.

    Raises:
        UnsupportedModelError: agents cannot run the model; the error names the part.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike):
        return load_model(model)
    library: Any = sys.modules.get("graphact")  # imported by whoever made such a model
    if library is None or not hasattr(model, "layers"):
        raise TypeError(f"model must be a Model, a model file or a model of graphact, got {type(model).__name__}")
    with tempfile.TemporaryDirectory() as folder:
        library.save(model, Path(folder) / "model.safetensors")
        return load_model(Path(folder) / "model.safetensors")


def to_operator(graph: Any) -> ShiftOperator:
    """Return a shift operator, from a file or, for a ``graphact.Graph``, through one."""
    if isinstance(graph, ShiftOperator):
        return graph
    if isinstance(graph, str | os.PathLike):
        return load_graph(graph)
    if not hasattr(graph, "save"):
        raise TypeError(f"graph must be a graph file or a graphact.Graph, got {type(graph).__name__}")
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph.npz")
        return load_graph(Path(folder) / "graph.npz")


def deploy(model: Any, graph: Any, *, epoch: int | None = None, secret: bytes | None = None) -> list[Deployment]:
    """Return what each node of a graph holds, to run a model together.

    Args:
        model: a model file, a :class:`Model`, or a torch model that ``graphact.save`` can write.
        graph: a graph file, or a ``graphact.Graph``; its weights are converted to the dtype of the model.
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
    plain, operator = to_model(model), to_operator(graph)
    epoch = secrets.randbits(63) if epoch is None else epoch
    secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
    if len(secret) != KEY_BYTES:
        raise ValueError(f"secret must have {KEY_BYTES} bytes, got {len(secret)}")
    weights, listeners = operator.weight.astype(plain.dtype), operator.heard_by()
    nodes = []
    for i in range(operator.num_nodes):
        entries = slice(operator.rowptr[i], operator.rowptr[i + 1])
        hears, heard_by = operator.hears(i), listeners[i]
        keys = {j: link_key(secret, i, j) for j in sorted({*hears, *heard_by})}
        row = Row(hears, weights[entries], float(operator.diagonal[i]))
        nodes.append(Deployment(Links(i, epoch, hears, heard_by, keys), row, plain))
    return nodes


def split(
    model: Any,
    graph: Any,
    out: str | os.PathLike[str],
    *,
    epoch: int | None = None,
    addresses: Sequence[Address | str] | None = None,
    tls: bool | None = None,
) -> list[Path]:
    """Write one folder for each node, ``out/node-0`` and so on; see :class:`~graphact.agents.Deployment`.

    Args:
        model: the model, as in :func:`deploy`.
        graph: the graph, likewise.
        out: folder for the folders.
        epoch: number of the deployment; drawn at random when left out.
        addresses: where each node is reached; a node is given its own and those of its neighbours.
        tls: make a certificate for each node, which names the host of its address. None does so if there are addresses
            and the package cryptography.

    Raises:
        FileExistsError: ``out`` holds nodes already; their keys and run numbers must not be mixed with new ones.
    """
    operator = to_operator(graph)
    if any(Path(out).glob("node-*")):
        raise FileExistsError(f"{out} holds nodes already; choose another folder")
    if addresses is not None and len(addresses) != operator.num_nodes:
        raise ValueError(f"addresses must be {operator.num_nodes}, one for each node, got {len(addresses)}")
    places = [each if isinstance(each, Address) else Address.parse(each) for each in addresses or ()]
    folders = []
    for deployment in deploy(model, operator, epoch=epoch):
        folders.append(Path(out) / f"node-{deployment.node}")
        deployment.save(folders[-1])
        if places:
            neighbors = {j: places[j] for j in deployment.links.neighbors}
            Addresses(places[deployment.node], neighbors).save(folders[-1])
    if places and (can_make_certificates() if tls is None else tls):
        make_certificates(folders, [place.host for place in places])
    return folders
