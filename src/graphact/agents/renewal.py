"""A network in its next epoch: new keys for all links, and where asked for another model, a node more or a node less.

Nothing is written here; :mod:`graphact.agents.rollout` brings a running network into the epoch.
"""

import secrets
from collections.abc import Mapping

import numpy as np

from graphact.agents.deployment import Deployment
from graphact.agents.links import Links, Row
from graphact.agents.messages import KEY_BYTES, link_key
from graphact.agents.model import Model


def renew(
    deployments: Mapping[int, Deployment],
    *,
    model: Model | None = None,
    rows: Mapping[int, Row] | None = None,
    epoch: int | None = None,
    secret: bytes | None = None,
) -> dict[int, Deployment]:
    """The network in a new epoch, with new keys; with another model or other rows, if they are given.

    ``epoch`` and ``secret`` are drawn at random when left out, as in :func:`graphact.agents.deploy`.

    Example:
        >>> import graphact
        >>> from graphact.agents import deploy
        >>> from graphact.agents.renewal import renew
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> old = dict(enumerate(deploy(graphact.nn.FIR([1, 1], order=1), path)))
        >>> new = renew(old)
        >>> new[1].links.hears, new[1].links.keys[0] == new[0].links.keys[1], new[1].links.keys == old[1].links.keys
        ((0, 2), True, False)
    """
    if rows is None:
        rows = {i: each.row for i, each in deployments.items()}
    model = next(iter(deployments.values())).model if model is None else model
    secret = secrets.token_bytes(KEY_BYTES) if secret is None else secret
    epoch = secrets.randbits(63) if epoch is None else epoch
    network = next(iter(deployments.values())).links.network
    renewed = {}
    for i, row in rows.items():
        heard_by = tuple(sorted(k for k, other in rows.items() if i in other.hears))
        keys = {j: link_key(secret, i, j) for j in {*row.hears, *heard_by}}
        row = Row(row.hears, row.weights.astype(model.dtype), row.diagonal)
        renewed[i] = Deployment(Links(i, epoch, row.hears, heard_by, keys, network), row, model)
    return renewed


def with_node(
    rows: Mapping[int, Row], node: int, weights: Mapping[int, float], diagonal: float = 0.0
) -> dict[int, Row]:
    """The rows of a network with one more node, which its neighbours hear with the weights that it hears them with."""
    changed = dict(rows)
    if node in rows or not weights or not {*weights} <= {*rows}:
        raise ValueError(f"node {node} must be new, and linked to nodes among {sorted(rows)}, got {sorted(weights)}")
    dtype = next(iter(rows.values())).weights.dtype
    changed[node] = Row(tuple(sorted(weights)), np.array([weights[j] for j in sorted(weights)], dtype), diagonal)
    for j, weight in weights.items():
        heard = {**dict(zip(rows[j].hears, rows[j].weights, strict=True)), node: weight}
        changed[j] = Row(tuple(sorted(heard)), np.array([heard[k] for k in sorted(heard)], dtype), rows[j].diagonal)
    return changed


def without_node(rows: Mapping[int, Row], node: int) -> dict[int, Row]:
    """The rows of a network without one of its nodes."""
    if node not in rows or len(rows) == 1:
        raise ValueError(f"node must be one of {sorted(rows)}, and not the last one, got {node}")
    return {i: row.among({*row.hears} - {node}) for i, row in rows.items() if i != node}
