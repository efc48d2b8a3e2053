"""Files that a job brings along in its jobspec (RFC 37), written below one directory.

An archive is an object by path, or a list of files that each have one. Nothing is written
outside of the directory, and nothing through a symbolic link, not even one of the archive.
"""

import binascii
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson

from warren.rfc.errors import BadFormat

_FILE_MODE: Final = stat.S_IFREG | 0o600


class BadArchive(BadFormat):
    """The archive is malformed, or has a path outside of the directory."""


def extract(archive: Any, directory: Path) -> None:
    """Write the files of an archive. Raises BadArchive before anything is written, or OSError."""
    files = [_read_file(path, file) for path, file in _files(archive)]
    root_fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for names, mode, data in files:
            _write(root_fd, names, mode, data)
    finally:
        os.close(root_fd)


def _files(archive: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(archive, Mapping):
        yield from archive.items()
    elif isinstance(archive, list):
        for file in archive:
            yield (file.get("path") if isinstance(file, Mapping) else None), file
    else:
        raise BadArchive("an object or a list of files is expected")


def _read_file(path: Any, file: Any) -> tuple[list[str], int, bytes]:
    """Read one file: the names of its path, its mode, and its content or target."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise BadArchive(f"a file has no path: {path!r}")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names or not names:
        raise BadArchive(f"{path}: the path leads out of the job's directory")
    if not isinstance(file, Mapping):
        raise BadArchive(f"{path}: a file is an object")
    mode = file.get("mode", _FILE_MODE)
    if not isinstance(mode, int) or isinstance(mode, bool) or not 0 <= mode < 2**16:
        raise BadArchive(f"{path}: mode is {mode!r}, not that of a file")
    # Only the bits of permission: a file of a jobspec is no setuid program.
    kind = stat.S_IFMT(mode) or stat.S_IFREG
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        raise BadArchive(f"{path}: mode {mode:o} is of no file, directory or symbolic link")
    data = b"" if kind == stat.S_IFDIR else _data(path, file)
    if kind == stat.S_IFLNK and (not data or b"\0" in data):
        raise BadArchive(f"{path}: a symbolic link has no target")
    size = file.get("size")
    if size is not None and kind == stat.S_IFREG and "encoding" in file and size != len(data):
        raise BadArchive(f"{path}: size is {size!r}, and there are {len(data)} bytes")
    return names, kind | mode & 0o777, data


def _data(path: str, file: Mapping[str, Any]) -> bytes:
    data, encoding = file.get("data"), file.get("encoding")
    if encoding is None:
        is_link = stat.S_ISLNK(file.get("mode", _FILE_MODE))
        return data.encode() if is_link and isinstance(data, str) else _json(data)
    if not isinstance(data, str) or encoding not in ("utf-8", "base64"):
        raise BadArchive(f"{path}: encoding {encoding!r} is not utf-8 or base64 with a text")
    try:
        return data.encode() if encoding == "utf-8" else binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise BadArchive(f"{path}: the data is not {encoding}: {error}") from None


def _json(value: Any) -> bytes:
    return b"" if value is None else orjson.dumps(value)


def _write(root_fd: int, names: list[str], mode: int, data: bytes) -> None:
    with _parent(root_fd, names[:-1]) as parent_fd:
        name = names[-1]
        if stat.S_ISDIR(mode):
            try:
                os.mkdir(name, mode & 0o777 | 0o700, dir_fd=parent_fd)
            except FileExistsError:
                _open_directory(parent_fd, name, close=True)
        elif stat.S_ISLNK(mode):
            os.symlink(data, name, dir_fd=parent_fd)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o600, dir_fd=parent_fd)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(descriptor, mode & 0o777)


@contextmanager
def _parent(root_fd: int, names: list[str]) -> Iterator[int]:
    """Enter the directory of a file, which is made if it is not there."""
    directory = os.dup(root_fd)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=directory)
            child = _open_directory(directory, name)
            os.close(directory)
            directory = child
        yield directory
    finally:
        os.close(directory)


def _open_directory(parent_fd: int, name: str, *, close: bool = False) -> int:
    """Open a directory, which no link leads to; with `close`, only see that it is one."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=parent_fd)
    if close:
        os.close(descriptor)
    return descriptor
