"""Files that are complete or not there."""

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a neighbouring temporary file, flush it to disk, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
