"""The byte layer: files that are complete or absent, and tensors with a checked JSON header.

A tensor file is a safetensors file whose metadata hold one JSON object: format, version, a SHA-256 of every tensor, one
of the header itself, and whatever the writer adds. Nothing in a file is ever executed.
"""

import errno
import hashlib
import json
import os
import secrets
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graphact._checks import did_you_mean

Array = Any
FORMAT = "graphact"
ZIP = b"PK\x03\x04"  # how archives begin, such as those of torch.save
NUMPY = b"\x93NUMPY"  # how .npy files begin
VERSION = 1
MIN_BYTES = 1 << 16  # that a folder must take to be called writable
ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space or choose another folder"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a folder that you may write to"),
}
DAMAGES = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,  # RecursionError and NotImplementedError are such
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions that NumPy, SciPy and zipfile raise for damaged files, and for those that claim more than memory holds."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a neighbouring temporary file, flush it to disk, then rename it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with naming_folder(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def check_writable(folder: Path) -> None:
    """Raise an OSError that says what to do if no file can be written to a folder, which need not exist yet.

    Call it before long work; it leaves no file.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with naming_folder(folder):
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file", str(existing))
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(MIN_BYTES))
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def naming_folder(folder: Path) -> Iterator[None]:
    """Make errors of the operating system name the folder that is written to, and what to do."""
    try:
        yield
    except OSError as error:
        raise type(error)(f"cannot write to {folder}: {reason_of(error)}") from error


def reason_of(error: OSError) -> str:
    """Return the reason why a folder cannot be written to, and what to do."""
    return "; ".join(filter(None, (error.strerror or str(error), ADVICE.get(error.errno or 0, ""))))


def save_tensors(path: Path, tensors: Mapping[str, Array], header: Mapping[str, Any]) -> None:
    """Write tensors on the CPU, with a header of JSON values."""
    from safetensors.torch import save

    full: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        **header,
        "sha256": {name: digest(tensor) for name, tensor in tensors.items()},
    }
    full["header_sha256"] = header_digest(full)
    metadata = {FORMAT: json.dumps(full, sort_keys=True)}
    write_atomically(path, save(dict(tensors), metadata=metadata))


def load_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the checked header and the tensors of a file.

    A file that is truncated, altered or of another kind raises a ValueError that says what is wrong.
    """
    check_is_file(path)  # first: a training without a checkpoint needs no package for files
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, the file is no dict
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a readable safetensors file, perhaps truncated: {one_line(error)}") from error
    try:
        header = json.loads(metadata.get(FORMAT, "null"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its graphact header is not valid JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path}: a safetensors file, but without the header of a graphact model")
    if header.get("version") != VERSION:
        raise ValueError(f"{path}: format version must be {VERSION}, got {header.get('version')!r:.60}")
    if not isinstance(header.get("sha256"), dict) or header.get("header_sha256") != header_digest(header):
        raise ValueError(f"{path}: the header is damaged: its SHA-256 differs from the one recorded")
    return header, tensors


def check_is_file(path: Path) -> None:
    """Raise if there is no file that :func:`save_tensors` may have written; say which one may have been meant."""
    there = path if path.is_dir() else path.parent
    models = sorted(str(other) for other in there.glob("*.safetensors")) if there.is_dir() else []
    if path.is_dir():
        meant = f"; did you mean {models[0]!r}?" if models else ""
        raise IsADirectoryError(f"{path} is a folder, not a model file that graphact.save wrote{meant}")
    if not path.is_file():
        raise FileNotFoundError(f"no model file at {path}{did_you_mean(path, models)}")
    with path.open("rb") as file:
        if file.read(len(ZIP)) == ZIP:
            raise ValueError(
                f"{path} is an archive, as torch.save writes, not a file of graphact.save: make the model, call "
                "model.load_state_dict(torch.load(path, weights_only=True)), and write it with graphact.save"
            )


def check_tensors(path: Path, header: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Raise if a tensor is not the one that the header recorded."""
    for name, tensor in tensors.items():
        if header["sha256"].get(name) != digest(tensor):
            raise ValueError(f"{path}: tensor {name!r} is damaged: its SHA-256 differs from the one recorded")


def read_array(path: Path) -> np.ndarray[Any, Any]:
    """Return the array of an ``.npy`` file; raise a ValueError if it is damaged or of another kind."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with path.open("rb") as stream:  # NumPy leaves it open if it takes a damaged file for an archive
            array = np.load(stream, allow_pickle=False)
    except DAMAGES as error:
        reason = one_line(error)
        if "pickle" in reason:  # NumPy advises to execute it
            is_numpy = path.read_bytes()[: len(NUMPY)] == NUMPY
            reason = "it holds Python objects" if is_numpy else "it does not begin as the files of numpy.save do"
        raise ValueError(f"{path} is not a NumPy file of numbers, or is damaged: {reason}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} must hold one array, got an archive")
    return array


def one_line(reason: object) -> str:
    """Return the text of an error without line breaks, cut if it is long."""
    text = " ".join(str(reason).split())
    return text if len(text) <= 500 else f"{text[:500]}..."


def header_digest(header: Mapping[str, Any]) -> str:
    """SHA-256 over everything else in a header."""
    rest = {name: value for name, value in header.items() if name != "header_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def digest(tensor: Array) -> str:
    """SHA-256 over type, shape and bytes of a tensor."""
    import torch

    content = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode() + content).hexdigest()
