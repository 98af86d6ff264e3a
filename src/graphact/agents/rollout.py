"""What operators do to change a running network: the next epoch of all nodes, prepared, committed or taken back.

See :mod:`graphact.agents.renewal` for what the epoch is, :mod:`graphact.agents.changes` for the files, and
:mod:`graphact.agents.changeover` for what agents do with them.
"""

import json
import math
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from graphact.agents.addresses import Address, Addresses
from graphact.agents.certificates import TLS_FOLDER, make_certificates
from graphact.agents.changes import (
    BEGIN,
    CHANGE,
    COMMIT,
    NEXT,
    PREPARED,
    REMOVED,
    Changes,
    encode_order,
    order_key_of,
    remove_next,
)
from graphact.agents.deployment import Deployment, read_json
from graphact.agents.links import Row
from graphact.agents.log import last_run
from graphact.agents.orders import OrderKey
from graphact.storage import write_atomically

STALE = 3600.0
"""Seconds after which what a killed command has begun to write is removed."""


class ChangeError(ValueError):
    """A change that did not come about as it should, and why.

    Attributes:
        run: the run from which on it holds all the same; None if the network is as it was.
    """

    def __init__(self, reason: str, run: int | None = None) -> None:
        super().__init__(reason)
        self.run = run


class Network:
    """All folders of a network, ``node-0`` and so on, as an operator reaches them.

    Raises:
        FileNotFoundError, ValueError: folders or files are missing or damaged.
        ChangeError: another change is under way (if it is committed at one node, all are told), a folder is of a node
            that was removed, or folders are of different epochs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folders = {int(f.name[5:]): f for f in folder.glob("node-*") if f.name[5:].isdecimal() and f.is_dir()}
        if not self.folders:
            raise FileNotFoundError(f"{folder} holds no folders of nodes, node-0 and so on")
        self._check_no_other_change()  # first: while files are moved, those of two epochs are side by side
        self.deployments = {i: Deployment.load(f) for i, f in sorted(self.folders.items())}
        self.addresses = {i: Addresses.load(f, self.deployments[i].links.neighbors) for i, f in self.folders.items()}
        linked = {j for each in self.deployments.values() for j in each.links.neighbors}
        if missing := sorted(linked - {*self.folders}):
            raise FileNotFoundError(f"{folder} must hold the folders of all nodes, and those of {missing} are missing")
        epochs: dict[str, list[int]] = {}
        for i, each in self.deployments.items():
            epochs.setdefault(each.links.epoch_name, []).append(i)
        if len(epochs) > 1:
            found = ", ".join(f"nodes {nodes} in {name}" for name, nodes in epochs.items())
            raise ChangeError(
                f"{folder} must hold the folders of one epoch, those of the nodes as they are, got {found}"
            )

    def _check_no_other_change(self) -> None:
        """Raise if a change is under way, or a node was removed; tell all nodes an order that one of them has."""
        if removed := sorted(i for i, f in self.folders.items() if (f / REMOVED).exists()):
            advice = f"delete the folders of the nodes {removed}, which are removed"
            raise ChangeError(f"{self.folder} must hold the nodes of the network and no others; {advice}")
        changed = {i: Changes(f) for i, f in sorted(self.folders.items()) if (f / NEXT).exists()}
        if not changed:
            return
        orders = {order_key_of(self.folders[i]): each.order for i, each in changed.items() if each.order is not None}
        for i, each in changed.items():  # whoever committed it was interrupted
            with suppress(OSError, ValueError):
                order = orders.get(order_key_of(self.folders[i]))
                if order is not None and each.order is None:
                    each.commit(order)
        run = next((order.run for order in orders.values() if order is not None), None)
        state = (
            f"it is committed, from run {run} on" if orders else "it is not committed, and can be removed everywhere"
        )
        names = f"nodes {sorted(changed)}" if len(changed) > 1 else f"node {next(iter(changed))}"
        raise ChangeError(f"another change of {names} is under way; {NEXT}/ of each folder holds it, {state}", run)

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
            ChangeError: a node is not prepared in time, or cannot be, or nodes differ: the change is taken back. Or it
                is committed, with its ``run``, and nodes were not told or have not changed in time.
        """
        rollout = Rollout(self, renewed, {**self.places, **(listen or {})})
        waiting = {*self.deployments} - {*absent}
        try:
            rollout.stage()
            tell(f"staged at {len(self.folders)} nodes")
            origin, period = rollout.wait_until_prepared(waiting, timeout)
            if period:
                run = math.ceil((time.time() + lead - origin) / period)
            else:
                run = lead_runs + max(last_run(self.folders[i]) for i in self.deployments)
            rollout.add_nodes(run)
            untold = rollout.commit(run)
        except BaseException:
            rollout.take_back()
            raise
        tell(f"committed: it holds from run {run} on")
        if untold:
            they = "they learn it from their neighbours, unless they are removed"
            raise ChangeError(f"committed from run {run} on, but the nodes {sorted(untold)} were not told; {they}", run)
        rollout.wait_until_changed(waiting, timeout + lead)
        return run


class Rollout:
    """One change of a network: what is written, and how it is taken back.

    Args:
        network: as it is.
        renewed: what each node is then.
        places: where each node is reached.
    """

    def __init__(self, network: Network, renewed: Mapping[int, Deployment], places: Mapping[int, Address]) -> None:
        self._network, self._renewed, self._places = network, renewed, places
        self.removed = sorted({*network.deployments} - {*renewed})
        self.added = sorted({*renewed} - {*network.deployments})
        self.key = OrderKey()
        self._suffix = f".new-{secrets.token_hex(4)}"  # two commands at once do not write into one folder
        self._run: int | None = None  # from which on it holds, once a node was told
        self._placed: list[Path] = []  # folders of new nodes

    def _made(self, i: int) -> Path:
        """Where the files of a node are written, before they are put in their place as a whole."""
        folders, place = self._network.folders, self._network.folder / f"node-{i}"
        return folders[i] / f"{NEXT}{self._suffix}" if i in folders else place.with_name(f"{place.name}{self._suffix}")

    def stage(self) -> None:
        """Write ``next/`` of all nodes, each as a whole; OSError or ValueError if that is not possible."""
        network = self._network
        self._remove_stale()
        for i in self.removed:
            self._made(i).mkdir(mode=0o755)
            (self._made(i) / REMOVED).write_text("{}")
        for i, deployment in self._renewed.items():
            deployment.save(self._made(i))
            own = self._places[i] if i in self.added else network.addresses[i].listen
            Addresses(own, {j: self._places[j] for j in deployment.links.neighbors}).save(self._made(i))
        if self.added and any((folder / TLS_FOLDER).is_dir() for folder in network.folders.values()):
            numbers = sorted(self._renewed)  # all of them: the authority of the others is forgotten
            make_certificates([self._made(i) for i in numbers], [self._places[i].host for i in numbers], numbers)
        for i in network.deployments:
            (self._made(i) / CHANGE).write_text(json.dumps({"key": self.key.public.hex()}))
        for i in network.deployments:
            try:
                self._made(i).rename(network.folders[i] / NEXT)
            except OSError as error:
                raise ChangeError(f"another change of node {i} is under way; nothing was changed") from error

    def _remove_stale(self) -> None:
        """Remove what commands that were killed have left."""
        old = time.time() - STALE
        places = [*self._network.folder.glob("node-*.new-*")]
        places += [place for folder in self._network.folders.values() for place in folder.glob(f"{NEXT}.new-*")]
        for place in places:
            with suppress(OSError):
                if place.stat().st_mtime < old:
                    shutil.rmtree(place, ignore_errors=True)

    def take_back(self) -> None:
        """Remove what this change has written, and nothing of another; nothing if a node was told that it holds."""
        if self._run is not None:
            return
        for i in {*self._network.deployments, *self.added}:
            shutil.rmtree(self._made(i), ignore_errors=True)
        for folder in self._placed:
            shutil.rmtree(folder, ignore_errors=True)
        for folder in self._network.folders.values():
            with suppress(OSError, ValueError):
                if order_key_of(folder) == self.key.public:
                    remove_next(folder)

    def wait_until_prepared(self, nodes: set[int], timeout: float) -> tuple[float, float]:
        """Wait for all nodes; origin and period of their runs."""
        until, answers = time.monotonic() + timeout, dict[int, tuple[str, float, float]]()
        while len(answers) < len(nodes):
            for i in sorted(nodes - {*answers}):
                if (answer := self._read_answer(i)) is not None:
                    answers[i] = answer
            if len(answers) < len(nodes) and time.monotonic() > until:
                missing = sorted(nodes - {*answers})
                raise ChangeError(f"the nodes {missing} did not answer within {timeout:g} s; nothing was changed")
            time.sleep(0.02)
        digests = {digest for digest, _, _ in answers.values() if digest}  # those that are removed have none
        schedules = {(origin, period) for _, origin, period in answers.values()}
        if len(digests) > 1 or len(schedules) > 1:
            raise ChangeError("nodes differ in their settings, slot, period, origin or dynamic; nothing was changed")
        return next(iter(schedules), (0.0, 0.0))

    def _read_answer(self, i: int) -> tuple[str, float, float] | None:
        """Digest, origin and period of a node that is prepared; None if it has not answered to this change."""
        file = self._network.folders[i] / NEXT / PREPARED
        if not file.is_file():
            return None
        answer = read_json(file)
        if answer.get("change", self.key.public.hex()) != self.key.public.hex():
            return None
        if answer.get("error"):
            raise ChangeError(f"node {i} cannot change: {answer['error']}; nothing was changed")
        digest, origin, period = answer.get("digest"), answer.get("origin", ""), answer.get("period", "")
        if not isinstance(digest, str) or not all(type(number) in (int, float) for number in (origin, period)):
            raise ChangeError(f"{file}: not the answer of an agent; nothing was changed")
        return digest, float(origin), float(period)

    def add_nodes(self, run: int) -> None:
        """Put the folders of new nodes in their places; they wait for the run of the change."""
        for i in self.added:
            made, place = self._made(i), self._network.folder / f"node-{i}"
            write_atomically(made / BEGIN, json.dumps({"run": run}).encode())
            write_atomically(made / COMMIT, encode_order(self.key.sign(run)))
            made.rename(place)
            self._placed.append(place)

    def commit(self, run: int) -> set[int]:
        """Give the order; those that it did not reach, and who learn it from the others."""
        order, untold = self.key.sign(run), set[int]()
        interrupted: BaseException | None = None
        for i in (*self.removed, *sorted({*self._network.deployments} - {*self.removed})):
            changes = Changes(self._network.folders[i])
            try:
                changes.commit(order)
            except (OSError, ValueError):  # a mount that broke, a folder that was removed
                pass
            except BaseException as error:  # Ctrl-C: those that were told would change alone for a while
                interrupted = error
            if changes.order == order:
                self._run = run
            else:
                untold.add(i)
            if interrupted is not None and self._run is None:
                raise interrupted
        if self._run is None:
            raise ChangeError("no node could be told; nothing was changed")
        if interrupted is not None:
            raise ChangeError(f"interrupted when it was committed; it holds from run {run} on", run) from interrupted
        return untold

    def wait_until_changed(self, nodes: set[int], timeout: float) -> None:
        """Wait for all nodes; ChangeError if some have not changed in time."""
        until, folders = time.monotonic() + timeout, self._network.folders
        while left := sorted(i for i in nodes if (folders[i] / NEXT).exists()):
            if time.monotonic() > until:
                late = f"the nodes {left} have not changed yet; they do when they come back"
                raise ChangeError(f"committed from run {self._run} on, but {late}", self._run)
            time.sleep(0.02)
