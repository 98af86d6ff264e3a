"""Bytes from the network and from archives, with every failure told in one line."""

import http.client
import io
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable

from graphact.tasks.datasets import DataError

Progress = Callable[[str, int, int | None], None]

TIMEOUT_SECONDS = 30
BYTES_AT_A_TIME = 1 << 16
LARGEST_FILE = 1 << 26


def download(url: str, progress: Progress | None = None) -> bytes:
    """The content at an address.

    Args:
        url: the address.
        progress: called with the address, the bytes so far and the bytes in all (None if unknown), after each piece.

    Raises:
        DataError: no connection, an answer other than the file, or fewer bytes than promised.
    """
    content = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdecimal() else None
            while piece := response.read(BYTES_AT_A_TIME):
                content += piece
                if len(content) > LARGEST_FILE:
                    raise DataError(
                        f"cannot download {url}: more than {LARGEST_FILE} bytes came, which is not the file"
                    )
                if progress is not None:
                    progress(url, len(content), total)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"cannot download {url}: the server answered {error.code} {one_line(error.reason)}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(f"cannot download {url}: {one_line(reason) or type(error).__name__}") from error
    if total is not None and len(content) != total:
        raise DataError(f"cannot download {url}: the connection ended after {len(content)} of {total} bytes")
    return bytes(content)


def member_of_zip(archive: bytes, member: str, origin: str) -> bytes:
    """One named file of a zip archive, read in memory; nothing is extracted and no other name is looked at.

    Raises:
        DataError: the archive is damaged, lacks the file, or holds an unreasonably large one.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            size = files.getinfo(member).file_size
            if size > LARGEST_FILE:
                raise DataError(f"{origin}: {member} would take {size} bytes, which is not the file")
            return files.read(member)
    except KeyError as error:
        raise DataError(f"{origin}: the archive has no file named {member}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{origin}: the archive is damaged: {one_line(error)}") from error


def show_progress(url: str, done: int, total: int | None) -> None:
    """Draw the state of a download on one line of the terminal's error stream."""
    name = url.rsplit("/", 1)[-1]
    share = f"{100 * done / total:3.0f} % of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"
    sys.stderr.write(f"\rdownloading {name}: {share}" + ("\n" if done == total else ""))
    sys.stderr.flush()


def one_line(reason: object) -> str:
    """The text of an error without line breaks."""
    return " ".join(str(reason).split())
