"""One copy at work: a tree, or a file, from its plan to the last of its metadata.

Every name is opened in its directory, and none leads through a link. What is not told to have
failed is there, whole, and what the source was when it was read: a source that changes meanwhile
is a failure, too.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

from warren.dws.copies import staging
from warren.node import identity
from warren.node.copying import fastpath, metadata
from warren.node.copying.hardlinks import HardLinks, Names
from warren.node.copying.invalidation import invalidate, invalidate_tree
from warren.node.copying.latency import Latency
from warren.node.copying.metadata import Metadata
from warren.node.copying.pace import Pace
from warren.node.copying.quiescence import BeingWritten, wait_quiet
from warren.node.copying.retry import MARK, Retry
from warren.node.copying.tally import NotCopied, Tally, error_text
from warren.node.copying.target import TargetInUse, close_locked, open_locked
from warren.node.copying.transfer import SMALL_FILE, Transfer, first_difference
from warren.node.copying.workers import BATCH, Batch, Workers, is_local, worker_count
from warren.node.nofollow import (
    Directory,
    NotAFile,
    SameFile,
    Tree,
    make_directories,
    open_to_read,
)
from warren.node.syncing import WrittenFileSystem

_THREADS: Final = 4
_QUEUED: Final = 128
"""Files that may wait for a thread, so that a tree of any size fits into memory, and into the
descriptors that a process may have: each may be in another directory."""

_LINK_REFUSED: Final = (errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS)
_ON_EITHER_SIDE: Final = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
"""Errors of which the kernel does not say on which side they are, when it copies."""
_TOO_MANY: Final = "has more directories, or names in one, than a copier has memory for"
_IS_SOURCE: Final = "is what is to be copied there"
_OTHERS_OWN: Final = (
    "modes, times and attributes of the source are not kept by what others own there"
)
_NO_ATTRIBUTES: Final = (
    "the extended attributes of the source are not kept there: the target has none"
)


class Copier:
    """Copies what a plan says."""

    def __init__(
        self,
        plan: staging.Plan,
        retry: Retry,
        *,
        tree: bool,
        verify: bool = False,
        rate: int = 0,
        source_storage: str = "",
        destination_storage: str = "",
    ) -> None:
        """`tree` says that the source is a directory; all else is what a Copy says."""
        self._plan = plan
        self._source_storage = source_storage
        self._destination_storage = destination_storage
        self._retry = retry
        self._tree = tree
        self._verify = verify
        self._tally = Tally()
        self._hard_links = HardLinks()
        self._latency = Latency()
        self._transfer = Transfer(Pace(rate), self._tally)
        self._slots = threading.Semaphore(_QUEUED)
        self._written_file_system = WrittenFileSystem()
        self._made_writable: list[tuple[Directory, int]] = []
        """Directories that are no copies and were not writable, with the modes that they had."""
        self._destination: tuple[Directory, str]
        """Where the source goes: a directory, and the name in it that a file has there."""
        self._uses_fast_path = not (retry.since or verify or rate)
        """Whether small files take the fast path where they can."""
        self._workers = Workers(0)
        self._local: tuple[int, int] | None = None
        """The devices of source and target, where both are local file systems."""

    def run(self) -> bool:
        """Copy everything; return whether all went well."""
        fits = True
        try:
            self._open()
            self._count()
            self._start_workers()
            self._tally.start_reporting()  # its thread is the first
            try:
                with ThreadPoolExecutor(_THREADS) as pool:
                    self._copy(pool)
            finally:
                self._workers.close()
                self._restore_modes()
            self._sync()
            self._check_all_copied()
        except (OSError, NotCopied) as error:
            self._tally.fail(error)
        except MemoryError:
            fits = False  # what has taken it is only given back behind this clause
        if not fits:
            self._tally.fail(NotCopied(self._plan.source, _TOO_MANY))
        self._tally.finish()
        return self._tally.failed == 0

    def _open(self) -> None:
        plan = self._plan
        # A link that is named as the source stands for its directory: it may be a mount
        # of a node that has no mount namespace.
        if self._tree:
            self._source = Tree(plan.source, os.O_RDONLY, within=self._source_storage)
        else:
            os.lstat(plan.source)
            above = os.path.dirname(plan.source) or "."
            self._source = Tree(above, os.O_PATH, within=self._source_storage)
        make_directories(plan.top, self._destination_storage)
        self._target = Tree(
            plan.top, os.O_PATH, within=self._destination_storage, owner=self._required_owner()
        )
        if not plan.below and self._is_source(os.stat(self._target.top.descriptor)):
            raise NotCopied(plan.top, _IS_SOURCE)

    def _is_source(self, known: os.stat_result) -> bool:
        """Return whether a directory is the one whose tree is copied."""
        return self._tree and os.path.samestat(known, os.stat(self._source.top.descriptor))

    def _start_workers(self) -> None:
        ends = self._source.top.descriptor, self._target.top.descriptor
        if self._uses_fast_path and self._tree and all(map(is_local, ends)):
            self._local = os.fstat(ends[0]).st_dev, os.fstat(ends[1]).st_dev
            self._workers = Workers(worker_count(self._tally.total_files))

    def _count(self) -> None:
        """Count what there is to copy. What is in the way of that will be in the copy's way too."""
        if not self._tree:
            self._tally.total_files = 1
            self._tally.total_bytes = os.lstat(self._plan.source).st_size
            return
        waiting = [self._source.top]
        while waiting:
            here = waiting.pop()
            try:
                descriptor = self._source.acquire(here)
            except OSError:
                continue
            with suppress(OSError), os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Directory(here, entry.name))
                        continue
                    self._tally.total_files += 1
                    with suppress(OSError):
                        self._tally.total_bytes += entry.stat(follow_symlinks=False).st_size
            self._source.release(here)

    def _sync(self) -> None:
        """Have all of it on the disk: what cannot be written there is not copied."""
        try:
            self._written_file_system.sync()
            # One that has become that by its errors writes nothing, and tells of none.
            if os.fstatvfs(self._target.top.descriptor).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        except OSError as error:
            self._tally.fail(NotCopied(self._plan.top, error_text(error)))
            self._invalidate()

    def _invalidate(self) -> None:
        """Have another try copy all of it again."""
        there, name = self._destination
        if self._tree:
            invalidate_tree(
                self._source, self._target, there, self._enter_directory, self._tally.fail
            )
            return
        source = os.path.basename(self._plan.source)
        try:
            below = self._target.acquire(there)
            invalidate(source, self._source.top.descriptor, name, below)
        except OSError as error:
            self._tally.fail(error, self._target.path(there, name))

    def _check_all_copied(self) -> None:
        """Refuse to be content with fewer files than there were, or more."""
        counted, files = self._tally.total_files, self._tally.files
        if not self._tally.failed and files != counted:
            said = f"has changed: {counted} files were counted, and {files} copied"
            raise NotCopied(self._plan.source, said)

    def _copy(self, pool: ThreadPoolExecutor) -> None:
        there = self._target.top
        *directories, name = (
            self._plan.below if not self._plan.contents else (*self._plan.below, "")
        )
        for each in directories:
            there = self._make_directory(there, each, is_copy=False)
        if self._retry.since:  # what an earlier try has left may be in memory alone
            with suppress(OSError), self._directory(there) as descriptor:
                self._written_file_system.add(descriptor)
        if not self._tree:
            source = os.path.basename(self._plan.source)
            how = os.lstat(self._plan.source).st_mode
            self._destination = there, name
            self._submit(pool, (self._source.top, source, there, name), how)
            return
        top = self._source.top.descriptor
        copied: list[tuple[Directory, Directory | None, Metadata]] = []
        found = metadata.read(top, os.stat(top))
        if name:
            there = self._make_directory(there, name)
            copied.append((self._source.top, there, found))
        else:
            copied.append((self._source.top, None, found))
        self._destination = there, ""
        self._copy_tree(pool, there, copied)
        self._copy_skipped(pool, wait=True)
        pool.shutdown()  # waits: a directory's times are set when nothing more comes into it
        for here, place, known in reversed(copied):
            self._finish_directory(here, place, known)

    def _copy_tree(
        self,
        pool: ThreadPoolExecutor,
        top: Directory,
        copied: list[tuple[Directory, Directory | None, Metadata]],
    ) -> None:
        """Have the files of a tree copied; note the directories, each before what is in it."""
        own = os.stat(self._target.acquire(top))
        self._target.release(top)
        waiting: list[tuple[Directory, Directory]] = [(self._source.top, top)]
        while waiting:
            here, there = waiting.pop()
            try:
                descriptor = self._source.acquire(here)
            except OSError as error:
                self._tally.fail(error, self._source.path(here))
                continue
            try:
                if here is not self._source.top:
                    found = metadata.read(descriptor, os.stat(descriptor))
                    copied.append((here, there, found))
                with os.scandir(descriptor) as listing:
                    entries = list(listing)
                self._copy_entries(pool, here, there, entries)
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        continue
                    try:
                        if os.path.samestat(entry.stat(follow_symlinks=False), own):
                            path = self._source.path(here, entry.name)
                            raise NotCopied(path, "a directory is not copied into itself")
                        place = self._make_directory(there, entry.name)
                    except (OSError, NotCopied) as error:
                        self._tally.fail(error, self._source.path(here, entry.name))
                        continue
                    waiting.append((Directory(here, entry.name), place))
            except OSError as error:
                self._tally.fail(error, self._source.path(here))
            finally:
                self._source.release(here)

    # Directories

    def _make_directory(self, there: Directory, name: str, *, is_copy: bool = True) -> Directory:
        """Make a directory to copy into, or let us write into the one that an earlier copy made."""
        place = Directory(there, name)
        try:
            above = self._target.acquire(there)
            try:
                os.mkdir(name, 0o700 if is_copy else 0o777, dir_fd=above)
            except FileExistsError:
                known = os.stat(name, dir_fd=above, follow_symlinks=False)
                if not stat.S_ISDIR(known.st_mode):
                    raise
                if self._required_owner() not in (None, known.st_uid):
                    # It would be that user's to say who reads what is copied into it.
                    raise PermissionError(errno.EPERM, "is another user's directory") from None
                if self._is_source(known):
                    raise OSError(errno.EINVAL, _IS_SOURCE) from None
                if self._make_writable(place, known) and not is_copy:
                    self._made_writable.append((place, stat.S_IMODE(known.st_mode)))
            finally:
                self._target.release(there)
        except OSError as error:
            raise NotCopied(self._target.path(place), error_text(error)) from None
        return place

    def _enter_directory(self, there: Directory, name: str) -> Directory:
        """Let us write into a directory of the copy. Raises FileNotFoundError if there is none."""
        place = Directory(there, name)
        above = self._target.acquire(there)
        try:
            self._make_writable(place, os.stat(name, dir_fd=above, follow_symlinks=False))
        finally:
            self._target.release(there)
        return place

    def _required_owner(self) -> int | None:
        """Return the user who has to own all that is copied into; None outside of storage."""
        return identity.file_user() if self._destination_storage else None

    def _make_writable(self, place: Directory, known: os.stat_result) -> bool:
        """Let us write into a directory; return whether its mode had to be changed for that."""
        if known.st_mode & 0o300 == 0o300 or known.st_uid != identity.file_user():
            return False
        with self._directory(place) as descriptor:
            os.chmod(descriptor, 0o700)
        return True

    def _restore_modes(self) -> None:
        """Give directories the modes that they had, for which no copy has others."""
        for place, mode in reversed(self._made_writable):
            try:
                with self._directory(place) as descriptor:
                    os.chmod(descriptor, mode)
            except OSError as error:
                self._tally.fail(error, self._target.path(place))

    def _finish_directory(self, here: Directory, place: Directory | None, found: Metadata) -> None:
        """Give a directory its metadata, and tell whether its source has changed meanwhile."""
        try:
            descriptor = self._source.acquire(here)
            try:
                changed = os.stat(descriptor).st_mtime_ns != found.known.st_mtime_ns
            finally:
                self._source.release(here)
            if changed:
                raise NotCopied(self._source.path(here), "has changed while it was copied")
        except (OSError, NotCopied) as error:
            self._tally.fail(error, self._source.path(here))
        if place is None:  # what was there already, and is not a copy
            return
        try:
            with self._directory(place) as descriptor:
                self._apply_metadata(found, descriptor)
            self._tally.add_directory()
        except OSError as error:
            self._tally.fail(error, self._target.path(place))

    @contextmanager
    def _directory(self, place: Directory) -> Iterator[int]:
        """Open a directory of the target for more than what is in it."""
        above = self._target.acquire(place)
        try:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        finally:
            self._target.release(place)

    def _apply_metadata(self, found: Metadata, target: int) -> None:
        try:
            if not found.apply_to(target):
                self._tally.remark(_NO_ATTRIBUTES)
        except PermissionError:
            # Only its owner gives a file a mode and times. In storage, nothing is another user's.
            if os.fstat(target).st_uid == identity.file_user():
                raise
            with suppress(OSError):
                os.removexattr(target, MARK)
            self._tally.remark(_OTHERS_OWN)

    # Files and links

    def _copy_entries(
        self,
        pool: ThreadPoolExecutor,
        here: Directory,
        there: Directory,
        entries: "Sequence[os.DirEntry[str]]",
    ) -> None:
        """Copy what is in a directory that is in use, but for other directories."""
        short = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                continue
            if self._uses_fast_path and entry.is_file(follow_symlinks=False):
                short.append(entry.name)
            else:
                self._submit(pool, (here, entry.name, there, entry.name), _mode(entry))
        if short:
            for name in self._copy_on_fast_path(here, there, short):
                self._submit(pool, (here, name, there, name), stat.S_IFREG)
            self._copy_skipped(pool)

    def _copy_on_fast_path(
        self, here: Directory, there: Directory, names: Sequence[str]
    ) -> Sequence[str]:
        """Copy files on the fast path, here or in another process; return those that are left."""
        waiting = iter(names)
        left: list[str] = []
        with suppress(OSError), self._directory(there) as target:
            self._written_file_system.add(target)
            known = os.fstat(target)
            # Of another user's directory, what it hands down may change at any time.
            if self._required_owner() not in (None, known.st_uid) or metadata.has_default_acl(
                target
            ):
                return names
            above = here.descriptor
            local = self._local == (os.fstat(above).st_dev, known.st_dev)
            while some := list(islice(waiting, BATCH)):
                batch = Batch(here, there, some)
                if not (local and self._workers.submit(batch, above, target)):
                    copied = fastpath.copy_all(some, above, target, self._latency)
                    self._tally.add_whole(copied.files, copied.bytes)
                    left += copied.skipped
        return [*left, *waiting]

    def _copy_skipped(self, pool: ThreadPoolExecutor, *, wait: bool = False) -> None:
        """Count what other processes have copied, and copy what they have left."""
        for answer in self._workers.answers(wait=wait):
            here, there, copied = answer.batch.here, answer.batch.there, answer.copied
            self._tally.add_whole(copied.files, copied.bytes)
            if not copied.skipped:
                continue
            try:
                self._source.acquire(here)
            except OSError as error:
                for name in copied.skipped:
                    self._tally.fail(error, self._source.path(here, name))
                continue
            for name in copied.skipped:
                self._submit(pool, (here, name, there, name), stat.S_IFREG)
            self._source.release(here)

    def _submit(self, pool: ThreadPoolExecutor, names: Names, how: int) -> None:
        """Copy a small file now, and a large one beside others, or all where each takes long."""
        aside = self._latency.is_long() or self._is_large(names)
        if aside:
            self._slots.acquire()
        if not self._open_directories(names):
            if aside:
                self._slots.release()
        elif aside:
            pool.submit(self._copy_submitted, names, how)
        else:
            began = time.monotonic()
            self._copy_one(names, how)
            self._close_directories(names)
            self._latency.took(time.monotonic() - began)

    def _is_large(self, names: Names) -> bool:
        here, source, _, _ = names
        with suppress(OSError):
            known = os.stat(source, dir_fd=here.descriptor, follow_symlinks=False)
            return known.st_size > SMALL_FILE
        return False  # what is the matter with it, its copy tells

    def _copy_submitted(self, names: Names, how: int) -> None:
        try:
            self._copy_one(names, how)
        finally:
            self._close_directories(names)
            self._slots.release()

    def _open_directories(self, names: Names) -> bool:
        """Have the directories of a file opened; return whether they are."""
        here, source, there, target = names
        try:
            self._source.acquire(here)
            try:
                self._target.acquire(there)
            except OSError as error:
                self._source.release(here)
                raise NotCopied(self._target.path(there, target), error_text(error)) from None
        except (OSError, NotCopied) as error:
            self._tally.fail(error, self._source.path(here, source))
            return False
        return True

    def _close_directories(self, names: Names) -> None:
        here, _, there, _ = names
        self._source.release(here)
        self._target.release(there)

    def _copy_one(self, names: Names, how: int) -> None:
        here, source, there, target = names
        try:
            if stat.S_ISLNK(how):
                self._copy_known(names, self._stat(names), self._copy_link)
            elif not stat.S_ISREG(how):
                raise NotCopied(self._source.path(here, source), "is neither a file nor a link")
            elif self._retry.since:
                self._copy_known(names, self._stat(names), self._copy_again)
            else:
                self._copy_file(names)
        except (OSError, NotCopied) as error:
            path = self._target.path(there, target)
            if isinstance(error, OSError) and error.errno in _ON_EITHER_SIDE:
                path = f"{self._source.path(here, source)}, or its copy {path}"
            # Those without a name are of reading and writing, and all others mostly of writing.
            self._tally.fail(error, path)

    def _stat(self, names: Names) -> os.stat_result:
        here, source, _, _ = names
        try:
            return os.stat(source, dir_fd=here.descriptor, follow_symlinks=False)
        except OSError as error:
            raise NotCopied(self._source.path(here, source), error_text(error)) from None

    def _copy_known(
        self,
        names: Names,
        known: os.stat_result,
        copy: Callable[[Names, os.stat_result], None],
    ) -> None:
        """Copy what has not been copied by another name of it, and count it in."""
        is_link = stat.S_ISLNK(known.st_mode)
        if known.st_nlink <= 1:
            copy(names, known)
            self._tally.add_file(is_link=is_link)
            return
        first = self._hard_links.first_copy(known, names)
        while first is not None:
            if first is names:
                return  # the one that is copying it goes on with this
            if self._link(first, names):
                self._tally.add_bytes(known.st_size)
                self._tally.add_file(is_link=is_link)
                return
            self._copy_waiting(self._hard_links.mark_failed(known, first), known)
            first = self._hard_links.first_copy(known, names)
        try:
            copy(names, known)
        except BaseException:
            self._copy_waiting(self._hard_links.mark_failed(known, names), known)
            raise
        self._tally.add_file(is_link=is_link)
        self._copy_waiting(self._hard_links.mark_copied(known, names), known)

    def _copy_waiting(self, waiting: Sequence[Names], known: os.stat_result) -> None:
        """Copy, or link, the names that have waited for another one."""
        for names in waiting:
            if not self._open_directories(names):
                continue
            _, _, there, target = names
            try:
                copy = self._copy_link if stat.S_ISLNK(known.st_mode) else self._copy_again
                self._copy_known(names, known, copy)
            except (OSError, NotCopied) as error:
                self._tally.fail(error, self._target.path(there, target))
            finally:
                self._close_directories(names)

    def _link(self, first: Names, names: Names) -> bool:
        """Make a name of a copy that is there; return False where it can have no more names."""
        if not self._open_directories(first):
            return False
        _, _, from_place, from_name = first
        _, _, there, target = names
        try:
            self._make_link(from_place.descriptor, from_name, there.descriptor, target)
        except OSError as error:
            if error.errno in _LINK_REFUSED:
                return False
            raise
        finally:
            self._close_directories(first)
        return True

    def _make_link(self, above: int, name: str, there: int, target: str) -> None:
        how = {"src_dir_fd": above, "dst_dir_fd": there, "follow_symlinks": False}
        try:
            os.link(name, target, **how)  # type: ignore[arg-type]
        except FileExistsError:
            copied = os.stat(name, dir_fd=above, follow_symlinks=False)
            known = os.stat(target, dir_fd=there, follow_symlinks=False)
            if os.path.samestat(copied, known):
                return
            if stat.S_IFMT(copied.st_mode) != stat.S_IFMT(known.st_mode):
                raise
            os.unlink(target, dir_fd=there)
            os.link(name, target, **how)  # type: ignore[arg-type]

    def _copy_link(self, names: Names, known: os.stat_result) -> None:
        here, source, there, target = names
        try:
            to = os.readlink(source, dir_fd=here.descriptor)
        except OSError as error:
            raise NotCopied(self._source.path(here, source), error_text(error)) from None
        above = there.descriptor
        try:
            os.symlink(to, target, dir_fd=above)
        except FileExistsError:
            found = os.stat(target, dir_fd=above, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                raise
            if os.path.samestat(found, known):
                raise NotCopied(self._target.path(there, target), _IS_SOURCE) from None
            os.unlink(target, dir_fd=above)
            os.symlink(to, target, dir_fd=above)
        times = (known.st_atime_ns, known.st_mtime_ns)
        os.utime(target, ns=times, dir_fd=above, follow_symlinks=False)
        self._tally.add_bytes(len(os.fsencode(to)))

    def _copy_again(self, names: Names, known: os.stat_result) -> None:
        """Copy a file, unless an earlier try has done so."""
        _, _, there, target = names
        with suppress(OSError):
            found = os.stat(target, dir_fd=there.descriptor, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and self._retry.is_finished(known, found):
                self._tally.add_kept(known.st_size)
                return
        self._copy_file(names, counted=True)

    def _copy_file(self, names: Names, *, counted: bool = False) -> None:
        """Copy a file; one that is `counted` is looked after by its caller."""
        here, source, _, _ = names
        try:
            reading, known = open_to_read(source, here.descriptor)
        except NotAFile as found:  # it was one when it was listed
            raise NotCopied(self._source.path(here, source), f"is {found} by now") from None
        except OSError as error:
            raise NotCopied(self._source.path(here, source), error_text(error)) from None
        try:
            try:
                known = wait_quiet(reading, known)
            except BeingWritten:
                path = self._source.path(here, source)
                raise NotCopied(path, "is being written to") from None
            if counted:
                self._write_file(names, reading, known)
            else:
                self._copy_known(
                    names, known, lambda names, known: self._write_file(names, reading, known)
                )
        finally:
            os.close(reading)

    def _write_file(self, names: Names, reading: int, known: os.stat_result) -> None:
        _, _, there, target = names
        try:
            writing = open_locked(
                target, there.descriptor, known, read=self._verify, owner=self._required_owner()
            )
        except TargetInUse:
            raise NotCopied(self._target.path(there, target), "another copy writes to it") from None
        except SameFile:
            raise NotCopied(self._target.path(there, target), _IS_SOURCE) from None
        except NotAFile as found:
            said = f"there is {found} where a file is to be copied to"
            raise NotCopied(self._target.path(there, target), said) from None
        try:
            self._written_file_system.add(writing)
            at = self._retry.resume(known, writing)
            self._tally.add_kept(at)
            copied = self._transfer.copy(reading, writing, known, at)
            self._check_unchanged(names, known, os.fstat(reading), copied)
            if self._verify and (where := first_difference(reading, writing)) is not None:
                said = f"differs from its source in byte {where} when it is read back"
                raise NotCopied(self._target.path(there, target), said)
            self._apply_metadata(metadata.read(reading, known), writing)
            if os.fstat(writing).st_size != known.st_size:
                said = f"has not the {known.st_size} bytes that were written to it"
                raise NotCopied(self._target.path(there, target), said)
        finally:
            close_locked(writing)

    def _check_unchanged(
        self, names: Names, known: os.stat_result, now: os.stat_result, copied: int
    ) -> None:
        here, source, _, _ = names
        if copied < known.st_size:
            said = f"only {copied} of {known.st_size} bytes could be copied"
        elif (now.st_size, now.st_mtime_ns) != (known.st_size, known.st_mtime_ns):
            said = "has changed while it was copied"
        else:
            return
        raise NotCopied(self._source.path(here, source), said)


def _mode(entry: "os.DirEntry[str]") -> int:
    """Return what an entry is, which most file systems tell with its name."""
    if entry.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0
