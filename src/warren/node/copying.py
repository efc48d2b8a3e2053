"""The copier: a child process that copies a file or a tree as its user would.

`command` makes its argument vector and `progress` reads its lines; run as a
program it does the work. Whatever fails is told on standard error and the rest
is still copied; the exit status is `FAILED` then. It dies with the agent that runs it.
"""

import ctypes
import errno
import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from warren.dws import staging
from warren.dws.node import Copy, NodeTrouble, Progress
from warren.node import acl, identity
from warren.node.beneath import NotAFile, Place, Tree, open_to_read, open_to_write
from warren.node.syncing import sync_file_system

FAILED: Final = 3
"""The exit status of a copier that tells what it could not copy."""

_THREADS: Final = 4
_CHUNK: Final = 32 * 2**20
_SMALL: Final = 2**18
_QUEUED: Final = 128
"""Files that may wait for a thread, so that a tree of any size fits into memory, and into the
descriptors that a process may have: each may be in another directory."""
_INTERVAL: Final = 0.5
_TOLD: Final = 10
"""Failures that are told in full; of the others only how many there were."""

_NO_RANGE: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_PR_SET_PDEATHSIG: Final = 1


def command(copy: Copy) -> list[str]:
    """Return the argument vector of a copier."""
    return [sys.executable, "-P", "-m", "warren.node.copying", json.dumps(asdict(copy))]


def progress(line: str) -> Progress:
    """Read a line of a copier. Raises NodeTrouble for anything else."""
    try:
        return Progress(**json.loads(line))
    except (ValueError, TypeError):
        raise NodeTrouble(f"the copier said {line.strip()[:80]!r}") from None


class _Refused(Exception):
    """Something that cannot be copied, as its user is told."""

    def __init__(self, path: str, words: str) -> None:
        super().__init__(f"{path}: {words}")


class _Copier:
    """One copy at work. Every name is opened in its directory, and none leads through a link."""

    def __init__(self, plan: staging.Plan, *, tree: bool) -> None:
        """`tree` says that the source is a directory."""
        self._plan = plan
        self._tree = tree
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._places = threading.Semaphore(_QUEUED)
        self._failures: list[str] = []
        self._failed = 0
        self._bytes = self._files = 0
        self._total_bytes = self._total_files = 0
        self._written: int | None = None
        """The first file that was written, kept open to hear of errors since then."""

    def run(self) -> bool:
        """Copy everything; return whether all went well."""
        done = threading.Event()
        teller = threading.Thread(target=self._tell_until, args=(done,), daemon=True)
        try:
            self._open()
            self._count()
            teller.start()
            with ThreadPoolExecutor(_THREADS) as pool:
                self._copy(pool)
            self._sync()
        except (OSError, _Refused) as error:
            self._fail(error)
        done.set()
        if teller.is_alive():
            teller.join()
        self._tell()
        for failure in self._failures:
            print(failure, file=sys.stderr)
        if self._failed > len(self._failures):
            print(f"and {self._failed - len(self._failures)} more", file=sys.stderr)
        return self._failed == 0

    def _open(self) -> None:
        plan = self._plan
        # A link that is named as the source stands for its directory: it may be a mount
        # of a node that has no mount namespace.
        if self._tree:
            self._source = Tree(plan.source, os.O_RDONLY)
        else:
            os.lstat(plan.source)
            above = os.path.dirname(plan.source) or "."
            self._source = Tree(above, os.O_PATH)
        os.makedirs(plan.top, exist_ok=True)
        self._target = Tree(plan.top, os.O_PATH)

    def _sync(self) -> None:
        """Have all of it on the disk: what cannot be written there is not copied."""
        if self._written is None:
            return
        try:
            sync_file_system(self._written)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._plan.top) from error
        finally:
            os.close(self._written)

    def _count(self) -> None:
        """Count what there is to copy. What is in the way of that will be in the copy's way too."""
        if not self._tree:
            self._total_files = 1
            self._total_bytes = os.lstat(self._plan.source).st_size
            return
        waiting = [self._source.top]
        while waiting:
            here = waiting.pop()
            try:
                descriptor = self._source.use(here)
            except OSError:
                continue
            with suppress(OSError), os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Place(here, entry.name))
                        continue
                    self._total_files += 1
                    with suppress(OSError):
                        self._total_bytes += entry.stat(follow_symlinks=False).st_size
            self._source.leave(here)

    def _copy(self, pool: ThreadPoolExecutor) -> None:
        there = self._target.top
        *directories, name = (
            self._plan.below if not self._plan.contents else (*self._plan.below, "")
        )
        for each in directories:
            there = self._make_directory(there, each, 0o777)
        if not self._tree:
            source = os.path.basename(self._plan.source)
            how = os.lstat(self._plan.source).st_mode
            self._submit(pool, self._source.top, source, there, name, how)
            return
        made: list[tuple[Place, _Dress]] = []
        if name:
            there = self._make_directory(there, name, 0o700)
            top = self._source.top.descriptor
            made.append((there, _Dress(os.stat(top), acl.read(top))))
        self._copy_tree(pool, there, made)
        pool.shutdown()  # waits: a directory's times are set when nothing more comes into it
        for place, dress in reversed(made):
            try:
                self._dress_directory(place, dress)
            except OSError as error:
                self._fail(error, self._target.path(place))

    def _copy_tree(
        self, pool: ThreadPoolExecutor, top: Place, made: list[tuple[Place, "_Dress"]]
    ) -> None:
        """Have the files of a tree copied; note the directories, each before what is in it."""
        own = os.stat(self._target.use(top))
        self._target.leave(top)
        waiting: list[tuple[Place, Place, os.stat_result | None]] = [(self._source.top, top, None)]
        while waiting:
            here, there, seen = waiting.pop()
            try:
                descriptor = self._source.use(here)
            except OSError as error:
                self._fail(error, self._source.path(here))
                continue
            try:
                if seen is not None:
                    made.append((there, _Dress(seen, acl.read(descriptor))))
                with os.scandir(descriptor) as found:
                    entries = list(found)
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        self._submit(pool, here, entry.name, there, entry.name, _mode(entry))
                        continue
                    try:
                        known = entry.stat(follow_symlinks=False)
                        if os.path.samestat(known, own):
                            path = self._source.path(here, entry.name)
                            raise _Refused(path, "a directory is not copied into itself")
                        place = self._make_directory(there, entry.name, 0o700)
                    except (OSError, _Refused) as error:
                        self._fail(error, self._source.path(here, entry.name))
                        continue
                    waiting.append((Place(here, entry.name), place, known))
            except OSError as error:
                self._fail(error, self._source.path(here))
            finally:
                self._source.leave(here)

    def _make_directory(self, there: Place, name: str, mode: int) -> Place:
        """Make a directory to copy into, or let us write into the one that an earlier copy made."""
        place = Place(there, name)
        try:
            above = self._target.use(there)
            try:
                os.mkdir(name, mode, dir_fd=above)
            except FileExistsError:
                known = os.stat(name, dir_fd=above, follow_symlinks=False)
                if not stat.S_ISDIR(known.st_mode):
                    raise
                self._open_up(place, known)
            finally:
                self._target.leave(there)
        except OSError as error:
            raise _Refused(self._target.path(place), _words(error)) from None
        return place

    def _open_up(self, place: Place, known: os.stat_result) -> None:
        if known.st_mode & 0o300 == 0o300 or known.st_uid != identity.file_user():
            return
        with self._directory(place) as descriptor:
            os.chmod(descriptor, 0o700)

    def _dress_directory(self, place: Place, dress: "_Dress") -> None:
        with self._directory(place) as descriptor:
            dress.put_on(descriptor)

    @contextmanager
    def _directory(self, place: Place) -> Iterator[int]:
        """Open a directory of the target for more than what is in it."""
        above = self._target.use(place)
        try:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        finally:
            self._target.leave(place)

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        here: Place,
        source: str,
        there: Place,
        target: str,
        how: int,
    ) -> None:
        self._places.acquire()
        try:
            self._source.use(here)
            try:
                self._target.use(there)
            except OSError as error:
                self._source.leave(here)
                raise _Refused(self._target.path(there, target), _words(error)) from None
        except (OSError, _Refused) as error:
            self._places.release()
            self._fail(error, self._source.path(here, source))
            return
        pool.submit(self._copy_one, here, source, there, target, how)

    def _copy_one(self, here: Place, source: str, there: Place, target: str, how: int) -> None:
        try:
            if stat.S_ISLNK(how):
                self._copy_link(here, source, there, target)
            elif stat.S_ISREG(how):
                self._copy_file(here, source, there, target)
            else:
                path = self._source.path(here, source)
                raise _Refused(path, "is neither a file nor a link")
            with self._lock:
                self._files += 1
        except (OSError, _Refused) as error:
            # Those without a name are of reading and writing, and of these mostly of writing.
            self._fail(error, self._target.path(there, target))
        finally:
            self._source.leave(here)
            self._target.leave(there)
            self._places.release()

    def _copy_link(self, here: Place, source: str, there: Place, target: str) -> None:
        try:
            to = os.readlink(source, dir_fd=here.descriptor)
        except OSError as error:
            raise _Refused(self._source.path(here, source), _words(error)) from None
        try:
            os.symlink(to, target, dir_fd=there.descriptor)
        except FileExistsError:
            known = os.stat(target, dir_fd=there.descriptor, follow_symlinks=False)
            if not stat.S_ISLNK(known.st_mode):
                raise
            os.unlink(target, dir_fd=there.descriptor)
            os.symlink(to, target, dir_fd=there.descriptor)
        self._count_in(len(os.fsencode(to)))

    def _copy_file(self, here: Place, source: str, there: Place, target: str) -> None:
        try:
            reading, known = open_to_read(source, here.descriptor)
        except NotAFile as found:  # it was one when it was listed
            raise _Refused(self._source.path(here, source), f"is {found} by now") from None
        except OSError as error:
            raise _Refused(self._source.path(here, source), _words(error)) from None
        try:
            try:
                writing = open_to_write(target, there.descriptor)
            except NotAFile as found:
                words = f"there is {found} where a file is to be copied to"
                raise _Refused(self._target.path(there, target), words) from None
            try:
                with self._lock:
                    if self._written is None:
                        self._written = os.dup(writing)
                copied = self._copy_data(reading, writing, known.st_size)
                if copied < known.st_size:
                    words = f"only {copied} of {known.st_size} bytes could be copied"
                    raise _Refused(self._source.path(here, source), words)
                _Dress(known, acl.read(reading)).put_on(writing)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def _copy_data(self, source: int, target: int, size: int) -> int:
        if size <= _SMALL:
            return self._copy_small(source, target)
        position = 0
        while (data := _next_data(source, position)) is not None:
            begin, end = data
            for each in (source, target):
                os.lseek(each, begin, os.SEEK_SET)
            self._count_in(begin - position)
            position = begin + self._copy_range(source, target, end - begin)
            if position < end:
                break  # it has become shorter
        # Holes stay holes: a file of nothing else may be as long as no disk, and never end.
        whole = os.fstat(source).st_size
        if position < whole:
            os.ftruncate(target, whole)
            self._count_in(whole - position)
        return max(position, whole)

    def _copy_range(self, source: int, target: int, size: int) -> int:
        """Copy so many bytes from where both files are, or fewer up to the source's end."""
        copied = 0
        by_range = True
        while copied < size:
            chunk = min(_CHUNK, size - copied)
            try:
                if by_range:
                    count = os.copy_file_range(source, target, chunk)
                    if count == 0:
                        by_range = False  # some file systems say 0 for "cannot"
                        continue
                else:
                    count = os.sendfile(target, source, None, chunk)
            except OSError as error:
                if by_range and error.errno in _NO_RANGE:
                    by_range = False
                    continue
                raise
            if count == 0:
                break
            copied += count
            self._count_in(count)
        return copied

    def _copy_small(self, source: int, target: int) -> int:
        """Copy what fits into memory; in-kernel copies cost more than they save there."""
        copied = 0
        while data := os.read(source, _SMALL):
            while data:
                written = os.write(target, data)
                data = data[written:]
                copied += written
            if copied < _SMALL:
                break  # a short read of a file is its end
        self._count_in(copied)
        return copied

    def _count_in(self, count: int) -> None:
        with self._lock:
            self._bytes += count

    def _fail(self, error: OSError | _Refused, path: str | None = None) -> None:
        """Note a failure; `path` is that of errors that know no more than a name."""
        with self._lock:
            self._failed += 1
            if len(self._failures) < _TOLD:
                words = str(error)
                if isinstance(error, OSError):
                    words = f"{path or error.filename}: {_words(error)}"
                self._failures.append(words)

    def _tell_until(self, done: threading.Event) -> None:
        while not done.wait(_INTERVAL):
            self._tell()

    def _tell(self) -> None:
        with self._lock:
            said = Progress(
                bytes=self._bytes,
                total_bytes=self._total_bytes,
                files=self._files,
                total_files=self._total_files,
                seconds=time.monotonic() - self._began,
            )
        print(json.dumps(asdict(said)), flush=True)


def _next_data(source: int, position: int) -> tuple[int, int] | None:
    """Return where the next piece of a file begins and ends that is no hole; None for no more."""
    try:
        begin = os.lseek(source, position, os.SEEK_DATA)
        return begin, os.lseek(source, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _mode(entry: "os.DirEntry[str]") -> int:
    """Return what an entry is, which most file systems tell with its name."""
    if entry.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


@dataclass(frozen=True)
class _Dress:
    """What a copy has of its source besides the data: mode, times, and access control list."""

    known: os.stat_result
    acl: bytes | None

    def put_on(self, target: int) -> None:
        mode = stat.S_IMODE(self.known.st_mode) & 0o777
        if self.acl is None:
            os.chmod(target, mode)
        else:
            os.chmod(target, acl.without(mode, self.acl))
            with suppress(OSError):  # not every file system has them
                os.setxattr(target, acl.NAME, self.acl)
        os.utime(target, ns=(self.known.st_atime_ns, self.known.st_mtime_ns))


def main(arguments: list[str]) -> int:
    """Copy what the one argument, a JSON object, describes."""
    parent = os.getppid()
    described: dict[str, Any] = json.loads(arguments[0])
    copy = Copy(**described)
    os.chdir("/")  # where we came from may be no place for the user, and /proc leads there
    identity.take(copy.userid, copy.groupid)
    # Not before: the change of user would undo it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    if not os.path.lexists(copy.source.rstrip("/")):
        print(f"{copy.source}: No such file or directory", file=sys.stderr)
        return FAILED
    tree = os.path.isdir(copy.source)
    plan = staging.plan(
        copy.source,
        copy.destination,
        source_is_file=not tree,
        destination_is_file=os.path.isfile(copy.destination),
        destination_is_directory=os.path.isdir(copy.destination),
        index=copy.index,
    )
    return 0 if _Copier(plan, tree=tree).run() else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
