"""Where the real data lies: found in a folder, or downloaded once, and checked every time."""

import hashlib
import os
import sys
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from graphact._checks import check_choice
from graphact.files import write_atomically
from graphact.tasks.datasets import DATASETS, DataError, DataFile
from graphact.tasks.download import Progress, download, member_of_zip, one_line, show_progress

VARIABLE = "GRAPHACT_DATA"

PathLike = str | os.PathLike[str]


class FileStatus(NamedTuple):
    """What became of one file: ``status`` is "ok", "missing" or "damaged" (its hash is not the expected one)."""

    dataset: str
    file: str
    status: str


def locate(dataset: str, directory: PathLike | None = None, download: bool = True) -> Path:
    """The folder that holds the files of a dataset, every one with the right hash.

    The data directory is the first of: the argument, the environment variable GRAPHACT_DATA, the user's cache folder.
    A directory that the user named is only read. Into the cache folder, what is missing is downloaded once.

    Args:
        dataset: "ml-100k" or "molene".
        directory: data directory, laid out as ``ml-100k/u.data``, ``ml-100k/u.item``, ``molene/RADOMEH.tar.gz``,
            ``molene/weather_stations.csv``.
        download: whether missing files may be downloaded to the cache folder.

    Raises:
        DataError: a file is missing or damaged and was not, or could not be, downloaded.
    """
    files = files_of(dataset)
    root = data_directory(directory)
    wrong = [file for file in files if status_of(root, file) != "ok"]
    if wrong:
        named = directory is not None or bool(os.environ.get(VARIABLE))
        if named or not download:
            raise DataError(f"{root / wrong[0].path} is {status_of(root, wrong[0])}; {advice(dataset)}")
        fetch(dataset, directory, show_progress if sys.stderr.isatty() else None)
    return root / Path(files[0].path).parent


def fetch(dataset: str, directory: PathLike | None = None, progress: Progress | None = None) -> Path:
    """Download what a data directory lacks of a dataset; good files stay as they are.

    Content is checked before it takes its place, and takes it in one step: a file is the right one or was not
    touched.

    Args:
        dataset: "ml-100k" or "molene".
        directory: data directory to fill, as in :func:`locate`.
        progress: called with the address, the bytes so far and the bytes in all (None if unknown).

    Returns:
        The folder with the files of the dataset.

    Raises:
        DataError: no network, a damaged download, or a folder that cannot be written.
    """
    files = files_of(dataset)
    root = data_directory(directory)
    wanted = [file for file in files if status_of(root, file) != "ok"]
    for url, group in groupby(wanted, key=lambda file: file.url):
        try:
            content = download(url, progress)
            for file in group:
                place(root, file, content)
        except DataError as error:
            raise DataError(f"{error}; {advice(dataset)}") from error
    return root / Path(files[0].path).parent


def check(directory: PathLike | None = None) -> list[FileStatus]:
    """The state of every known file in a data directory, without downloading anything."""
    root = data_directory(directory)
    return [
        FileStatus(dataset, file.path, status_of(root, file)) for dataset, files in DATASETS.items() for file in files
    ]


def data_directory(directory: PathLike | None = None) -> Path:
    """The data directory in use: the argument, else GRAPHACT_DATA, else ``graphact`` in the user's cache folder."""
    chosen = directory if directory is not None else os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "graphact"


def files_of(dataset: str) -> tuple[DataFile, ...]:
    """The files of a dataset."""
    return DATASETS[check_choice("dataset", dataset, tuple(DATASETS))]


def status_of(root: Path, file: DataFile) -> str:
    """Whether a file is "ok", "missing" or "damaged"."""
    path = root / file.path
    try:
        return "ok" if sha256(path.read_bytes()) == file.sha256 else "damaged"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise DataError(f"cannot read {path}: {one_line(error.strerror or error)}") from error


def place(root: Path, file: DataFile, downloaded: bytes) -> None:
    """Put one file of a download where it belongs, if it is the right one."""
    content = downloaded if file.member is None else member_of_zip(downloaded, file.member, file.url)
    if sha256(content) != file.sha256:
        raise DataError(f"{file.url}: the hash of {file.path} is not the expected one, so the file was not kept")
    try:
        write_atomically(root / file.path, content)
    except OSError as error:
        raise DataError(f"cannot write {root / file.path}: {one_line(error.strerror or error)}") from error


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def advice(dataset: str) -> str:
    """What a user can do about missing data."""
    layout = " and ".join(file.path for file in DATASETS[dataset])
    return f"try again with a network, or set {VARIABLE} or --data to a folder that holds {layout}"
