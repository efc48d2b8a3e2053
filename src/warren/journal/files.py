"""Small files that are replaced as a whole."""

import os
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and for good; for its owner alone."""
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(opened, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
