"""The files of data sets: found in a folder, or downloaded once, and checked by hash every time."""

import hashlib
import io
import os
import sys
import zipfile
import zlib
from http.client import HTTPException
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from graphact._checks import UserError, check_choice
from graphact.storage import check_writable, one_line, write_atomically
from graphact_lab.data.sources import DATASETS, DataFile

VARIABLE = "GRAPHACT_DATA"
TIMEOUT_SECONDS = 30
MAX_FILE_SIZE = 1 << 26

PathLike = str | os.PathLike[str]


class DataError(UserError):
    """A data file is missing, damaged or out of reach. The message is one line that says what to do."""


class FileStatus(NamedTuple):
    """Status of one file: "ok", "missing" or "damaged" (its hash is not the expected one)."""

    dataset: str
    file: str
    status: str


def locate(dataset: str, directory: PathLike | None = None, download: bool = True) -> Path:
    """The folder that holds the files of a dataset, every one with the right hash.

    The data directory is the first of: the argument, the environment variable GRAPHACT_DATA, the user's cache folder.
    A directory that the user named is only read. Into the cache folder, what is missing is downloaded once.

    Args:
        dataset: "ml-100k", "molene", "planetoid", "heterophily", "attributed" or "tu".
        directory: data directory, with files such as ``ml-100k/u.data``, ``ml-100k/u.item``, ``molene/RADOMEH.tar.gz``,
            ``molene/weather_stations.csv``, ``planetoid/ind.cora.graph``, ...
        download: whether missing files may be downloaded to the cache folder.

    Raises:
        DataError: a file is missing or damaged and was not, or could not be, downloaded.
    """
    folder, wrong = folder_of(dataset, directory)
    if wrong:
        named, root = directory is not None or bool(os.environ.get(VARIABLE)), folder.parent
        if named or not download:
            raise DataError(f"{root / wrong[0].path} is {status_of(root, wrong[0])}; {advice(dataset)}")
        fetch(dataset, directory)
    return folder


def fetch(dataset: str, directory: PathLike | None = None) -> Path:
    """Download what a data directory lacks of a dataset; good files stay as they are.

    Content is checked before it takes its place, and takes it in one step: a file is the right one or was not
    touched.

    Args:
        dataset, directory: as in :func:`locate`; the directory is filled.

    Returns:
        The folder with the files of the dataset.

    Raises:
        DataError: no network, a damaged download, or a folder that cannot be written.
    """
    folder, wanted = folder_of(dataset, directory)
    try:
        if wanted:
            check_writable(folder)
    except OSError as error:
        raise DataError(f"{one_line(error)}; {advice(dataset)}") from error
    for url, group in groupby(wanted, key=lambda file: file.url):
        try:
            fetch_from(url, list(group), folder.parent)
        except DataError as error:
            raise DataError(f"{error}; {advice(dataset)}") from error
    return folder


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


def folder_of(dataset: str, directory: PathLike | None) -> tuple[Path, list[DataFile]]:
    """The folder of a dataset, and its files that are missing or damaged there."""
    files, root = DATASETS[check_choice("dataset", dataset, tuple(DATASETS))], data_directory(directory)
    return root / dataset, [file for file in files if status_of(root, file) != "ok"]


def status_of(root: Path, file: DataFile) -> str:
    """Return whether a file is "ok", "missing" or "damaged"."""
    path = root / file.path
    try:
        with path.open("rb") as content:
            return "ok" if hashlib.file_digest(content, "sha256").hexdigest() == file.sha256 else "damaged"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise DataError(f"cannot read {path}: {one_line(error.strerror or error)}") from error


def advice(dataset: str) -> str:
    """Return what a user can do about missing data."""
    paths = [file.path for file in DATASETS[dataset]]
    layout = " and ".join(paths if len(paths) <= 3 else [*paths[:2], f"{len(paths) - 2} more"])
    return f"try again with a network, or set {VARIABLE} or --data to a folder that holds {layout}"


def fetch_from(url: str, files: list[DataFile], root: Path) -> None:
    """Download a file, or a zip archive of which the named members are kept."""
    downloaded = download(url)
    for file in files:
        content = member_of_zip(downloaded, file.member, url) if file.member else downloaded
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise DataError(f"{url}: the hash of {file.path} is not the expected one, so the file was not kept")
        try:
            write_atomically(root / file.path, content)
        except OSError as error:
            raise DataError(f"cannot write {root / file.path}: {one_line(error.strerror or error)}") from error


def download(url: str) -> bytes:
    """Return the content of an address; a line on a terminal says that it is on its way."""
    if sys.stderr.isatty():
        sys.stderr.write(f"downloading {url}\n")
    try:
        with urlopen(Request(url, headers={"User-Agent": "graphact-lab"}), timeout=TIMEOUT_SECONDS) as response:
            total, content = int(response.headers.get("Content-Length") or 0), response.read(MAX_FILE_SIZE + 1)
    except HTTPError as error:
        with error:  # which holds the connection
            raise DataError(f"cannot download {url}: the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise DataError(f"cannot download {url}: {one_line(error)}") from error
    if len(content) > MAX_FILE_SIZE:
        raise DataError(f"cannot download {url}: more than {MAX_FILE_SIZE} bytes came, not the file")
    if len(content) < total:
        raise DataError(f"cannot download {url}: the connection ended after {len(content)} of {total} bytes")
    return content


def member_of_zip(archive: bytes, member: str, origin: str) -> bytes:
    """One named file of a zip archive; nothing is extracted and no other name is looked at."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            if (size := files.getinfo(member).file_size) <= MAX_FILE_SIZE:
                return files.read(member)
    except KeyError as error:
        raise DataError(f"{origin}: the archive has no file named {member}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{origin}: the archive is damaged: {one_line(error)}") from error
    raise DataError(f"{origin}: {member} would take {size} bytes, which is not the file")
