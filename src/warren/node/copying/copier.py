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
from warren.node.copying.hardlinks import FilePair, HardLinks
from warren.node.copying.invalidation import invalidate, invalidate_tree
from warren.node.copying.latency import Latency
from warren.node.copying.metadata import Metadata
from warren.node.copying.quiescence import BeingWritten, wait_quiet
from warren.node.copying.ratelimit import RateLimit
from warren.node.copying.retry import MARK, CopyAttempt
from warren.node.copying.tally import NotCopied, Tally, error_text
from warren.node.copying.target import TargetInUse, close_locked, open_locked
from warren.node.copying.transfer import SMALL_FILE_BYTES, Transfer, first_difference
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
_MOST_QUEUED: Final = 128
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
        attempt: CopyAttempt,
        *,
        is_tree: bool,
        verify: bool = False,
        rate: int = 0,
        source_storage: str = "",
        destination_storage: str = "",
    ) -> None:
        """`is_tree` says that the source is a directory; all else is what a Copy says."""
        self._plan = plan
        self._source_storage = source_storage
        self._destination_storage = destination_storage
        self._attempt = attempt
        self._is_tree = is_tree
        self._verify = verify
        self._tally = Tally()
        self._hard_links = HardLinks()
        self._latency = Latency()
        self._transfer = Transfer(RateLimit(rate), self._tally)
        self._slots = threading.Semaphore(_MOST_QUEUED)
        self._written_file_system = WrittenFileSystem()
        self._made_writable: list[tuple[Directory, int]] = []
        """Directories that are no copies and were not writable, with the modes that they had."""
        self._destination: tuple[Directory, str]
        """Where the source goes: a directory, and the name in it that a file has there."""
        self._uses_fast_path = not (attempt.trusted_since or verify or rate)
        """Whether small files take the fast path where they can."""
        self._workers = Workers(0)
        self._local_devices: tuple[int, int] | None = None
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
        return self._tally.failure_count == 0

    def _open(self) -> None:
        plan = self._plan
        # A link that is named as the source stands for its directory: it may be a mount
        # of a node that has no mount namespace.
        if self._is_tree:
            self._source = Tree(plan.source, os.O_RDONLY, within=self._source_storage)
        else:
            os.lstat(plan.source)
            parent = os.path.dirname(plan.source) or "."
            self._source = Tree(parent, os.O_PATH, within=self._source_storage)
        make_directories(plan.top, self._destination_storage)
        self._target = Tree(
            plan.top, os.O_PATH, within=self._destination_storage, owner=self._required_owner()
        )
        if not plan.parts and self._is_source(os.stat(self._target.top.descriptor)):
            raise NotCopied(plan.top, _IS_SOURCE)

    def _is_source(self, status: os.stat_result) -> bool:
        """Return whether a directory is the one whose tree is copied."""
        return self._is_tree and os.path.samestat(status, os.stat(self._source.top.descriptor))

    def _start_workers(self) -> None:
        top_fds = self._source.top.descriptor, self._target.top.descriptor
        if self._uses_fast_path and self._is_tree and all(map(is_local, top_fds)):
            self._local_devices = os.fstat(top_fds[0]).st_dev, os.fstat(top_fds[1]).st_dev
            self._workers = Workers(worker_count(self._tally.total_files))

    def _count(self) -> None:
        """Count what there is to copy. What is in the way of that will be in the copy's way too."""
        if not self._is_tree:
            self._tally.total_files = 1
            self._tally.total_bytes = os.lstat(self._plan.source).st_size
            return
        waiting = [self._source.top]
        while waiting:
            directory = waiting.pop()
            try:
                descriptor = self._source.acquire(directory)
            except OSError:
                continue
            with suppress(OSError), os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Directory(directory, entry.name))
                        continue
                    self._tally.total_files += 1
                    with suppress(OSError):
                        self._tally.total_bytes += entry.stat(follow_symlinks=False).st_size
            self._source.release(directory)

    def _sync(self) -> None:
        """Have all of it on the disk: what cannot be written there is not copied."""
        try:
            self._written_file_system.sync()
            # A file system that errors have made read-only writes nothing, and reports no error.
            if os.fstatvfs(self._target.top.descriptor).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        except OSError as error:
            self._tally.fail(NotCopied(self._plan.top, error_text(error)))
            self._invalidate()

    def _invalidate(self) -> None:
        """Have another try copy all of it again."""
        target_dir, name = self._destination
        if self._is_tree:
            invalidate_tree(
                self._source, self._target, target_dir, self._enter_directory, self._tally.fail
            )
            return
        source = os.path.basename(self._plan.source)
        try:
            target_dir_fd = self._target.acquire(target_dir)
            invalidate(source, self._source.top.descriptor, name, target_dir_fd)
        except OSError as error:
            self._tally.fail(error, self._target.path(target_dir, name))

    def _check_all_copied(self) -> None:
        """Refuse to be content with fewer files than there were, or more."""
        counted, files = self._tally.total_files, self._tally.file_count
        if not self._tally.failure_count and files != counted:
            reason = f"has changed: {counted} files were counted, and {files} copied"
            raise NotCopied(self._plan.source, reason)

    def _copy(self, pool: ThreadPoolExecutor) -> None:
        target_dir = self._target.top
        *directories, name = (
            self._plan.parts if not self._plan.contents_only else (*self._plan.parts, "")
        )
        for each in directories:
            target_dir = self._make_directory(target_dir, each, is_copy=False)
        if self._attempt.trusted_since:  # what an earlier try has left may be in memory alone
            with suppress(OSError), self._open_target_dir(target_dir) as descriptor:
                self._written_file_system.add(descriptor)
        if not self._is_tree:
            source = os.path.basename(self._plan.source)
            mode = os.lstat(self._plan.source).st_mode
            self._destination = target_dir, name
            self._submit(pool, (self._source.top, source, target_dir, name), mode)
            return
        top = self._source.top.descriptor
        unfinished: list[tuple[Directory, Directory | None, Metadata]] = []
        source_metadata = metadata.read(top, os.stat(top))
        if name:
            target_dir = self._make_directory(target_dir, name)
            unfinished.append((self._source.top, target_dir, source_metadata))
        else:
            unfinished.append((self._source.top, None, source_metadata))
        self._destination = target_dir, ""
        self._copy_tree(pool, target_dir, unfinished)
        self._copy_skipped(pool, wait=True)
        pool.shutdown()  # waits: a directory's times are set when nothing more comes into it
        for source_dir, copy_dir, source_metadata in reversed(unfinished):
            self._finish_directory(source_dir, copy_dir, source_metadata)

    def _copy_tree(
        self,
        pool: ThreadPoolExecutor,
        top: Directory,
        unfinished: list[tuple[Directory, Directory | None, Metadata]],
    ) -> None:
        """Have the files of a tree copied; note the directories, each before what is in it."""
        top_status = os.stat(self._target.acquire(top))
        self._target.release(top)
        waiting: list[tuple[Directory, Directory]] = [(self._source.top, top)]
        while waiting:
            source_dir, target_dir = waiting.pop()
            try:
                descriptor = self._source.acquire(source_dir)
            except OSError as error:
                self._tally.fail(error, self._source.path(source_dir))
                continue
            try:
                if source_dir is not self._source.top:
                    source_metadata = metadata.read(descriptor, os.stat(descriptor))
                    unfinished.append((source_dir, target_dir, source_metadata))
                with os.scandir(descriptor) as listing:
                    entries = list(listing)
                self._copy_entries(pool, source_dir, target_dir, entries)
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        continue
                    try:
                        if os.path.samestat(entry.stat(follow_symlinks=False), top_status):
                            path = self._source.path(source_dir, entry.name)
                            raise NotCopied(path, "a directory is not copied into itself")
                        subdirectory = self._make_directory(target_dir, entry.name)
                    except (OSError, NotCopied) as error:
                        self._tally.fail(error, self._source.path(source_dir, entry.name))
                        continue
                    waiting.append((Directory(source_dir, entry.name), subdirectory))
            except OSError as error:
                self._tally.fail(error, self._source.path(source_dir))
            finally:
                self._source.release(source_dir)

    # Directories

    def _make_directory(self, parent: Directory, name: str, *, is_copy: bool = True) -> Directory:
        """Make a directory to copy into, or let us write into the one that an earlier copy made."""
        directory = Directory(parent, name)
        try:
            parent_fd = self._target.acquire(parent)
            try:
                os.mkdir(name, 0o700 if is_copy else 0o777, dir_fd=parent_fd)
            except FileExistsError:
                status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    raise
                if self._required_owner() not in (None, status.st_uid):
                    # It would be that user's to say who reads what is copied into it.
                    raise PermissionError(errno.EPERM, "is another user's directory") from None
                if self._is_source(status):
                    raise OSError(errno.EINVAL, _IS_SOURCE) from None
                if self._make_writable(directory, status) and not is_copy:
                    self._made_writable.append((directory, stat.S_IMODE(status.st_mode)))
            finally:
                self._target.release(parent)
        except OSError as error:
            raise NotCopied(self._target.path(directory), error_text(error)) from None
        return directory

    def _enter_directory(self, parent: Directory, name: str) -> Directory:
        """Let us write into a directory of the copy. Raises FileNotFoundError if there is none."""
        directory = Directory(parent, name)
        parent_fd = self._target.acquire(parent)
        try:
            self._make_writable(directory, os.stat(name, dir_fd=parent_fd, follow_symlinks=False))
        finally:
            self._target.release(parent)
        return directory

    def _required_owner(self) -> int | None:
        """Return the user who has to own all that is copied into; None outside of storage."""
        return identity.file_user() if self._destination_storage else None

    def _make_writable(self, directory: Directory, status: os.stat_result) -> bool:
        """Let us write into a directory; return whether its mode had to be changed for that."""
        if status.st_mode & 0o300 == 0o300 or status.st_uid != identity.file_user():
            return False
        with self._open_target_dir(directory) as descriptor:
            os.chmod(descriptor, 0o700)
        return True

    def _restore_modes(self) -> None:
        """Restore the modes of directories that are not part of the copy."""
        for directory, mode in reversed(self._made_writable):
            try:
                with self._open_target_dir(directory) as descriptor:
                    os.chmod(descriptor, mode)
            except OSError as error:
                self._tally.fail(error, self._target.path(directory))

    def _finish_directory(
        self, source_dir: Directory, target_dir: Directory | None, source_metadata: Metadata
    ) -> None:
        """Give a directory its metadata, and tell whether its source has changed meanwhile."""
        try:
            descriptor = self._source.acquire(source_dir)
            try:
                changed = os.stat(descriptor).st_mtime_ns != source_metadata.status.st_mtime_ns
            finally:
                self._source.release(source_dir)
            if changed:
                raise NotCopied(self._source.path(source_dir), "has changed while it was copied")
        except (OSError, NotCopied) as error:
            self._tally.fail(error, self._source.path(source_dir))
        if target_dir is None:  # what was there already, and is not a copy
            return
        try:
            with self._open_target_dir(target_dir) as descriptor:
                self._apply_metadata(source_metadata, descriptor)
            self._tally.add_directory()
        except OSError as error:
            self._tally.fail(error, self._target.path(target_dir))

    @contextmanager
    def _open_target_dir(self, directory: Directory) -> Iterator[int]:
        """Open a directory of the target to change its metadata: `Tree` opens it with O_PATH."""
        path_fd = self._target.acquire(directory)
        try:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_fd)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        finally:
            self._target.release(directory)

    def _apply_metadata(self, source_metadata: Metadata, target_fd: int) -> None:
        try:
            if not source_metadata.apply_to(target_fd):
                self._tally.remark(_NO_ATTRIBUTES)
        except PermissionError:
            # Only its owner gives a file a mode and times. In storage, nothing is another user's.
            if os.fstat(target_fd).st_uid == identity.file_user():
                raise
            with suppress(OSError):
                os.removexattr(target_fd, MARK)
            self._tally.remark(_OTHERS_OWN)

    # Files and links

    def _copy_entries(
        self,
        pool: ThreadPoolExecutor,
        source_dir: Directory,
        target_dir: Directory,
        entries: "Sequence[os.DirEntry[str]]",
    ) -> None:
        """Copy what is in a directory that is in use, but for other directories."""
        fast_path_names = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                continue
            if self._uses_fast_path and entry.is_file(follow_symlinks=False):
                fast_path_names.append(entry.name)
            else:
                self._submit(
                    pool, (source_dir, entry.name, target_dir, entry.name), _file_type(entry)
                )
        if fast_path_names:
            for name in self._copy_on_fast_path(source_dir, target_dir, fast_path_names):
                self._submit(pool, (source_dir, name, target_dir, name), stat.S_IFREG)
            self._copy_skipped(pool)

    def _copy_on_fast_path(
        self, source_dir: Directory, target_dir: Directory, names: Sequence[str]
    ) -> Sequence[str]:
        """Copy files on the fast path, here or in another process; return those that are left."""
        waiting = iter(names)
        skipped: list[str] = []
        with suppress(OSError), self._open_target_dir(target_dir) as target_dir_fd:
            self._written_file_system.add(target_dir_fd)
            status = os.fstat(target_dir_fd)
            # Of another user's directory, what it hands down may change at any time.
            if self._required_owner() not in (None, status.st_uid) or metadata.has_default_acl(
                target_dir_fd
            ):
                return names
            source_dir_fd = source_dir.descriptor
            both_local = self._local_devices == (os.fstat(source_dir_fd).st_dev, status.st_dev)
            while chunk := list(islice(waiting, BATCH)):
                batch = Batch(source_dir, target_dir, chunk)
                if not (both_local and self._workers.submit(batch, source_dir_fd, target_dir_fd)):
                    copied = fastpath.copy_all(chunk, source_dir_fd, target_dir_fd, self._latency)
                    self._tally.add_files(copied.file_count, copied.byte_count)
                    skipped += copied.skipped
        return [*skipped, *waiting]

    def _copy_skipped(self, pool: ThreadPoolExecutor, *, wait: bool = False) -> None:
        """Count what other processes have copied, and copy what they have left."""
        for answer in self._workers.answers(wait=wait):
            source_dir, target_dir, copied = (
                answer.batch.source_dir,
                answer.batch.target_dir,
                answer.copied,
            )
            self._tally.add_files(copied.file_count, copied.byte_count)
            if not copied.skipped:
                continue
            try:
                self._source.acquire(source_dir)
            except OSError as error:
                for name in copied.skipped:
                    self._tally.fail(error, self._source.path(source_dir, name))
                continue
            for name in copied.skipped:
                self._submit(pool, (source_dir, name, target_dir, name), stat.S_IFREG)
            self._source.release(source_dir)

    def _submit(self, pool: ThreadPoolExecutor, pair: FilePair, mode: int) -> None:
        """Copy a small file now, and a large one in the pool; while files take long, any one."""
        in_pool = self._latency.is_long() or self._is_large(pair)
        if in_pool:
            self._slots.acquire()
        if not self._open_directories(pair):
            if in_pool:
                self._slots.release()
        elif in_pool:
            pool.submit(self._copy_submitted, pair, mode)
        else:
            began = time.monotonic()
            self._copy_entry(pair, mode)
            self._close_directories(pair)
            self._latency.add(time.monotonic() - began)

    def _is_large(self, pair: FilePair) -> bool:
        source_dir, source, _, _ = pair
        with suppress(OSError):
            status = os.stat(source, dir_fd=source_dir.descriptor, follow_symlinks=False)
            return status.st_size > SMALL_FILE_BYTES
        return False  # what is the matter with it, its copy tells

    def _copy_submitted(self, pair: FilePair, mode: int) -> None:
        try:
            self._copy_entry(pair, mode)
        finally:
            self._close_directories(pair)
            self._slots.release()

    def _open_directories(self, pair: FilePair) -> bool:
        """Have the directories of a file opened; return whether they are."""
        source_dir, source, target_dir, target = pair
        try:
            self._source.acquire(source_dir)
            try:
                self._target.acquire(target_dir)
            except OSError as error:
                self._source.release(source_dir)
                raise NotCopied(self._target.path(target_dir, target), error_text(error)) from None
        except (OSError, NotCopied) as error:
            self._tally.fail(error, self._source.path(source_dir, source))
            return False
        return True

    def _close_directories(self, pair: FilePair) -> None:
        source_dir, _, target_dir, _ = pair
        self._source.release(source_dir)
        self._target.release(target_dir)

    def _copy_entry(self, pair: FilePair, mode: int) -> None:
        source_dir, source, target_dir, target = pair
        try:
            if stat.S_ISLNK(mode):
                self._copy_inode(pair, self._stat(pair), self._copy_link)
            elif not stat.S_ISREG(mode):
                raise NotCopied(
                    self._source.path(source_dir, source), "is neither a file nor a link"
                )
            elif self._attempt.trusted_since:
                self._copy_inode(pair, self._stat(pair), self._copy_unless_finished)
            else:
                self._copy_file(pair)
        except (OSError, NotCopied) as error:
            path = self._target.path(target_dir, target)
            if isinstance(error, OSError) and error.errno in _ON_EITHER_SIDE:
                path = f"{self._source.path(source_dir, source)}, or its copy {path}"
            # Those without a name are of reading and writing, and all others mostly of writing.
            self._tally.fail(error, path)

    def _stat(self, pair: FilePair) -> os.stat_result:
        source_dir, source, _, _ = pair
        try:
            return os.stat(source, dir_fd=source_dir.descriptor, follow_symlinks=False)
        except OSError as error:
            raise NotCopied(self._source.path(source_dir, source), error_text(error)) from None

    def _copy_inode(
        self,
        pair: FilePair,
        status: os.stat_result,
        copy: Callable[[FilePair, os.stat_result], None],
    ) -> None:
        """Copy what has not been copied by another name of it, and count it in."""
        is_link = stat.S_ISLNK(status.st_mode)
        if status.st_nlink <= 1:
            copy(pair, status)
            self._tally.add_file(is_link=is_link)
            return
        first = self._hard_links.first_copy(status, pair)
        while first is not None:
            if first is pair:
                return  # the one that is copying it goes on with this
            if self._link(first, pair):
                self._tally.add_bytes(status.st_size)
                self._tally.add_file(is_link=is_link)
                return
            self._copy_waiting(self._hard_links.mark_failed(status, first), status)
            first = self._hard_links.first_copy(status, pair)
        try:
            copy(pair, status)
        except BaseException:
            self._copy_waiting(self._hard_links.mark_failed(status, pair), status)
            raise
        self._tally.add_file(is_link=is_link)
        self._copy_waiting(self._hard_links.mark_copied(status, pair), status)

    def _copy_waiting(self, waiting: Sequence[FilePair], status: os.stat_result) -> None:
        """Copy, or link, the names that have waited for another one."""
        for pair in waiting:
            if not self._open_directories(pair):
                continue
            _, _, target_dir, target = pair
            try:
                copy = (
                    self._copy_link if stat.S_ISLNK(status.st_mode) else self._copy_unless_finished
                )
                self._copy_inode(pair, status, copy)
            except (OSError, NotCopied) as error:
                self._tally.fail(error, self._target.path(target_dir, target))
            finally:
                self._close_directories(pair)

    def _link(self, first: FilePair, pair: FilePair) -> bool:
        """Make a name of a copy that is there; return False where it can have no more names."""
        if not self._open_directories(first):
            return False
        _, _, copied_dir, copied_name = first
        _, _, target_dir, target = pair
        try:
            self._make_link(copied_dir.descriptor, copied_name, target_dir.descriptor, target)
        except OSError as error:
            if error.errno in _LINK_REFUSED:
                return False
            raise
        finally:
            self._close_directories(first)
        return True

    def _make_link(
        self, copied_dir_fd: int, copied_name: str, target_dir_fd: int, target: str
    ) -> None:
        options = {
            "src_dir_fd": copied_dir_fd,
            "dst_dir_fd": target_dir_fd,
            "follow_symlinks": False,
        }
        try:
            os.link(copied_name, target, **options)  # type: ignore[arg-type]
        except FileExistsError:
            copied = os.stat(copied_name, dir_fd=copied_dir_fd, follow_symlinks=False)
            present = os.stat(target, dir_fd=target_dir_fd, follow_symlinks=False)
            if os.path.samestat(copied, present):
                return
            if stat.S_IFMT(copied.st_mode) != stat.S_IFMT(present.st_mode):
                raise
            os.unlink(target, dir_fd=target_dir_fd)
            os.link(copied_name, target, **options)  # type: ignore[arg-type]

    def _copy_link(self, pair: FilePair, status: os.stat_result) -> None:
        source_dir, source, target_dir, target = pair
        try:
            link_target = os.readlink(source, dir_fd=source_dir.descriptor)
        except OSError as error:
            raise NotCopied(self._source.path(source_dir, source), error_text(error)) from None
        target_dir_fd = target_dir.descriptor
        try:
            os.symlink(link_target, target, dir_fd=target_dir_fd)
        except FileExistsError:
            present = os.stat(target, dir_fd=target_dir_fd, follow_symlinks=False)
            if not stat.S_ISLNK(present.st_mode):
                raise
            if os.path.samestat(present, status):
                raise NotCopied(self._target.path(target_dir, target), _IS_SOURCE) from None
            os.unlink(target, dir_fd=target_dir_fd)
            os.symlink(link_target, target, dir_fd=target_dir_fd)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(target, ns=times, dir_fd=target_dir_fd, follow_symlinks=False)
        self._tally.add_bytes(len(os.fsencode(link_target)))

    def _copy_unless_finished(self, pair: FilePair, status: os.stat_result) -> None:
        """Copy a file, unless an earlier try has done so."""
        _, _, target_dir, target = pair
        with suppress(OSError):
            present = os.stat(target, dir_fd=target_dir.descriptor, follow_symlinks=False)
            if stat.S_ISREG(present.st_mode) and self._attempt.is_finished(status, present):
                self._tally.add_kept(status.st_size)
                return
        self._copy_file(pair, caller_counts=True)

    def _copy_file(self, pair: FilePair, *, caller_counts: bool = False) -> None:
        """Copy a file; with `caller_counts` its caller counts it, and looks after its links."""
        source_dir, source, _, _ = pair
        try:
            source_fd, status = open_to_read(source, source_dir.descriptor)
        except NotAFile as error:  # it was one when it was listed
            raise NotCopied(self._source.path(source_dir, source), f"is {error} by now") from None
        except OSError as error:
            raise NotCopied(self._source.path(source_dir, source), error_text(error)) from None
        try:
            try:
                status = wait_quiet(source_fd, status)
            except BeingWritten:
                path = self._source.path(source_dir, source)
                raise NotCopied(path, "is being written to") from None
            if caller_counts:
                self._write_file(pair, source_fd, status)
            else:
                self._copy_inode(
                    pair, status, lambda pair, status: self._write_file(pair, source_fd, status)
                )
        finally:
            os.close(source_fd)

    def _write_file(self, pair: FilePair, source_fd: int, status: os.stat_result) -> None:
        _, _, target_dir, target = pair
        try:
            target_fd = open_locked(
                target,
                target_dir.descriptor,
                status,
                readable=self._verify,
                owner=self._required_owner(),
            )
        except TargetInUse:
            raise NotCopied(
                self._target.path(target_dir, target), "another copy writes to it"
            ) from None
        except SameFile:
            raise NotCopied(self._target.path(target_dir, target), _IS_SOURCE) from None
        except NotAFile as error:
            reason = f"there is {error} where a file is to be copied to"
            raise NotCopied(self._target.path(target_dir, target), reason) from None
        try:
            self._written_file_system.add(target_fd)
            offset = self._attempt.resume(status, target_fd)
            self._tally.add_kept(offset)
            copied = self._transfer.copy(source_fd, target_fd, status, offset)
            self._check_unchanged(pair, status, os.fstat(source_fd), copied)
            if self._verify and (position := first_difference(source_fd, target_fd)) is not None:
                reason = f"differs from its source in byte {position} when it is read back"
                raise NotCopied(self._target.path(target_dir, target), reason)
            self._apply_metadata(metadata.read(source_fd, status), target_fd)
            if os.fstat(target_fd).st_size != status.st_size:
                reason = f"has not the {status.st_size} bytes that were written to it"
                raise NotCopied(self._target.path(target_dir, target), reason)
        finally:
            close_locked(target_fd)

    def _check_unchanged(
        self, pair: FilePair, status: os.stat_result, now: os.stat_result, copied: int
    ) -> None:
        source_dir, source, _, _ = pair
        if copied < status.st_size:
            reason = f"only {copied} of {status.st_size} bytes could be copied"
        elif (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            reason = "has changed while it was copied"
        else:
            return
        raise NotCopied(self._source.path(source_dir, source), reason)


def _file_type(entry: "os.DirEntry[str]") -> int:
    """Return what an entry is, which most file systems tell with its name."""
    if entry.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0
