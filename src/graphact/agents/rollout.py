"""What operators do to change a running network: the next epoch of all nodes, prepared, committed or taken back.

See :mod:`graphact.agents.changes` for the files, and for what agents do with them.
"""

import json
import math
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from graphact.agents.addresses import Address, Addresses
from graphact.agents.certificates import TLS_FOLDER, can_make_certificates, make_certificates
from graphact.agents.changes import BEGIN, NEXT, PREPARED, REMOVED, Changes, committed_run, remove_next
from graphact.agents.deployment import Deployment, read_json
from graphact.agents.links import Links, Row
from graphact.agents.log import read_end
from graphact.agents.messages import KEY_BYTES, link_key
from graphact.agents.model import Model
from graphact.storage import write_atomically


class ChangeError(ValueError):
    """A change that did not come about, and why; the network is as it was."""


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
        >>> from graphact.agents.rollout import renew
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


class Network:
    """All folders of a network, ``node-0`` and so on, as an operator reaches them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folders = {int(f.name[5:]): f for f in folder.glob("node-*") if f.name[5:].isdecimal() and f.is_dir()}
        if not self.folders:
            raise FileNotFoundError(f"{folder} holds no folders of nodes, node-0 and so on")
        self.deployments = {i: Deployment.load(f) for i, f in sorted(self.folders.items())}
        self.addresses = {i: Addresses.load(f, self.deployments[i].links.neighbors) for i, f in self.folders.items()}
        linked = {j for each in self.deployments.values() for j in each.links.neighbors}
        if missing := sorted(linked - {*self.folders}):
            raise FileNotFoundError(f"{folder} must hold the folders of all nodes, and those of {missing} are missing")
        for i, other in self.folders.items():
            if (other / NEXT).exists():
                raise ChangeError(f"another change of node {i} is under way; {other / NEXT} holds it")

    @property
    def rows(self) -> dict[int, Row]:
        return {i: each.row for i, each in self.deployments.items()}

    @property
    def places(self) -> dict[int, Address]:
        """Where each node is reached by its neighbours; where it listens, if it has none."""
        found = {i: each.listen for i, each in self.addresses.items()}
        for each in self.addresses.values():
            found |= each.neighbors
        return found

    def change(
        self,
        renewed: Mapping[int, Deployment],
        *,
        listen: Mapping[int, Address] | None = None,
        absent: Sequence[int] = (),
        timeout: float = 30.0,
        lead: float = 2.0,
        lead_runs: int = 100,
        tell: Callable[[str], object] = str,
    ) -> int:
        """Bring a network into a new epoch, at one run for all; the run.

        Args:
            renewed: what each node is then; those that are missing are removed, new ones added.
            listen: addresses of new nodes.
            absent: nodes that are down and are not waited for; they change when they come back.
            timeout: seconds for all agents to prepare, and again to change.
            lead: seconds from the commit to the run of the change, with a clock; all must have the commit by then.
            lead_runs: without a clock, runs.
            tell: called with what is going on.

        Raises:
            ChangeError: a node is not prepared in time, or cannot be, or nodes differ; the change is taken back.
        """
        places = {**self.places, **(listen or {})}
        removed, added = sorted({*self.deployments} - {*renewed}), sorted({*renewed} - {*self.deployments})
        waiting = {*self.deployments} - {*absent}
        try:
            self._stage(renewed, places, removed, added)
            tell(f"staged at {len(self.folders)} nodes")
            origin, period = self._wait_until_prepared(waiting, timeout)
        except BaseException:
            for i in self.deployments:
                if committed_run(self.folders[i]) is None:
                    remove_next(self.folders[i])
            for i in added:
                shutil.rmtree(self.folder / f"node-{i}", ignore_errors=True)
            raise
        if period:
            run = math.ceil((time.time() + lead - origin) / period)
        else:
            run = lead_runs + max(last_run(self.folders[i]) for i in self.deployments)
        for i in added:
            write_atomically(self.folder / f"node-{i}" / BEGIN, json.dumps({"run": run}).encode())
        for i in self.deployments:
            Changes(self.folders[i]).commit(run)
        tell(f"committed: it holds from run {run} on")
        self._wait_until_changed(waiting, timeout + lead)
        return run

    def _stage(
        self,
        renewed: Mapping[int, Deployment],
        places: Mapping[int, Address],
        removed: Sequence[int],
        added: Sequence[int],
    ) -> None:
        """Write ``next/`` of all nodes, and the folders of new ones, each of them as a whole."""
        made = {}
        for i in removed:
            made[i] = self.folders[i] / f"{NEXT}.new"
            shutil.rmtree(made[i], ignore_errors=True)
            made[i].mkdir(mode=0o755)
            (made[i] / REMOVED).write_text("{}")
        for i, deployment in renewed.items():
            made[i] = self.folder / f"node-{i}" if i in added else self.folders[i] / f"{NEXT}.new"
            shutil.rmtree(made[i], ignore_errors=True)
            deployment.save(made[i])
            own = places[i] if i in added else self.addresses[i].listen
            Addresses(own, {j: places[j] for j in deployment.links.neighbors}).save(made[i])
        encrypted = any((folder / TLS_FOLDER).is_dir() for folder in self.folders.values())
        if added and encrypted and can_make_certificates():  # the authority of the others is forgotten
            numbers = sorted(renewed)
            make_certificates([made[i] for i in numbers], [places[i].host for i in numbers], numbers)
        for i in self.deployments:
            made[i].rename(self.folders[i] / NEXT)

    def _wait_until_prepared(self, nodes: set[int], timeout: float) -> tuple[float, float]:
        """Wait for all nodes; origin and period of their runs."""
        until, answers = time.monotonic() + timeout, dict[int, dict[str, Any]]()
        while len(answers) < len(nodes):
            for i in sorted(nodes - {*answers}):
                file = self.folders[i] / NEXT / PREPARED
                if file.is_file():
                    answer = read_json(file)
                    if answer.get("error"):
                        raise ChangeError(f"node {i} cannot change: {answer['error']}; nothing was changed")
                    answers[i] = answer
            if len(answers) < len(nodes) and time.monotonic() > until:
                missing = sorted(nodes - {*answers})
                raise ChangeError(f"the nodes {missing} did not answer within {timeout:g} s; nothing was changed")
            time.sleep(0.02)
        if len({answer["digest"] for answer in answers.values() if answer["digest"]}) > 1:
            raise ChangeError("nodes differ in their settings, slot, period or origin; nothing was changed")
        first = next(iter(answers.values()), {"origin": 0.0, "period": 0.0})
        return first["origin"], first["period"]

    def _wait_until_changed(self, nodes: set[int], timeout: float) -> None:
        until = time.monotonic() + timeout
        while left := sorted(i for i in nodes if (self.folders[i] / NEXT).exists()):
            if time.monotonic() > until:
                raise ChangeError(f"committed, but the nodes {left} have not changed yet; they do when they come back")
            time.sleep(0.02)


def last_run(folder: Path) -> int:
    """The run that the log of a folder has reached, -1 without one."""
    for name in ("log.jsonl", "log.jsonl.1"):
        if (folder / name).is_file():
            with suppress(ValueError):
                records, _ = read_end(folder / name, repair=False)
                if records:
                    return max(record.run for record in records)
    return -1
