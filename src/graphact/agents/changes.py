"""A network that is changed while it runs: a new model, nodes added and removed, keys rotated.

Every change is a new epoch, with keys of its own. It is rolled out in two phases, by files in the folder of each node,
so that any tool that copies files can do it:

1. ``next/`` holds what the node is in the new epoch, and the public key of the order to come. Its agent reads it,
   checks it and writes ``next/prepared.json``.
2. When all have, ``next/commit.json`` is the operator's order: the run from which on the new epoch holds, signed
   (:mod:`graphact.agents.orders`). An agent that was down then changes when it comes back. Agents pass the order on to
   their neighbours in the new epoch, so that one that was not reached learns it all the same; whoever passes it on can
   neither make nor alter it, and the use of the new keys alone commits nothing.

Until the commit everything can be taken back: ``next/`` is removed, and nothing was changed. When the agent has
changed, it moves the files of ``next/`` into the folder, each of them atomically, and removes ``next/`` at last;
``next/moving.json`` is there from the first file to the last, so that whatever happens meanwhile, the next start goes
on with it. ``removed.json`` then stays in the folder of a node that was removed, and keeps it from starting again.

:mod:`graphact.agents.changeover` is what an agent does with them, :mod:`graphact.agents.rollout` what an operator does.
"""

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from graphact.agents.addresses import FILE_NAME as ADDRESSES
from graphact.agents.addresses import Addresses
from graphact.agents.certificates import TLS_FOLDER
from graphact.agents.deployment import Deployment, check_folder, read_json
from graphact.agents.orders import PUBLIC_BYTES, Order
from graphact.storage import sync, write_private

NEXT, CHANGE, PREPARED, COMMIT = "next", "change.json", "prepared.json", "commit.json"
MOVING, REMOVED, BEGIN = "moving.json", "removed.json", "begin.json"
REMOVED_CODE = 3
"""The exit code of the agent of a node that was removed: nobody should start it again."""


class RemovedError(ValueError):
    """The folder is that of a node that was removed from its network."""


@dataclass(frozen=True)
class Staged:
    """The next epoch of a node, and the public key of the order for it.

    Without a deployment the node is removed from the network; without addresses its transport has them (simulations).
    """

    deployment: Deployment | None
    addresses: Addresses | None
    order_key: bytes


class ChangeStore(Protocol):
    """What becomes of a node, where its agent meets it; it outlives the agent."""

    @property
    def staged(self) -> object:
        """What tells a change from the one before; None if there is none."""

    @property
    def order(self) -> Order | None:
        """The order that the staged epoch holds from a run on; None before it is committed, or while it is damaged."""

    def has_order_for(self, run: int) -> bool:
        """Whether there is an order for this run or one before, of the operator or not; quick."""

    @property
    def own_order(self) -> Order | None:
        """The order by which the epoch of the node holds, for neighbours that missed it; None if it is not known."""

    @property
    def is_moving(self) -> bool:
        """Whether :meth:`finish` has begun and not ended."""

    @property
    def brings_certificates(self) -> bool:
        """Whether the staged epoch has certificates of its own."""

    def load(self) -> Staged:
        """What the next epoch is; OSError or ValueError if it is damaged, PermissionError if not private."""

    def answer(self, staged: Staged | None, **content: Any) -> None:
        """Tell whoever changes the network: ``digest``, ``origin`` and ``period`` if prepared, otherwise ``error``."""

    def commit(self, order: Order) -> None:
        """Keep the order for the staged epoch; OSError or ValueError if that is not there, or is another one."""

    def finish(self) -> None:
        """Make the staged epoch the one of the node; may be repeated after a crash at any moment."""

    def begun(self) -> None:
        """A node that was added has begun its first run, and waits for none any more."""


class Changes:
    """The next epoch of one node, as files in its folder; a :class:`ChangeStore`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._next = folder, folder / NEXT

    @property
    def staged(self) -> tuple[int, int] | None:
        for name in ("node.json", REMOVED):
            with suppress(OSError):
                found = (self._next / name).stat()
                return found.st_ino, found.st_ctime_ns  # copies may keep the time of their content
        return None

    @property
    def order(self) -> Order | None:
        try:
            return committed_order(self.folder)
        except (OSError, ValueError):
            return None

    def has_order_for(self, run: int) -> bool:
        try:
            return read_order(self._next / COMMIT).run <= run
        except (OSError, ValueError):
            return False

    @property
    def own_order(self) -> Order | None:
        try:
            return read_order(self.folder / COMMIT)
        except (OSError, ValueError):
            return None

    @property
    def is_moving(self) -> bool:
        return (self._next / MOVING).is_file()

    @property
    def is_removal(self) -> bool:
        return (self._next / REMOVED).is_file()

    @property
    def brings_certificates(self) -> bool:
        return (self._next / TLS_FOLDER).is_dir()

    def load(self) -> Staged:
        check_folder(self.folder)
        key = order_key_of(self.folder)
        if self.is_removal:
            return Staged(None, None, key)
        deployment = Deployment.load(self._next)
        return Staged(deployment, Addresses.load(self._next, deployment.links.neighbors), key)

    def answer(self, staged: Staged | None, **content: Any) -> None:
        """Nothing is written, and no folder made, if ``next/`` was taken back meanwhile.

        The disk is not waited for: an agent that starts again answers again.
        """
        change = {} if staged is None else {"change": staged.order_key.hex()}
        if self.staged is not None:
            with suppress(OSError):  # taken back in this moment
                write_private(self._next / PREPARED, json.dumps(change | content).encode(), 0o644, lasting=False)

    def commit(self, order: Order) -> None:
        if not order.is_signed(order_key_of(self.folder)):
            raise ValueError(f"{self._next}: the order must be the one for this change")
        write_private(self._next / COMMIT, encode_order(order), 0o644)
        sync(self._next)

    def finish(self) -> None:
        if not self._next.is_dir():
            return
        for file in self._next.rglob("*"):  # whoever staged it did not wait for the disk
            sync(file)
        write_private(self._next / MOVING, b"{}", 0o644)
        sync(self._next)  # from here on the next start goes on, whatever else is lost
        if self.is_removal:
            write_private(self.folder / REMOVED, b"{}", 0o644)
        else:
            (self.folder / COMMIT).unlink(missing_ok=True)  # of the epoch before
            optional = [COMMIT] if (self._next / COMMIT).is_file() else []
            for name in ("model.safetensors", "keys.json", ADDRESSES, "node.json", *optional):
                mode = 0o600 if name == "keys.json" else 0o644
                write_private(self.folder / name, (self._next / name).read_bytes(), mode)
            if self.brings_certificates:
                (self.folder / TLS_FOLDER).mkdir(mode=0o700, exist_ok=True)
                for file in sorted((self._next / TLS_FOLDER).iterdir()):
                    write_private(self.folder / TLS_FOLDER / file.name, file.read_bytes(), 0o600)
                sync(self.folder / TLS_FOLDER)
        sync(self.folder)
        remove_next(self.folder)

    def begun(self) -> None:
        with suppress(OSError):
            (self.folder / BEGIN).unlink(missing_ok=True)


class MemoryChanges:
    """What becomes of one node, on a disk that outlives it: a :class:`~graphact.agents.changes.ChangeStore`."""

    def __init__(self, deployment: Deployment | None) -> None:
        self.deployment = deployment
        self.own_order: Order | None = None
        self.next: Staged | None = None
        self.order: Order | None = None
        self.first = 0

    @property
    def staged(self) -> Staged | None:
        return self.next

    is_moving = brings_certificates = False

    def has_order_for(self, run: int) -> bool:
        return self.order is not None and self.order.run <= run

    def stage(self, deployment: Deployment | None, key: bytes) -> None:
        """What an operator writes."""
        self.next, self.order = Staged(deployment, None, key), None

    def take_back(self, key: bytes) -> None:
        if self.next is not None and self.next.order_key == key:
            self.next = None

    def load(self) -> Staged:
        assert self.next is not None
        return self.next

    def answer(self, staged: Staged | None, **content: Any) -> None:
        """The simulated operator knows."""

    def commit(self, order: Order) -> None:
        if self.next is not None and order.is_signed(self.next.order_key):
            self.order = order

    def finish(self) -> None:
        if self.next is not None:
            self.deployment, self.own_order = self.next.deployment, self.order
            self.next = self.order = None

    def begun(self) -> None:
        self.first = 0


def order_key_of(folder: Path) -> bytes:
    """The public key of the order for the next epoch of a folder; FileNotFoundError or ValueError if there is none."""
    path = folder / NEXT / CHANGE
    return bytes_of(path, read_json(path).get("key"), PUBLIC_BYTES)


def bytes_of(path: Path, written: object, size: int | None = None) -> bytes:
    """Bytes that a file holds in hexadecimal."""
    try:
        found = bytes.fromhex(written) if isinstance(written, str) else b""
    except ValueError:
        found = b""
    if not found or size not in (None, len(found)):
        raise ValueError(f"{path}: damaged: it must hold bytes in hexadecimal, got {written!r:.60}")
    return found


def encode_order(order: Order) -> bytes:
    """The content of a file with an order."""
    return json.dumps({"run": order.run, "signature": order.signature.hex()}).encode()


def read_order(path: Path) -> Order:
    """The order in a file; ValueError if it is none."""
    content = read_json(path)
    run = content.get("run")
    if type(run) is not int or run < 0:
        raise ValueError(f"{path}: run must be a number, got {run!r}")
    return Order(run, bytes_of(path, content.get("signature")))


def committed_order(folder: Path) -> Order | None:
    """The order for the next epoch of a folder, None if it is not committed; ValueError if it is damaged."""
    path = folder / NEXT / COMMIT
    if not path.is_file():
        return None
    order = read_order(path)
    if not order.is_signed(order_key_of(folder)):
        raise ValueError(f"{path}: its signature is not that of the operator who staged the change")
    return order


def remove_next(folder: Path) -> None:
    """Remove ``next/``; it is gone at once, and its files a moment later."""
    if (folder / NEXT).is_dir():
        gone = folder / f"{NEXT}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        (folder / NEXT).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def current_epoch(folder: Path, last_run: int) -> Deployment:
    """What the node of a folder is; the next epoch, if it took effect before its files were moved.

    Raises:
        RemovedError: the node was removed from its network.
        FileNotFoundError, ValueError: files are missing or damaged.
    """
    changes = Changes(folder)
    if not changes.is_moving:
        committed_order(folder)  # raises if it is damaged
    resume(changes, last_run)
    if (folder / REMOVED).is_file():
        raise RemovedError(f"{folder}: this node was removed from its network; delete the folder")
    return Deployment.load(folder)


def resume(changes: ChangeStore, last_run: int) -> None:
    """At a start: go on with files that were being moved, or that belong to runs that this node has logged."""
    if changes.is_moving or (changes.order is not None and changes.order.run <= last_run):
        changes.finish()


def first_run(folder: Path) -> int:
    """The first run of a node that was added to a running network, until it has begun it; 0 for others."""
    run = read_json(folder / BEGIN).get("run") if (folder / BEGIN).is_file() else 0
    if type(run) is not int:
        raise ValueError(f"{folder / BEGIN}: run must be a number, got {run!r}")
    return run
