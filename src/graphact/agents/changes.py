"""A network that is changed while it runs: a new model, nodes added and removed, keys rotated.

Every change is a new epoch, with keys of its own. It is rolled out in two phases, by files in the folder of each node,
so that any tool that copies files can do it:

1. ``next/`` holds what the node is in the new epoch. Its agent reads it, checks it and writes ``next/prepared.json``.
2. When all have, ``next/commit.json`` names the run from which on the new epoch holds. An agent that was down then
   changes when it comes back; one that was not reached learns it from its neighbours, for nobody uses the keys of an
   epoch before it is committed.

Until the commit everything can be taken back: ``next/`` is removed, and nothing was changed. When the agent has
changed, it moves the files of ``next/`` into the folder, each of them atomically, and removes ``next/`` at last.
"""

import json
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from graphact.agents.addresses import FILE_NAME as ADDRESSES
from graphact.agents.addresses import Addresses
from graphact.agents.certificates import TLS_FOLDER
from graphact.agents.deployment import Deployment, check_folder, read_json
from graphact.agents.epochs import OVERLAP, Epochs
from graphact.agents.links import Links
from graphact.agents.node import Node
from graphact.agents.transports.base import Transport
from graphact.storage import one_line, write_atomically

WATCH_EVERY = 0.2
"""Seconds after which an agent looks for a change of its network."""
NEXT, PREPARED, COMMIT, REMOVED, BEGIN = "next", "prepared.json", "commit.json", "removed.json", "begin.json"


@dataclass(frozen=True)
class Staged:
    """The next epoch of a node; without a deployment it is removed from the network."""

    deployment: Deployment | None
    addresses: Addresses | None


class Changes:
    """The next epoch of one node, as its agent meets it in the folder of the node."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._next = folder, folder / NEXT

    @property
    def staged(self) -> tuple[int, int] | None:
        """What tells a change from the one before; None if there is none."""
        for name in ("node.json", REMOVED):
            with suppress(OSError):
                found = (self._next / name).stat()
                return found.st_ino, found.st_ctime_ns  # copies may keep the time of their content
        return None

    def load(self) -> Staged:
        """What the next epoch is; FileNotFoundError or ValueError if it is damaged, PermissionError if not private."""
        check_folder(self.folder)
        if (self._next / REMOVED).is_file():
            return Staged(None, None)
        deployment = Deployment.load(self._next)
        return Staged(deployment, Addresses.load(self._next, deployment.links.neighbors))

    def answer(self, **content: Any) -> None:
        """Tell whoever changes the network: ``digest``, ``origin`` and ``period`` if prepared, otherwise ``error``."""
        with suppress(OSError):  # taken back in this moment
            write_atomically(self._next / PREPARED, json.dumps(content).encode())

    @property
    def run(self) -> int | None:
        """From which run on the next epoch holds; None before it is committed, or while that is damaged."""
        try:
            return committed_run(self.folder)
        except (OSError, ValueError):
            return None

    def commit(self, run: int) -> None:
        write_atomically(self._next / COMMIT, json.dumps({"run": run}).encode())

    def finish(self) -> None:
        """Make the next epoch the one of the folder; may be repeated after a crash at any moment."""
        if not self._next.is_dir():
            return
        if not (self._next / REMOVED).is_file():
            for name in ("model.safetensors", "keys.json", ADDRESSES, "node.json"):
                mode = 0o600 if name == "keys.json" else 0o644
                write_private(self.folder / name, (self._next / name).read_bytes(), mode)
            if (self._next / TLS_FOLDER).is_dir():
                (self.folder / TLS_FOLDER).mkdir(mode=0o700, exist_ok=True)
                for file in (self._next / TLS_FOLDER).iterdir():
                    write_private(self.folder / TLS_FOLDER / file.name, file.read_bytes(), 0o600)
        remove_next(self.folder)


class Loading(threading.Thread):
    """Reads a change beside the runs of the agent: a model may be large, and the name of a host may be looked up."""

    def __init__(self, changes: Changes, transport: Transport) -> None:
        super().__init__(daemon=True)
        self._changes, self._transport = changes, transport
        self._loaded: Staged | OSError | ValueError | None = None
        self.start()

    def run(self) -> None:
        try:
            staged = self._changes.load()
            if staged.addresses is not None:
                self._transport.look_up(staged.addresses)
            self._loaded = staged
        except (OSError, ValueError) as error:
            self._loaded = error

    def result(self) -> Staged:
        """What was read, or the OSError or ValueError that was met."""
        if not isinstance(self._loaded, Staged):
            raise self._loaded or ValueError("the change could not be read")
        return self._loaded


def write_private(path: Path, content: bytes, mode: int) -> None:
    """Write a file that nobody reads before its mode is set, and that is never there in part."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def committed_run(folder: Path) -> int | None:
    """From which run on the next epoch of a folder holds, None if it is not committed; ValueError if damaged."""
    if not (folder / NEXT / COMMIT).is_file():
        return None
    run = read_json(folder / NEXT / COMMIT).get("run")
    if type(run) is not int or run < 0:
        raise ValueError(f"{folder / NEXT / COMMIT}: run must be a number, got {run!r}")
    return run


def remove_next(folder: Path) -> None:
    """Remove ``next/``; it is gone at once, and its files a moment later."""
    if (folder / NEXT).is_dir():
        gone = folder / f"{NEXT}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        (folder / NEXT).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def current_epoch(folder: Path, last_run: int) -> Deployment:
    """What the node of a folder is; the next epoch, if it took effect before its files were moved."""
    run = committed_run(folder)
    if run is not None and run <= last_run and not (folder / NEXT / REMOVED).is_file():
        Changes(folder).finish()
    return Deployment.load(folder)


def first_run(folder: Path) -> int:
    """The first run of a node that was added to a running network; 0 for others."""
    run = read_json(folder / BEGIN).get("run") if (folder / BEGIN).is_file() else 0
    if type(run) is not int:
        raise ValueError(f"{folder / BEGIN}: run must be a number, got {run!r}")
    return run


class Changeover:
    """How a running agent goes from one epoch to the next.

    Args:
        nodes: its node, in the epochs that it holds.
        deployment: what it is now.
        addresses: where its neighbours are now; None where no change ever arrives.
        changes: its folder; None likewise.
        transport: its end of the network.
        make_node: makes its node in another epoch.
        check: raises ValueError if the agent cannot go on with another deployment.
        about: what it answers to whoever changes the network, beside the digest.
        report: called with events.

    Attributes:
        deployment: what it is now.
        run: the run from which on the upcoming epoch holds; of the current one until the one before is forgotten.
    """

    def __init__(
        self,
        nodes: Epochs,
        deployment: Deployment,
        addresses: Addresses | None,
        changes: Changes | None,
        transport: Transport,
        *,
        make_node: Callable[[Deployment], Node],
        check: Callable[[Deployment], None],
        about: Mapping[str, float],
        report: Callable[[dict[str, Any]], None],
    ) -> None:
        self.deployment, self.run = deployment, cast("int | None", None)
        self._nodes, self._addresses, self._changes, self._transport = nodes, addresses, changes, transport
        self._make_node, self._check, self._about = make_node, check, about
        self._tell = lambda event, **more: report({"event": event, "node": deployment.node, **more})
        self._upcoming: tuple[Staged, Node | None] | None = None
        self._staged: tuple[int, int] | None = None
        self._loading: Loading | None = None
        self._finishing: threading.Thread | None = None
        self._looked = -math.inf

    def watch(self, now: float) -> None:
        """Look for a change, prepare it, and learn from which run on it holds; called often."""
        if self._changes is None or now < self._looked + WATCH_EVERY:
            return
        self._looked = now
        if self.run is not None and self._upcoming is None:
            self._settle(self._changes, self.run)
            return
        if (found := self._changes.staged) != self._staged:
            self._staged = found
            if self._upcoming is not None:
                self._take_back()
            if found is not None:
                self._loading = Loading(self._changes, self._transport)
        if self._loading is not None and not self._loading.is_alive():
            self._prepare(self._changes, self._loading)
            self._loading = None
        if self._upcoming is not None and self.run is None:
            node = self._upcoming[1]
            self.run = self._changes.run
            if self.run is None and node is not None and node.latest_heard >= 0:  # committed, and not told here
                self.run = max(node.latest_heard, self._nodes.current.run + 1)
                self._changes.commit(self.run)
            if self.run is not None:
                self._tell("committed", run=self.run)

    def _prepare(self, changes: Changes, loading: Loading) -> None:
        """Check that this node can change to the next epoch, which was read beside the runs, and tell."""
        digest, node = b"", None
        try:
            staged = loading.result()
            if staged.deployment is not None and staged.addresses is not None:
                new, old = staged.deployment.links, self.deployment.links
                if (new.node, new.network) != (old.node, old.network) or new.epoch == old.epoch:
                    raise ValueError(f"the change must be one of node {old.node} of this network, in another epoch")
                self._check(staged.deployment)
                node = self._make_node(staged.deployment)
                self._reach((staged.addresses, new))
                self._nodes.add(node)
                digest = node.digest
        except (OSError, ValueError) as error:
            changes.answer(error=one_line(error))
            self._tell("refused", neighbor=self.deployment.node, reason=f"a change: {one_line(error)}")
            return
        self._upcoming = staged, node
        changes.answer(digest=digest.hex(), **self._about)
        self._tell("prepared", epoch=None if node is None else node.links.epoch_name)

    def _reach(self, *others: tuple[Addresses, Links]) -> None:
        """Have the neighbours of other epochs beside the current ones."""
        if self._addresses is not None:
            self._transport.reach((self._addresses, self.deployment.links), *others)

    def _take_back(self) -> None:
        """Forget an upcoming epoch: nothing was changed."""
        assert self._upcoming is not None
        self._nodes.forget(node for node in [self._upcoming[1]] if node is not None)
        self._upcoming = self.run = None
        self._reach()
        self._tell("taken back")

    def follow(self, run: int) -> bool:
        """Go on in the upcoming epoch, if it holds in this run; False if this node is no part of it."""
        if self._upcoming is None or self.run is None or run < self.run or self._changes is None:
            return True
        (staged, node), before = self._upcoming, (self._addresses, self.deployment.links)
        if staged.deployment is None or staged.addresses is None or node is None:
            self._changes.finish()
            return False
        if (self._changes.folder / NEXT / TLS_FOLDER).is_dir():
            self._changes.finish()  # certificates must be there when links are opened
        self._nodes.switch(node)
        self.deployment, self._addresses, self._upcoming = staged.deployment, staged.addresses, None
        self._reach(*([] if before[0] is None else [(before[0], before[1])]))
        self._tell("changed", run=self.run, epoch=node.links.epoch_name)
        return True

    def _settle(self, changes: Changes, run: int) -> None:
        """After a run of a new epoch write its files, beside the next runs; some runs later forget the one before."""
        here = self._nodes.current.run
        if self._finishing is None and here >= run:
            self._finishing = threading.Thread(target=changes.finish)
            self._finishing.start()
        elif self._finishing is not None and not self._finishing.is_alive() and here >= run + OVERLAP:
            self._nodes.forget(self._nodes.others)
            self._reach()
            self.run = self._finishing = None
