"""Directories of a tree, each opened in its parent and never through a link.

Whatever happens to the tree meanwhile, nothing outside of it is reached. As few of them are
open at a time as are in use, and some more that are likely to be used next: a tree may be as
deep and as wide as it likes.
"""

import errno
import os
import stat
import threading
from contextlib import suppress
from typing import Final

_UNKNOWN_KIND_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How something is opened of which it is not sure what it is."""

_NEW_FILE_FLAGS: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KIND_NAMES: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.ETXTBSY)
"""What keeps a file from being written to, and not from being replaced."""
_IN_PARENT_FLAGS: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def without_links(path: str, within: str) -> str:
    """Return a path below `within` as it is without links, which lead nowhere else.

    Raises OSError for one that leads out of there.
    """
    resolved, top = os.path.realpath(path), os.path.realpath(within)
    if resolved != top and not resolved.startswith(f"{top.rstrip('/')}/"):
        raise OSError(errno.EXDEV, "leads out of the storage through a link", path)
    return f"{resolved}/" if path.endswith("/") else resolved


def open_directory(path: str, flags: int, within: str = "") -> int:
    """Open a directory, through no link below `within`, where that is said. Raises OSError."""
    flags |= os.O_DIRECTORY | os.O_CLOEXEC
    if not within:
        return os.open(path, flags)
    return _descend(path, within, flags, make=False)


def make_directories(path: str, within: str = "") -> None:
    """Make a directory with those above it, through no link below `within`. Raises OSError."""
    if not within:
        _make_with_parents(path)
    else:
        os.close(_descend(path, within, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, make=True))


def _make_with_parents(path: str) -> None:
    # Not by os.makedirs, which calls itself for each level: users name a thousand and more.
    missing = [path]
    while parent := _parent_if_missing(missing[-1]):
        missing.append(parent)
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except FileExistsError:
            if not os.path.isdir(each):
                raise


def _parent_if_missing(path: str) -> str:
    """Return the path of the parent of what is not there; an empty one otherwise.

    Raises OSError where it cannot be told.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return os.path.dirname(path.rstrip(os.sep))
    return ""


def open_place(path: str) -> int:
    """Return a descriptor, with O_PATH, of whatever is at an absolute path, through no link.

    The path may be longer than the kernel takes, as those are that users go to by parts. Where
    something is mounted, it is the top of that, which is not asked for anything. Raises OSError.
    """
    return _descend(path, os.sep, os.O_PATH | os.O_CLOEXEC, make=False)


def _descend(path: str, within: str, flags: int, *, make: bool) -> int:
    top = os.path.realpath(within)
    names = [each for each in os.path.relpath(path, top).split("/") if each != os.curdir]
    if os.pardir in names:
        raise OSError(errno.EXDEV, f"is not in {within}", path)
    if not names:
        return os.open(top, flags)
    directory_fd = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for names_left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=directory_fd)
            inner_flags = os.O_PATH | _IN_PARENT_FLAGS if names_left else flags | os.O_NOFOLLOW
            inner_fd = os.open(name, inner_flags, dir_fd=directory_fd)
            os.close(directory_fd)
            directory_fd = inner_fd
    except OSError as error:
        os.close(directory_fd)
        raise OSError(error.errno, error.strerror, path) from None
    return directory_fd


class Directory:
    """A directory, by its name in its parent. `Tree.acquire` opens it."""

    __slots__ = ("descriptor", "name", "parent", "use_count")

    def __init__(self, parent: "Directory | None", name: str, descriptor: int = -1) -> None:
        self.parent = parent
        self.name = name
        self.descriptor = descriptor
        self.use_count = 0


class Tree:
    """The directories below one that is open."""

    def __init__(
        self, path: str, flags: int, *, within: str = "", owner: int | None = None, spare: int = 64
    ) -> None:
        """Open the directory at `path`, which may lead through links; all others with `flags`.

        It leads through none below `within`, and all below it are the user `owner`'s, where that is
        said. So many as `spare` that are not in use stay open. Raises OSError.
        """
        self._flags = flags | _IN_PARENT_FLAGS
        self._spare = spare
        self._owner = owner
        self._path = path
        self._lock = threading.Lock()
        self._idle: dict[Directory, None] = {}
        """Those that are open and not in use, the one whose use is longest ago first."""
        self.top = Directory(None, "", open_directory(path, flags, within))
        self.top.use_count = 1

    def acquire(self, directory: Directory) -> int:
        """Return the descriptor of a directory, which is valid until `release`. Raises OSError."""
        with self._lock:
            closed = []
            ancestor = directory
            while ancestor.descriptor < 0:
                assert ancestor.parent is not None
                closed.append(ancestor)
                ancestor = ancestor.parent
            for each in reversed(closed):
                each.descriptor = self._open(each.name, ancestor.descriptor)
                self._close_some()
                self._idle[each] = None
                ancestor = each
            directory.use_count += 1
            self._idle.pop(directory, None)
            return directory.descriptor

    def _open(self, name: str, parent_fd: int) -> int:
        descriptor = os.open(name, self._flags, dir_fd=parent_fd)
        # Looked at when it is open: whose it was by its name may be another one.
        if self._owner is not None and os.fstat(descriptor).st_uid != self._owner:
            os.close(descriptor)
            raise PermissionError(errno.EPERM, "is another user's directory", name)
        return descriptor

    def release(self, directory: Directory) -> None:
        """Release the descriptor that one `acquire` returned."""
        with self._lock:
            directory.use_count -= 1
            if not directory.use_count:
                self._idle[directory] = None
                self._close_some()

    def path(self, directory: Directory, name: str = "") -> str:
        """Return the path of a directory, or of something in it, to tell the user."""
        names = [name] if name else []
        while directory.parent is not None:
            names.append(directory.name)
            directory = directory.parent
        return os.path.join(self._path, *reversed(names))

    def _close_some(self) -> None:
        while len(self._idle) > self._spare:
            directory = next(iter(self._idle))
            del self._idle[directory]
            os.close(directory.descriptor)
            directory.descriptor = -1


class NotAFile(Exception):
    """Something else stands where a file is looked for. The words say what, with an article."""


class SameFile(Exception):
    """The file that is to be written is the one that is read."""


def check_is_file(status: os.stat_result) -> None:
    """Raise NotAFile for what is something else."""
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NotAFile(_KIND_NAMES.get(kind, "something else"))


def open_to_look(name: str, parent_fd: int) -> int:
    """Open whatever has a name in an open directory, but no link; return its descriptor.

    Never blocks, and neither does the descriptor. It is not to be read before it is known to be
    a file. Raises OSError.
    """
    return os.open(name, os.O_RDONLY | _UNKNOWN_KIND_FLAGS, dir_fd=parent_fd)


def open_to_read(name: str, parent_fd: int) -> tuple[int, os.stat_result]:
    """Open a file of an open directory; return its descriptor, and what is known of it.

    Never blocks, whatever has just taken the file's place. Raises NotAFile and OSError.
    """
    descriptor = open_to_look(name, parent_fd)
    try:
        status = os.fstat(descriptor)
        check_is_file(status)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def open_to_make(name: str, parent_fd: int, mode: int) -> int:
    """Make a file to write to in an open directory; return its descriptor.

    Raises OSError, as FileExistsError for anything that is there.
    """
    return os.open(name, os.O_WRONLY | _NEW_FILE_FLAGS, mode, dir_fd=parent_fd)


def open_to_write(
    name: str,
    parent_fd: int,
    source: os.stat_result,
    *,
    readable: bool = False,
    owner: int | None = None,
) -> tuple[int, os.stat_result | None]:
    """Make a file in an open directory, or open the one that is there; return its descriptor.

    Return what is known of one that is there, too. It is for a copy of the file `source`, which it
    never is itself, by whatever name. What is in it stays. One that has other names is replaced:
    what they name is not ours to change. So is one that is not the user `owner`'s, if that is said:
    it is its owner's to read. Only a file is ever opened: a FIFO would wait for a reader, and a
    device do what it does. `readable` asks for a descriptor that can be read, too. Raises NotAFile,
    SameFile and OSError.
    """
    flags = os.O_RDWR if readable else os.O_WRONLY
    with suppress(FileExistsError):
        return os.open(name, flags | _NEW_FILE_FLAGS, 0o600, dir_fd=parent_fd), None
    status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    check_is_file(status)
    if os.path.samestat(status, source):
        raise SameFile
    if status.st_nlink > 1 or owner not in (None, status.st_uid):
        return replace(name, parent_fd, readable=readable), None
    try:
        descriptor = os.open(name, flags | _UNKNOWN_KIND_FLAGS, dir_fd=parent_fd)
    except OSError as error:
        # An earlier copy of a file that is not writable, or a program that runs: by each user who
        # may run it. Only its directory's owner gets past.
        if error.errno not in _NOT_WRITABLE:
            raise
        return replace(name, parent_fd, readable=readable), None
    try:
        # Once more: another may have taken its place before it was opened.
        status = os.fstat(descriptor)
        check_is_file(status)
        if os.path.samestat(status, source):
            raise SameFile
        if owner not in (None, status.st_uid):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def replace(name: str, parent_fd: int, *, readable: bool = False) -> int:
    """Make a file in the place of one in an open directory; return its descriptor.

    Raises OSError.
    """
    os.unlink(name, dir_fd=parent_fd)
    flags = os.O_RDWR if readable else os.O_WRONLY
    return os.open(name, flags | _NEW_FILE_FLAGS, 0o600, dir_fd=parent_fd)
