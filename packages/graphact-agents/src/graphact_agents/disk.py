"""Files on disk: written whole or not at all, read with errors of one line."""

import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

try:
    import fcntl
except ModuleNotFoundError:  # not on POSIX
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a file for which there is no room."""
MIN_FREE_BYTES = 1 << 16
"""Bytes that a folder must take to be called writable."""


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a temporary file beside ``path``, flush it to disk, and rename it into place.

    Nobody but the owner may write to it, whatever the umask.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & ~0o022), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise type(error)(f"cannot write to {path.parent}: {explain(error)}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_writable(folder: Path) -> None:
    """Raise OSError if no file can be written to a folder, which may still have to be made; nothing is left behind."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file", str(existing))
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(MIN_FREE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise type(error)(f"cannot write to {folder}: {explain(error)}") from error


def explain(error: OSError) -> str:
    """Return why a folder cannot be written to, and what to do."""
    advice = ""
    if error.errno in FULL:
        advice = "; free some space or choose another folder"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        advice = "; choose a folder that you may write to"
    return (error.strerror or str(error)) + advice


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk on systems that can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems do not support it
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def hash_json(content: Mapping[str, Any], without: str) -> str:
    """Return the SHA-256 of all entries of a JSON object but that which holds it."""
    rest = {name: value for name, value in content.items() if name != without}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a node's folder."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; graphact-agents deploy writes it")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must hold a JSON object, got {type(content).__name__}")
    return content


def read_array(path: Path) -> np.ndarray[Any, Any]:
    """Return the array in an ``.npy`` file; ValueError if it is damaged or of another kind."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # of many classes, for a damaged file
        reason = one_line(error)
        if "pickle" in reason:  # NumPy's advice would have it executed
            is_numpy = path.read_bytes()[:6] == b"\x93NUMPY"
            reason = "it holds Python objects" if is_numpy else "it does not begin as the files of numpy.save do"
        raise ValueError(f"{path} is not a NumPy file of numbers, or is damaged: {reason}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} must hold one array, got an archive")
    return array


def check_owner(*paths: Path, private: bool = False) -> None:
    """Raise PermissionError if another user or the group may change files, or even read those that are ``private``."""
    for path in (path for path in paths if os.name == "posix" and path.exists()):
        mode, owner = path.stat().st_mode & 0o777, path.stat().st_uid
        if owner not in (0, os.geteuid()):
            raise PermissionError(f"{path} must belong to the user of this process, {os.geteuid()}, got {owner}")
        if private and mode & 0o077:
            raise PermissionError(f"{path} must be for its owner alone, as after chmod 600, got the mode {mode:o}")
        if mode & 0o022:
            raise PermissionError(
                f"{path} must be writable by its owner alone, as after chmod go-w, got the mode {mode:o}"
            )


def check_parent(folder: Path) -> None:
    """Raise PermissionError if everybody may put another folder into the place of this one."""
    parent = folder.resolve().parent
    if os.name == "posix" and parent.is_dir() and parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        raise PermissionError(f"{parent} must not be writable by everybody, as after chmod o-w: {folder.name} is in it")


def lock(file: int, reason: str) -> None:
    """Lock an open file until it is closed or the process ends, however it does; OSError if another has it."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(reason) from error


def one_line(reason: object) -> str:
    """Return the text of an error without line breaks and what a terminal would obey, cut where it is long."""
    text = "".join(each if each.isprintable() else "?" for each in " ".join(str(reason).split()))
    return text if len(text) <= 500 else f"{text[:500]}..."
