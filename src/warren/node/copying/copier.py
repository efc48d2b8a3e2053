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
from warren.node.beneath import (
    NotAFile,
    Place,
    SameFile,
    Tree,
    make_directories,
    open_to_read,
)
from warren.node.copying import fresh, metadata
from warren.node.copying.latency import Latency
from warren.node.copying.linked import Linked, Names
from warren.node.copying.metadata import Metadata
from warren.node.copying.pace import Pace
from warren.node.copying.quiet import BeingWritten, wait_quiet
from warren.node.copying.retry import MARK, Retry
from warren.node.copying.tally import Refused, Tally, words
from warren.node.copying.target import InUse, close, open_alone
from warren.node.copying.transfer import SMALL, Transfer, difference
from warren.node.copying.unwritten import take_back, take_back_tree
from warren.node.copying.workers import BATCH, Batch, Workers, is_local, useful
from warren.node.syncing import Written

_THREADS: Final = 4
_QUEUED: Final = 128
"""Files that may wait for a thread, so that a tree of any size fits into memory, and into the
descriptors that a process may have: each may be in another directory."""

_NO_LINK: Final = (errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS)
_EITHER: Final = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
"""Errors of which the kernel does not say on which side they are, when it copies."""
_TOO_MANY: Final = "has more directories, or names in one, than a copier has memory for"
_ITSELF: Final = "is what is to be copied there"
_OTHERS: Final = "modes, times and attributes of the source are not kept by what others own there"
_LESS: Final = "the extended attributes of the source are not kept there: the target has none"


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
        self._linked = Linked()
        self._latency = Latency()
        self._transfer = Transfer(Pace(rate), self._tally)
        self._places = threading.Semaphore(_QUEUED)
        self._written = Written()
        self._opened: list[tuple[Place, int]] = []
        """Directories that are no copies and were not writable, with the modes that they had."""
        self._copied: tuple[Place, str]
        """Where the source goes: a directory, and the name in it that a file has there."""
        self._short = not (retry.since or verify or rate)
        """Whether small files go the short way where they can."""
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
            self._tally.begin()  # its thread is the first
            try:
                with ThreadPoolExecutor(_THREADS) as pool:
                    self._copy(pool)
            finally:
                self._workers.close()
                self._close_up()
            self._sync()
            self._check_all_copied()
        except (OSError, Refused) as error:
            self._tally.fail(error)
        except MemoryError:
            fits = False  # what has taken it is only given back behind this clause
        if not fits:
            self._tally.fail(Refused(self._plan.source, _TOO_MANY))
        self._tally.end()
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
        self._target = Tree(plan.top, os.O_PATH, within=self._destination_storage, own=self._own())
        if not plan.below and self._is_source(os.stat(self._target.top.descriptor)):
            raise Refused(plan.top, _ITSELF)

    def _is_source(self, known: os.stat_result) -> bool:
        """Return whether a directory is the one whose tree is copied."""
        return self._tree and os.path.samestat(known, os.stat(self._source.top.descriptor))

    def _start_workers(self) -> None:
        ends = self._source.top.descriptor, self._target.top.descriptor
        if self._short and self._tree and all(map(is_local, ends)):
            self._local = os.fstat(ends[0]).st_dev, os.fstat(ends[1]).st_dev
            self._workers = Workers(useful(self._tally.total_files))

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
                descriptor = self._source.use(here)
            except OSError:
                continue
            with suppress(OSError), os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Place(here, entry.name))
                        continue
                    self._tally.total_files += 1
                    with suppress(OSError):
                        self._tally.total_bytes += entry.stat(follow_symlinks=False).st_size
            self._source.leave(here)

    def _sync(self) -> None:
        """Have all of it on the disk: what cannot be written there is not copied."""
        try:
            self._written.sync()
            # One that has become that by its errors writes nothing, and tells of none.
            if os.fstatvfs(self._target.top.descriptor).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        except OSError as error:
            self._tally.fail(Refused(self._plan.top, words(error)))
            self._take_back()

    def _take_back(self) -> None:
        """Have another try copy all of it again."""
        there, name = self._copied
        if self._tree:
            take_back_tree(self._source, self._target, there, self._enter, self._tally.fail)
            return
        source = os.path.basename(self._plan.source)
        try:
            below = self._target.use(there)
            take_back(source, self._source.top.descriptor, name, below)
        except OSError as error:
            self._tally.fail(error, self._target.path(there, name))

    def _check_all_copied(self) -> None:
        """Refuse to be content with fewer files than there were, or more."""
        counted, files = self._tally.total_files, self._tally.files
        if not self._tally.failed and files != counted:
            said = f"has changed: {counted} files were counted, and {files} copied"
            raise Refused(self._plan.source, said)

    def _copy(self, pool: ThreadPoolExecutor) -> None:
        there = self._target.top
        *directories, name = (
            self._plan.below if not self._plan.contents else (*self._plan.below, "")
        )
        for each in directories:
            there = self._make_directory(there, each, is_copy=False)
        if self._retry.since:  # what an earlier try has left may be in memory alone
            with suppress(OSError), self._directory(there) as descriptor:
                self._written.add(descriptor)
        if not self._tree:
            source = os.path.basename(self._plan.source)
            how = os.lstat(self._plan.source).st_mode
            self._copied = there, name
            self._submit(pool, (self._source.top, source, there, name), how)
            return
        top = self._source.top.descriptor
        copied: list[tuple[Place, Place | None, Metadata]] = []
        found = metadata.read(top, os.stat(top))
        if name:
            there = self._make_directory(there, name)
            copied.append((self._source.top, there, found))
        else:
            copied.append((self._source.top, None, found))
        self._copied = there, ""
        self._copy_tree(pool, there, copied)
        self._copy_left(pool, wait=True)
        pool.shutdown()  # waits: a directory's times are set when nothing more comes into it
        for here, place, known in reversed(copied):
            self._finish_directory(here, place, known)

    def _copy_tree(
        self,
        pool: ThreadPoolExecutor,
        top: Place,
        copied: list[tuple[Place, Place | None, Metadata]],
    ) -> None:
        """Have the files of a tree copied; note the directories, each before what is in it."""
        own = os.stat(self._target.use(top))
        self._target.leave(top)
        waiting: list[tuple[Place, Place]] = [(self._source.top, top)]
        while waiting:
            here, there = waiting.pop()
            try:
                descriptor = self._source.use(here)
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
                            raise Refused(path, "a directory is not copied into itself")
                        place = self._make_directory(there, entry.name)
                    except (OSError, Refused) as error:
                        self._tally.fail(error, self._source.path(here, entry.name))
                        continue
                    waiting.append((Place(here, entry.name), place))
            except OSError as error:
                self._tally.fail(error, self._source.path(here))
            finally:
                self._source.leave(here)

    # Directories

    def _make_directory(self, there: Place, name: str, *, is_copy: bool = True) -> Place:
        """Make a directory to copy into, or let us write into the one that an earlier copy made."""
        place = Place(there, name)
        try:
            above = self._target.use(there)
            try:
                os.mkdir(name, 0o700 if is_copy else 0o777, dir_fd=above)
            except FileExistsError:
                known = os.stat(name, dir_fd=above, follow_symlinks=False)
                if not stat.S_ISDIR(known.st_mode):
                    raise
                if self._own() not in (None, known.st_uid):
                    # It would be that user's to say who reads what is copied into it.
                    raise PermissionError(errno.EPERM, "is another user's directory") from None
                if self._is_source(known):
                    raise OSError(errno.EINVAL, _ITSELF) from None
                if self._open_up(place, known) and not is_copy:
                    self._opened.append((place, stat.S_IMODE(known.st_mode)))
            finally:
                self._target.leave(there)
        except OSError as error:
            raise Refused(self._target.path(place), words(error)) from None
        return place

    def _enter(self, there: Place, name: str) -> Place:
        """Let us write into a directory of the copy. Raises FileNotFoundError if there is none."""
        place = Place(there, name)
        above = self._target.use(there)
        try:
            self._open_up(place, os.stat(name, dir_fd=above, follow_symlinks=False))
        finally:
            self._target.leave(there)
        return place

    def _own(self) -> int | None:
        """Return the user who has to own all that is copied into; None outside of storage."""
        return identity.file_user() if self._destination_storage else None

    def _open_up(self, place: Place, known: os.stat_result) -> bool:
        """Let us write into a directory; return whether its mode had to be changed for that."""
        if known.st_mode & 0o300 == 0o300 or known.st_uid != identity.file_user():
            return False
        with self._directory(place) as descriptor:
            os.chmod(descriptor, 0o700)
        return True

    def _close_up(self) -> None:
        """Give directories the modes that they had, for which no copy has others."""
        for place, mode in reversed(self._opened):
            try:
                with self._directory(place) as descriptor:
                    os.chmod(descriptor, mode)
            except OSError as error:
                self._tally.fail(error, self._target.path(place))

    def _finish_directory(self, here: Place, place: Place | None, found: Metadata) -> None:
        """Give a directory its metadata, and tell whether its source has changed meanwhile."""
        try:
            descriptor = self._source.use(here)
            try:
                changed = os.stat(descriptor).st_mtime_ns != found.known.st_mtime_ns
            finally:
                self._source.leave(here)
            if changed:
                raise Refused(self._source.path(here), "has changed while it was copied")
        except (OSError, Refused) as error:
            self._tally.fail(error, self._source.path(here))
        if place is None:  # what was there already, and is not a copy
            return
        try:
            with self._directory(place) as descriptor:
                self._give(found, descriptor)
            self._tally.add_directory()
        except OSError as error:
            self._tally.fail(error, self._target.path(place))

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

    def _give(self, found: Metadata, target: int) -> None:
        try:
            if not found.put_on(target):
                self._tally.remark(_LESS)
        except PermissionError:
            # Only its owner gives a file a mode and times. In storage, nothing is another user's.
            if os.fstat(target).st_uid == identity.file_user():
                raise
            with suppress(OSError):
                os.removexattr(target, MARK)
            self._tally.remark(_OTHERS)

    # Files and links

    def _copy_entries(
        self,
        pool: ThreadPoolExecutor,
        here: Place,
        there: Place,
        entries: "Sequence[os.DirEntry[str]]",
    ) -> None:
        """Copy what is in a directory that is in use, but for other directories."""
        short = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                continue
            if self._short and entry.is_file(follow_symlinks=False):
                short.append(entry.name)
            else:
                self._submit(pool, (here, entry.name, there, entry.name), _mode(entry))
        if short:
            for name in self._copy_short(here, there, short):
                self._submit(pool, (here, name, there, name), stat.S_IFREG)
            self._copy_left(pool)

    def _copy_short(self, here: Place, there: Place, names: Sequence[str]) -> Sequence[str]:
        """Copy files the short way, here or in another process; return those that are left."""
        waiting = iter(names)
        left: list[str] = []
        with suppress(OSError), self._directory(there) as target:
            self._written.add(target)
            known = os.fstat(target)
            # Of another user's directory, what it hands down may change at any time.
            if self._own() not in (None, known.st_uid) or metadata.hands_down(target):
                return names
            above = here.descriptor
            local = self._local == (os.fstat(above).st_dev, known.st_dev)
            while some := list(islice(waiting, BATCH)):
                batch = Batch(here, there, some)
                if not (local and self._workers.give(batch, above, target)):
                    copied = fresh.copy_all(some, above, target, self._latency)
                    self._tally.add_whole(copied.files, copied.bytes)
                    left += copied.left
        return [*left, *waiting]

    def _copy_left(self, pool: ThreadPoolExecutor, *, wait: bool = False) -> None:
        """Count what other processes have copied, and copy what they have left."""
        for answer in self._workers.answers(wait=wait):
            here, there, copied = answer.batch.here, answer.batch.there, answer.copied
            self._tally.add_whole(copied.files, copied.bytes)
            if not copied.left:
                continue
            try:
                self._source.use(here)
            except OSError as error:
                for name in copied.left:
                    self._tally.fail(error, self._source.path(here, name))
                continue
            for name in copied.left:
                self._submit(pool, (here, name, there, name), stat.S_IFREG)
            self._source.leave(here)

    def _submit(self, pool: ThreadPoolExecutor, names: Names, how: int) -> None:
        """Copy a small file now, and a large one beside others, or all where each takes long."""
        aside = self._latency.is_long() or self._is_large(names)
        if aside:
            self._places.acquire()
        if not self._hold(names):
            if aside:
                self._places.release()
        elif aside:
            pool.submit(self._copy_submitted, names, how)
        else:
            began = time.monotonic()
            self._copy_one(names, how)
            self._let_go(names)
            self._latency.took(time.monotonic() - began)

    def _is_large(self, names: Names) -> bool:
        here, source, _, _ = names
        with suppress(OSError):
            known = os.stat(source, dir_fd=here.descriptor, follow_symlinks=False)
            return known.st_size > SMALL
        return False  # what is the matter with it, its copy tells

    def _copy_submitted(self, names: Names, how: int) -> None:
        try:
            self._copy_one(names, how)
        finally:
            self._let_go(names)
            self._places.release()

    def _hold(self, names: Names) -> bool:
        """Have the directories of a file opened; return whether they are."""
        here, source, there, target = names
        try:
            self._source.use(here)
            try:
                self._target.use(there)
            except OSError as error:
                self._source.leave(here)
                raise Refused(self._target.path(there, target), words(error)) from None
        except (OSError, Refused) as error:
            self._tally.fail(error, self._source.path(here, source))
            return False
        return True

    def _let_go(self, names: Names) -> None:
        here, _, there, _ = names
        self._source.leave(here)
        self._target.leave(there)

    def _copy_one(self, names: Names, how: int) -> None:
        here, source, there, target = names
        try:
            if stat.S_ISLNK(how):
                self._copy_known(names, self._known(names), self._copy_link)
            elif not stat.S_ISREG(how):
                raise Refused(self._source.path(here, source), "is neither a file nor a link")
            elif self._retry.since:
                self._copy_known(names, self._known(names), self._copy_again)
            else:
                self._copy_file(names)
        except (OSError, Refused) as error:
            path = self._target.path(there, target)
            if isinstance(error, OSError) and error.errno in _EITHER:
                path = f"{self._source.path(here, source)}, or its copy {path}"
            # Those without a name are of reading and writing, and all others mostly of writing.
            self._tally.fail(error, path)

    def _known(self, names: Names) -> os.stat_result:
        here, source, _, _ = names
        try:
            return os.stat(source, dir_fd=here.descriptor, follow_symlinks=False)
        except OSError as error:
            raise Refused(self._source.path(here, source), words(error)) from None

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
        first = self._linked.first(known, names)
        while first is not None:
            if first is names:
                return  # the one that is copying it goes on with this
            if self._link(first, names):
                self._tally.add_bytes(known.st_size)
                self._tally.add_file(is_link=is_link)
                return
            self._go_on(self._linked.failed(known, first), known)
            first = self._linked.first(known, names)
        try:
            copy(names, known)
        except BaseException:
            self._go_on(self._linked.failed(known, names), known)
            raise
        self._tally.add_file(is_link=is_link)
        self._go_on(self._linked.copied(known, names), known)

    def _go_on(self, waiting: Sequence[Names], known: os.stat_result) -> None:
        """Copy, or link, the names that have waited for another one."""
        for names in waiting:
            if not self._hold(names):
                continue
            _, _, there, target = names
            try:
                copy = self._copy_link if stat.S_ISLNK(known.st_mode) else self._copy_again
                self._copy_known(names, known, copy)
            except (OSError, Refused) as error:
                self._tally.fail(error, self._target.path(there, target))
            finally:
                self._let_go(names)

    def _link(self, first: Names, names: Names) -> bool:
        """Make a name of a copy that is there; return False where it can have no more names."""
        if not self._hold(first):
            return False
        _, _, from_place, from_name = first
        _, _, there, target = names
        try:
            self._make_link(from_place.descriptor, from_name, there.descriptor, target)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        finally:
            self._let_go(first)
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
            raise Refused(self._source.path(here, source), words(error)) from None
        above = there.descriptor
        try:
            os.symlink(to, target, dir_fd=above)
        except FileExistsError:
            found = os.stat(target, dir_fd=above, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                raise
            if os.path.samestat(found, known):
                raise Refused(self._target.path(there, target), _ITSELF) from None
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
                self._tally.keep(known.st_size)
                return
        self._copy_file(names, counted=True)

    def _copy_file(self, names: Names, *, counted: bool = False) -> None:
        """Copy a file; one that is `counted` is looked after by its caller."""
        here, source, _, _ = names
        try:
            reading, known = open_to_read(source, here.descriptor)
        except NotAFile as found:  # it was one when it was listed
            raise Refused(self._source.path(here, source), f"is {found} by now") from None
        except OSError as error:
            raise Refused(self._source.path(here, source), words(error)) from None
        try:
            try:
                known = wait_quiet(reading, known)
            except BeingWritten:
                path = self._source.path(here, source)
                raise Refused(path, "is being written to") from None
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
            writing = open_alone(
                target, there.descriptor, known, read=self._verify, own=self._own()
            )
        except InUse:
            raise Refused(self._target.path(there, target), "another copy writes to it") from None
        except SameFile:
            raise Refused(self._target.path(there, target), _ITSELF) from None
        except NotAFile as found:
            said = f"there is {found} where a file is to be copied to"
            raise Refused(self._target.path(there, target), said) from None
        try:
            self._written.add(writing)
            at = self._retry.begin(known, writing)
            self._tally.keep(at)
            copied = self._transfer.copy(reading, writing, known, at)
            self._check_unchanged(names, known, os.fstat(reading), copied)
            if self._verify and (where := difference(reading, writing)) is not None:
                said = f"differs from its source in byte {where} when it is read back"
                raise Refused(self._target.path(there, target), said)
            self._give(metadata.read(reading, known), writing)
            if os.fstat(writing).st_size != known.st_size:
                said = f"has not the {known.st_size} bytes that were written to it"
                raise Refused(self._target.path(there, target), said)
        finally:
            close(writing)

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
        raise Refused(self._source.path(here, source), said)


def _mode(entry: "os.DirEntry[str]") -> int:
    """Return what an entry is, which most file systems tell with its name."""
    if entry.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0
