"""Results on disk. A cell is one file, written whole or not at all, so a killed run loses at most a running cell."""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from graphact.storage import check_writable, reason_of, write_atomically

Row = dict[str, Any]

PACKED = ".json.gz"
LARGEST_FILE = 2**28  # bytes; compressed files can promise any number of them


class StoreError(RuntimeError):
    """The folder of results cannot be used; the message says why in one line."""


class Store:
    """A folder of results: ``rows/`` (a JSON file a cell), ``checkpoints/`` (half-finished cells), ``run.json``.

    Packed results have compressed rows; they are read, and gone on with, like others.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self, command: str) -> None:
        """Make the folder and note the command; a folder that several commands filled knows them all."""
        try:
            check_writable(self.directory)
            for name in ("rows", "checkpoints"):
                (self.directory / name).mkdir(parents=True, exist_ok=True)
            with self.claim("run", wait=True):  # commands are read and then written
                commands = self.commands() if self.run_file.exists() else []
                if command not in commands:
                    write_atomically(self.run_file, json.dumps({"commands": [*commands, command]}, indent=2).encode())
        except OSError as error:
            raise StoreError(reason_of(error).replace("cannot write", "cannot write results", 1)) from error

    @property
    def run_file(self) -> Path:
        return self.directory / "run.json"

    def commands(self) -> list[str]:
        """The commands that filled the folder."""
        note = _read_json(self.run_file)
        commands = note.get("commands") if isinstance(note, dict) else None
        if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
            raise StoreError(f"{self.run_file} is damaged (no list of commands); delete it and run again")
        return commands

    def is_finished(self, key: str) -> bool:
        return self._rows_file(key).exists() or self._rows_file(key).with_suffix(PACKED).exists()

    def finish(self, key: str, rows: list[Row]) -> None:
        """Write the rows of a cell; its checkpoint is of no more use."""
        write_atomically(self._rows_file(key), json.dumps(rows, indent=1).encode())
        self.checkpoint(key).unlink(missing_ok=True)

    def checkpoint(self, key: str) -> Path:
        """Where a half-finished cell is kept."""
        return self.directory / "checkpoints" / f"{key}.safetensors"

    def rows(self) -> list[Row]:
        """All rows of all finished cells, in the order of their keys."""
        files = self._finished()
        if not files:
            raise StoreError(f"no results in {self.directory}: expected files under {self.directory / 'rows'}")
        return [row for file in files for row in _read_rows(file)]

    def first_rows(self) -> list[Row]:
        """One row of each finished cell; none where there is no cell yet."""
        return [_read_rows(file)[0] for file in self._finished()]

    def pack(self) -> None:
        """Compress the rows, always to the same bytes, and remove the folder of checkpoints if it holds none."""
        for file in sorted((self.directory / "rows").glob("*.json")):
            rows = json.dumps(_read_rows(file), separators=(",", ":")).encode()
            write_atomically(file.with_suffix(PACKED), gzip.compress(rows, mtime=0))
            file.unlink(missing_ok=True)
        checkpoints = self.directory / "checkpoints"
        for lock in checkpoints.glob("*.lock"):
            with self.claim(lock.stem):
                pass  # one that nobody holds is removed
        if checkpoints.is_dir() and not any(checkpoints.iterdir()):
            checkpoints.rmdir()

    @contextmanager
    def claim(self, key: str, *, wait: bool = False) -> Iterator[bool]:
        """Hold a cell while working on it; yield False if another process holds it, or wait. Death releases it.

        The lock file is removed while it is held, and filelock notices if that happens between opening and locking it.
        Windows removes no file that is open; there, filelock removes it afterwards.
        """
        path = self.directory / "checkpoints" / f"{key}.lock"
        path.parent.mkdir(exist_ok=True)  # packing may have removed it
        lock = FileLock(path)
        try:
            lock.acquire(blocking=wait)
        except Timeout:
            yield False
            return
        try:
            yield True
            with suppress(PermissionError):
                path.unlink(missing_ok=True)
        finally:
            lock.release()

    def _finished(self) -> list[Path]:
        files = [file for suffix in (PACKED, ".json") for file in (self.directory / "rows").glob(f"*{suffix}")]
        found = {file.name.split(".")[0]: file for file in files}
        return [found[key] for key in sorted(found)]

    def _rows_file(self, key: str) -> Path:
        return self.directory / "rows" / f"{key}.json"


def _read_rows(path: Path) -> list[Row]:
    rows = _read_json(path)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise StoreError(f"{path} is damaged (no list of rows); delete it and run again")
    return rows


def _read_json(path: Path) -> Any:
    try:
        with gzip.open(path) if path.name.endswith(PACKED) else path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ValueError(f"it holds more than {LARGEST_FILE} bytes")
        return json.loads(content)
    except FileNotFoundError as error:
        raise StoreError(f"{path.parent} is no folder of results: {path.name} is missing") from error
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise StoreError(f"{path} is damaged ({error}); delete it and run again") from error
