"""Results on disk. A cell is one file, written whole or not at all, so a killed run loses at most a running cell.

Published results hold all cells in one Parquet file.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from graphact._checks import UserError
from graphact._extras import require
from graphact._lazy import Imported
from graphact.storage import check_writable, reason_of, write_atomically

Row = dict[str, Any]

ROWS, PUBLISHED = "rows", "rows.parquet"
MAX_FILE_BYTES = 2**28
MISSING = (FileNotFoundError, NotADirectoryError)
ENCODE_CELLS, DECODE_CELLS, DECODE_KEYS = (
    Imported(f"graphact_lab.parquet:{name}") for name in ("encode_cells", "decode_cells", "decode_keys")
)


class StoreError(UserError):
    """The folder of results cannot be used; the message says why in one line."""


class Store:
    """A folder of results: ``rows/`` (a JSON file a cell), ``checkpoints/`` (half-finished cells), ``run.json``.

    Published results hold their rows in one file, ``rows.parquet``. Runs resume from it as from ``rows/``, whose files
    are newer where both hold a cell.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self, command: str) -> None:
        """Make the folder and note the command; a folder that several commands filled knows them all."""
        try:
            check_writable(self.directory)
            for name in (ROWS, "checkpoints"):
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

    @property
    def published_file(self) -> Path:
        return self.directory / PUBLISHED

    def is_finished(self, key: str) -> bool:
        return self._rows_file(key).exists() or key in self._decode_published(DECODE_KEYS)

    def keys(self) -> list[str]:
        """The keys of all finished cells, sorted."""
        return sorted({file.stem for file in self._row_files()}.union(self._decode_published(DECODE_KEYS)))

    def finish(self, key: str, rows: list[Row]) -> None:
        """Write the rows of a cell; its checkpoint is of no more use."""
        write_atomically(self._rows_file(key), json.dumps(rows, indent=1).encode())
        self.checkpoint(key).unlink(missing_ok=True)

    def fill(self, key: str, make: Callable[[], list[Row]], *, wait: bool = False) -> None:
        """Finish a cell with the rows of a call, unless it is finished or another process holds it."""
        with self.claim(key, wait=wait) as mine:
            if mine and not self.is_finished(key):
                self.finish(key, make())

    def check_settings(self, wanted: Mapping[str, Any]) -> None:
        """Raise if a cell has other values of these settings: a report could not tell them apart."""
        for row in self.first_rows():
            found = row.get("settings", {})
            for name in sorted(wanted):
                if found.get(name) != wanted[name]:
                    change = f"{name} {found.get(name)} instead of {wanted[name]}"
                    raise StoreError(
                        f"{self.directory} holds results of other settings ({change}); choose another --out"
                    )

    def checkpoint(self, key: str) -> Path:
        """Return the file of a half-finished cell."""
        return self.directory / "checkpoints" / f"{key}.safetensors"

    def cells(self) -> dict[str, list[Row]]:
        """The rows of each finished cell, in the order of their keys."""
        unpublished = {file.stem: _read_rows(file) for file in self._row_files()}  # before they may be published
        return dict(sorted((self._decode_published(DECODE_CELLS) | unpublished).items()))

    def rows(self) -> list[Row]:
        """All rows of all finished cells, in the order of their keys."""
        rows = [row for own in self.cells().values() for row in own]
        if not rows:
            raise StoreError(f"no results in {self.directory}: expected {PUBLISHED}, or files under {ROWS}/")
        return rows

    def first_rows(self) -> list[Row]:
        """One row of each finished cell; none where there is no cell yet."""
        return [own[0] for own in self.cells().values()]

    def publish(self) -> None:
        """Move all rows into ``rows.parquet`` and remove folders that are then empty; the same rows, the same bytes."""
        require("publishing results needs", "pyarrow")
        if not self.directory.is_dir():
            return
        with self.claim("run", wait=True):
            if files := self._row_files():
                try:
                    content = ENCODE_CELLS(self.cells())
                except ValueError as error:
                    raise StoreError(f"cannot publish {self.directory}: {error}") from error
                write_atomically(self.published_file, content)
            for file in files:
                file.unlink(missing_ok=True)
        for lock in (self.directory / "checkpoints").glob("*.lock"):
            with self.claim(lock.stem):
                pass  # one that nobody holds is removed
        for folder in (self.directory / ROWS, self.directory / "checkpoints"):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    @contextmanager
    def claim(self, key: str, *, wait: bool = False) -> Iterator[bool]:
        """Hold a cell while working on it; yield False if another process holds it, or wait. Death releases it.

        The lock file is removed while it is held, and filelock notices if that happens between opening and locking it.
        Windows removes no file that is open; there, filelock removes it afterwards.
        """
        path = self.directory / "checkpoints" / f"{key}.lock"
        path.parent.mkdir(exist_ok=True)  # publishing may have removed it
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

    def _row_files(self) -> list[Path]:
        return sorted((self.directory / ROWS).glob("*.json"))

    def _rows_file(self, key: str) -> Path:
        return self.directory / ROWS / f"{key}.json"

    def _decode_published(self, decode: Callable[[bytes], Any]) -> Any:
        """Decode ``rows.parquet``; nothing where there is no such file."""
        try:
            with _naming(self.published_file):
                content = _read_bytes(self.published_file)
                require(f"reading {self.published_file} needs", "pyarrow")
                return decode(content)
        except MISSING:
            return {}


def find_stores(directory: Path, *patterns: str) -> list[Store]:
    """Return the folders of results whose path below a directory matches one of the patterns, sorted by path."""
    places = [f"{pattern}/{name}" for pattern in patterns for name in (ROWS, PUBLISHED)]
    return [Store(folder) for folder in sorted({path.parent for place in places for path in directory.glob(place)})]


def _read_rows(path: Path) -> list[Row]:
    rows = _read_json(path)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise StoreError(f"{path} is damaged (no list of rows); delete it and run again")
    return rows


def _read_json(path: Path) -> Any:
    try:
        with _naming(path):
            return json.loads(_read_bytes(path))
    except MISSING as error:
        raise StoreError(f"{path.parent} is not a folder of results: {path.name} is missing") from error


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it holds more than {MAX_FILE_BYTES} bytes")
    return content


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise a StoreError that names a file which cannot be read; errors of missing files pass."""
    try:
        yield
    except MISSING:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); delete it and run again") from error
