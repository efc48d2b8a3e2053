"""The copier: a child process that has become the user, and copies a file or a tree.

`command` makes its argument vector and `progress` reads its lines; run as a
program it does the work. Whatever fails is told on standard error and the rest
is still copied; the exit status is 1 then. It dies with the agent that runs it.
"""

import ctypes
import errno
import json
import os
import pwd
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final

from warren.dws import staging
from warren.dws.node import Copy, NodeTrouble, Progress

_THREADS: Final = 4
_CHUNK: Final = 32 * 2**20
_SMALL: Final = 2**18
_QUEUED: Final = 256
"""Files that may wait for a thread, so that a tree of any size fits into memory."""
_INTERVAL: Final = 0.5
_TOLD: Final = 10
"""Failures that are told in full; of the others only how many there were."""

_NO_RANGE: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_PR_SET_PDEATHSIG: Final = 1


def command(copy: Copy) -> list[str]:
    """Give the argument vector of a copier."""
    return [sys.executable, "-P", "-m", "warren.node.copying", json.dumps(asdict(copy))]


def progress(line: str) -> Progress:
    """Read a line of a copier. Raises NodeTrouble for anything else."""
    try:
        return Progress(**json.loads(line))
    except (ValueError, TypeError):
        raise NodeTrouble(f"the copier said {line.strip()[:80]!r}") from None


class _Copier:
    """One copy at work."""

    def __init__(self, plan: staging.Plan) -> None:
        self._plan = plan
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._places = threading.Semaphore(_QUEUED)
        self._failures: list[str] = []
        self._failed = 0
        self._bytes = self._files = 0
        self._total_bytes = self._total_files = 0

    def run(self) -> bool:
        """Copy everything; tell whether all went well."""
        done = threading.Event()
        teller = threading.Thread(target=self._tell_until, args=(done,), daemon=True)
        try:
            os.makedirs(self._plan.directory, exist_ok=True)
            self._count(self._plan.source)
            teller.start()
            with ThreadPoolExecutor(_THREADS) as pool:
                self._copy_tree(pool)
        except OSError as error:
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

    def _count(self, source: str) -> None:
        if not os.path.isdir(source):
            self._total_files += 1
            self._total_bytes += os.lstat(source).st_size
            return
        for directory, below, names in os.walk(source):
            links = [name for name in below if os.path.islink(os.path.join(directory, name))]
            for name in (*names, *links):
                self._total_files += 1
                try:
                    self._total_bytes += os.lstat(os.path.join(directory, name)).st_size
                except OSError as error:
                    self._fail(error)

    def _copy_tree(self, pool: ThreadPoolExecutor) -> None:
        source, target = self._plan.source, self._plan.target
        # A link that is named as the source stands for its directory: it may be a mount
        # of a node that has no mount namespace.
        if not os.path.isdir(source):
            self._submit(pool, source, target)
            return
        made = []
        if self._plan.contents:
            os.makedirs(target, exist_ok=True)
        else:
            _make_directory(target)
            made.append((source, target))
        for found, place in self._walk(source, target):
            if not found.is_dir(follow_symlinks=False):
                self._submit(pool, found.path, place)
                continue
            try:
                _make_directory(place)
                made.append((found.path, place))
            except OSError as error:
                self._fail(error)
        pool.shutdown()  # waits: a directory's times are set when nothing more comes into it
        for path, place in reversed(made):
            try:
                _dress(os.stat(path), place)
            except OSError as error:
                self._fail(error)

    def _walk(self, source: str, target: str) -> Iterator[tuple["os.DirEntry[str]", str]]:
        """Give the entries of a tree with their places, a directory before what is in it."""
        waiting = [(source, target)]
        while waiting:
            directory, place = waiting.pop()
            try:
                entries = list(os.scandir(directory))
            except OSError as error:
                self._fail(error)
                continue
            for entry in entries:
                inside = os.path.join(place, entry.name)
                yield entry, inside
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, inside))

    def _submit(self, pool: ThreadPoolExecutor, source: str, target: str) -> None:
        self._places.acquire()
        pool.submit(self._copy_one, source, target)

    def _copy_one(self, source: str, target: str) -> None:
        try:
            kind = os.lstat(source).st_mode
            if stat.S_ISLNK(kind):
                _copy_link(source, target)
                self._count_in(os.lstat(source).st_size)
            elif stat.S_ISREG(kind):
                self._copy_file(source, target)
            else:
                raise OSError(errno.EINVAL, "is neither a file nor a link", source)
            with self._lock:
                self._files += 1
        except OSError as error:
            # Without a name they are of reading and writing, and of these mostly of writing.
            self._fail(error, target)
        finally:
            self._places.release()

    def _copy_file(self, source: str, target: str) -> None:
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            known = os.fstat(reading)
            writing = _open_for_writing(target)
            try:
                copied = self._copy_data(reading, writing, known.st_size)
                if copied < known.st_size:
                    words = f"only {copied} of {known.st_size} bytes could be copied"
                    raise OSError(errno.EIO, words, source)
                _dress(known, writing)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def _copy_data(self, source: int, target: int, size: int) -> int:
        if size <= _SMALL:
            return self._copy_small(source, target)
        copied = 0
        by_range = True
        while True:
            try:
                if by_range:
                    count = os.copy_file_range(source, target, _CHUNK)
                    if count == 0 and copied < size:
                        by_range = False  # some file systems say 0 for "cannot"
                        continue
                else:
                    count = os.sendfile(target, source, None, _CHUNK)
            except OSError as error:
                if by_range and error.errno in _NO_RANGE:
                    by_range = False
                    continue
                raise
            if count == 0:
                return copied
            copied += count
            self._count_in(count)

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

    def _fail(self, error: OSError, place: str | None = None) -> None:
        """Note a failure; `place` is for errors that do not say which file they are about."""
        with self._lock:
            self._failed += 1
            if len(self._failures) < _TOLD:
                name = error.filename2 or error.filename or place
                self._failures.append(f"{name}: {error.strerror}")

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


def _make_directory(place: str) -> None:
    """Make a directory to copy into, or let us write into the one that an earlier copy made."""
    os.makedirs(place, exist_ok=True)
    if not os.access(place, os.W_OK | os.X_OK):
        os.chmod(place, 0o700)


def _open_for_writing(target: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(target, flags, 0o600)
    except PermissionError:
        # An earlier copy of a file that is not writable. Only its directory's owner gets past.
        os.unlink(target)
        return os.open(target, flags, 0o600)


def _copy_link(source: str, target: str) -> None:
    if os.path.islink(target):
        os.unlink(target)
    os.symlink(os.readlink(source), target)


def _dress(known: os.stat_result, target: str | int) -> None:
    """Give a copy the mode and times of its source."""
    os.chmod(target, stat.S_IMODE(known.st_mode) & 0o777)
    os.utime(target, ns=(known.st_atime_ns, known.st_mtime_ns))


def _become(userid: int, groupid: int) -> None:
    """Become the user, for good. Others than root are the user already, or cannot help it."""
    if os.geteuid() != 0 or _alone():
        return
    try:
        name = pwd.getpwuid(userid).pw_name
        os.initgroups(name, groupid)
    except KeyError:
        os.setgroups([groupid])
    os.setresgid(groupid, groupid, groupid)
    os.setresuid(userid, userid, userid)


def _alone() -> bool:
    """Tell whether root here is an ordinary user outside, and there is nobody else to become."""
    with open("/proc/self/uid_map") as table:
        return sum(int(line.split()[2]) for line in table) == 1


def main(arguments: list[str]) -> int:
    """Copy what the one argument, a JSON object, describes."""
    parent = os.getppid()
    described: dict[str, Any] = json.loads(arguments[0])
    copy = Copy(**described)
    _become(copy.userid, copy.groupid)
    # Not before: the change of user would undo it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    if not os.path.lexists(copy.source.rstrip("/")):
        print(f"{copy.source}: No such file or directory", file=sys.stderr)
        return 1
    plan = staging.plan(
        copy.source,
        copy.destination,
        source_is_file=not os.path.isdir(copy.source),
        destination_is_file=os.path.isfile(copy.destination),
        destination_is_directory=os.path.isdir(copy.destination),
        index=copy.index,
    )
    return 0 if _Copier(plan).run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
