"""Copies that are cut short, tried again, or disturbed: nothing incomplete looks complete."""

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.copied import OLD, Copier, Outcome, User, shape, tree
from tests.node.test_acl import USER, list_of
from warren.dws.copies import staging
from warren.dws.node import Progress
from warren.node import acl, copying, identity, syncing
from warren.node.copying import copier, target
from warren.node.copying.invalidation import invalidate
from warren.node.copying.latency import Latency
from warren.node.copying.ratelimit import RateLimit
from warren.node.copying.retry import MARK, CopyAttempt
from warren.node.copying.target import TargetInUse, close_locked, open_locked
from warren.node.copying.transfer import first_difference

MIB = 2**20


def old(path: Path) -> None:
    os.utime(path, ns=(OLD, OLD))


def now() -> float:
    """When a movement is made: after all that was written before, by the kernel's coarse clock."""
    time.sleep(0.02)
    return time.time()


@contextmanager
def in_the_middle(
    copy: Copier, reached: Callable[[Progress], bool], **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """A copier from `in` to `out` that has come so far, and goes on when `ended` is called."""
    argv = copy.command("in", "out", **options)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if reached(copying.progress(line)):
                    break
            os.kill(process.pid, signal.SIGSTOP)
            yield process
        finally:
            process.kill()


def ended(process: "subprocess.Popen[str]") -> Outcome:
    os.kill(process.pid, signal.SIGCONT)
    output, complaints = process.communicate(timeout=120)
    told = [copying.progress(line) for line in output.splitlines()]
    assert process.returncode is not None
    return Outcome(process.returncode, told, complaints.splitlines())


# Once more


def test_another_try_copies_nothing_that_is_there(copy: Copier) -> None:
    source = tree(copy.place / "in")
    since = now()
    copy.well("in", "out", movement="m")
    before = {path: path.lstat().st_ctime_ns for path in (copy.place / "out").rglob("[ot]*")}
    assert before
    outcome = copy.well("in", "out", movement="m", since=since)

    files = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    assert outcome.last.earlier_bytes == sum(path.stat().st_size for path in files)
    assert {path: path.lstat().st_ctime_ns for path in before} == before
    assert shape(copy.place / "out" / "in") == shape(source)


def test_a_first_try_copies_all(copy: Copier) -> None:
    tree(copy.place / "in")
    copy.well("in", "out", movement="m")

    assert copy.well("in", "out", movement="n").last.earlier_bytes == 0


def test_what_looks_the_same_but_was_there_before_is_no_copy(copy: Copier) -> None:
    for name, text in (("in", "new"), ("out", "old")):
        (copy.place / name).write_text(text)
        old(copy.place / name)
    os.chown(copy.place / "out", copy.user.userid, copy.user.groupid)
    outcome = copy.well("in", "out", movement="m", since=now())

    assert outcome.last.earlier_bytes == 0
    assert (copy.place / "out").read_text() == "new"


def test_a_source_that_was_changed_between_two_tries_is_copied_again(copy: Copier) -> None:
    (copy.place / "in").write_text("old")
    old(copy.place / "in")
    since = now()
    copy.well("in", "out", movement="m")
    (copy.place / "in").write_text("new")
    old(copy.place / "in")
    copy.well("in", "out", movement="m", since=since)

    assert (copy.place / "out").read_text() == "new"


def test_a_tree_whose_copier_is_killed_is_completed_by_another_try(copy: Copier) -> None:
    source = copy.place / "in"
    source.mkdir()
    for number in range(40):
        (source / str(number)).write_bytes(os.urandom(MIB))
    since = now()
    half = 20 * MIB
    with in_the_middle(copy, lambda told: told.bytes > half, rate=20 * MIB) as process:
        process.kill()
    outcome = copy.well("in", "out", since=since)

    assert half - 8 * MIB <= outcome.last.earlier_bytes < 40 * MIB
    assert shape(copy.place / "out" / "in") == shape(source)


@pytest.mark.parametrize("same", [True, False])
def test_a_large_file_is_gone_on_with_by_the_movement_that_began_it(
    copy: Copier, same: bool
) -> None:
    (copy.place / "in").write_bytes(os.urandom(100 * MIB))
    old(copy.place / "in")
    since = now()
    far = 70 * MIB
    with in_the_middle(copy, lambda told: told.bytes > far, movement="m", rate=50 * MIB) as process:
        process.kill()
    target = copy.place / "out"
    if MARK not in os.listxattr(target):
        pytest.skip("files have no extended attributes here")
    assert far < target.stat().st_size < 100 * MIB
    outcome = copy.well("in", "out", movement="m" if same else "n", since=since)

    assert (outcome.last.earlier_bytes > far - 40 * MIB) is same
    assert target.read_bytes() == (copy.place / "in").read_bytes()
    assert MARK not in os.listxattr(target)
    assert target.stat().st_mtime_ns == OLD


def move_on(place: Path) -> None:
    (place / "in").unlink()
    (place / "in").symlink_to("other")


def rewrite(place: Path) -> None:
    (place / "one" / "file").write_bytes((place / "other" / "file").read_bytes())
    old(place / "one" / "file")


@pytest.mark.parametrize("change", [move_on, rewrite])
def test_another_try_does_not_go_on_with_another_file_of_the_same_name(
    copy: Copier, change: Callable[[Path], None]
) -> None:
    for name in ("one", "other"):
        (copy.place / name).mkdir()
        (copy.place / name / "file").write_bytes(name[:3].encode() * 32 * MIB)
        old(copy.place / name / "file")
    (copy.place / "in").symlink_to("one")
    since = now()
    far = 60 * MIB
    with in_the_middle(copy, lambda told: told.bytes > far, movement="m", rate=50 * MIB) as process:
        process.kill()
    target = copy.place / "out" / "in" / "file"
    if MARK not in os.listxattr(target):
        pytest.skip("files have no extended attributes here")
    change(copy.place)
    # As if the API server's clock were ahead of the file system's.
    outcome = copy.well("in", "out", movement="m", since=since + 20)

    assert outcome.last.earlier_bytes == 0
    assert target.read_bytes() == (copy.place / "other" / "file").read_bytes()


def known(path: Path) -> os.stat_result:
    return os.stat(path)


def test_a_copy_is_finished_only_if_nothing_speaks_against_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"1")
    since = now()
    time.sleep(0.02)
    target.write_bytes(b"1")
    shutil.copystat(source, target)
    own = os.geteuid()
    before = known(source).st_ctime - 1

    assert CopyAttempt(b"m", since, since, own).is_finished(known(source), known(target))
    # A first try; another owner; a machine that was started since; a source that changed since.
    assert not CopyAttempt(b"m", 0, 0, own).is_finished(known(source), known(target))
    assert not CopyAttempt(b"m", since, since, own + 1).is_finished(known(source), known(target))
    assert not CopyAttempt(b"m", now(), since, own).is_finished(known(source), known(target))
    assert not CopyAttempt(b"m", before, before, own).is_finished(known(source), known(target))
    os.utime(target)
    assert not CopyAttempt(b"m", since, since, own).is_finished(known(source), known(target))
    target.write_bytes(b"12")
    shutil.copystat(source, target)
    assert not CopyAttempt(b"m", since, since, own).is_finished(known(source), known(target))


# A source that changes


def throttled(copy: Copier) -> Path:
    """Make a source of 30 files, which take their time."""
    source = copy.place / "in"
    source.mkdir()
    for number in range(30):
        (source / str(number)).write_bytes(bytes(MIB))
    return source


def test_a_file_that_vanishes_in_the_middle_is_told(copy: Copier) -> None:
    source = throttled(copy)
    with in_the_middle(copy, lambda told: told.files > 2, rate=20 * MIB) as process:
        there = {path.name for path in (copy.place / "out" / "in").iterdir()}
        gone = sorted(path for path in source.iterdir() if path.name not in there)[-1]
        gone.unlink()
        outcome = ended(process)

    assert outcome.status == copying.FAILED
    assert f"{gone}: No such file or directory" in outcome.complaints
    assert f"{source}: has changed while it was copied" in outcome.complaints
    assert outcome.last.files == 29


def test_a_file_that_may_not_be_read_any_more_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    source = throttled(copy)
    with in_the_middle(copy, lambda told: told.files > 2, rate=20 * MIB) as process:
        there = {path.name for path in (copy.place / "out" / "in").iterdir()}
        locked = sorted(path for path in source.iterdir() if path.name not in there)[-1]
        locked.chmod(0)
        outcome = ended(process)

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{locked}: Permission denied"]
    assert outcome.last.files == 29


def test_a_file_that_appears_in_the_middle_is_told(copy: Copier) -> None:
    source = throttled(copy)
    with in_the_middle(copy, lambda told: told.files > 2, rate=20 * MIB) as process:
        (source / "more").touch()
        outcome = ended(process)

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{source}: has changed while it was copied"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda file: file.truncate(10 * MIB), "of 41943040 bytes could be copied"),
        (lambda file: file.truncate(50 * MIB), "has changed while it was copied"),
        (lambda file: file.write(b"x"), "has changed while it was copied"),
    ],
)
def test_a_file_that_changes_in_the_middle_is_told(
    copy: Copier, change: Callable[[object], object], told: str
) -> None:
    (copy.place / "in").write_bytes(b"y" * 40 * MIB)
    old(copy.place / "in")
    with in_the_middle(copy, lambda told: told.bytes > 5 * MIB, rate=10 * MIB) as process:
        with (copy.place / "in").open("r+b") as file:
            change(file)
        outcome = ended(process)

    assert outcome.status == copying.FAILED
    (complaint,) = outcome.complaints
    assert complaint.startswith(f"{copy.place}/in: ")
    assert complaint.endswith(told)


# Another copy


def test_of_two_copies_to_one_file_one_is_told(copy: Copier) -> None:
    for name in ("in", "other"):
        (copy.place / name).write_bytes(name[:1].encode() * 20 * MIB)
    with in_the_middle(copy, lambda told: told.bytes > 5 * MIB, rate=10 * MIB) as process:
        second = copy("other", "out")
        first = ended(process)

    assert second.status == copying.FAILED
    assert second.complaints == [f"{copy.place}/out: another copy writes to it"]
    assert (first.status, first.complaints) == (0, [])
    assert (copy.place / "out").read_bytes() == (copy.place / "in").read_bytes()
    copy.well("other", "out")


@pytest.mark.parametrize("how", ["flock", "fcntl"])
def test_those_who_only_read_a_file_keep_no_copy_from_it(copy: Copier, how: str) -> None:
    (copy.place / "in").write_bytes(b"in")
    (copy.place / "out").write_bytes(b"was there before")
    os.chown(copy.place / "out", copy.user.userid, copy.user.groupid)
    with (copy.place / "out").open("rb") as reader:
        if how == "flock":
            fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.lockf(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
        copy.well("in", "out")

    assert (copy.place / "out").read_bytes() == b"in"


def test_those_who_run_a_program_keep_no_copy_from_it(copy: Copier) -> None:
    (copy.place / "in").write_bytes(b"in")
    program = copy.place / "out"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    os.chown(program, copy.user.userid, copy.user.groupid)
    program.chmod(0o755)
    with subprocess.Popen([program, "600"]) as running:
        try:
            copy.well("in", "out")
        finally:
            running.kill()

    assert program.read_bytes() == b"in"


def test_a_small_file_that_another_copy_is_making_is_not_mixed_with_it(copy: Copier) -> None:
    (copy.place / "in").write_bytes(b"in")
    making = os.open(copy.place / "out", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.chown(making, copy.user.userid, copy.user.groupid)
    os.fchmod(making, 0o644)
    copy.well("in", "out")
    os.write(making, b"another one")
    os.close(making)

    assert (copy.place / "out").read_bytes() == b"in"


def test_a_file_that_was_there_for_long_is_written_to_in_its_place(
    copy: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory may be another user's."""
    (copy.place / "in").write_bytes(b"in")
    (copy.place / "out").write_bytes(b"out")
    before = (copy.place / "out").stat()
    above = os.open(copy.place, os.O_RDONLY)
    source = (copy.place / "in").stat()
    for later, replaced in ((120.0, False), (1.0, True)):
        monkeypatch.setattr(time, "time", lambda later=later: before.st_ctime + later)
        descriptor = open_locked("out", above, source)
        assert (os.fstat(descriptor).st_ino != before.st_ino) is replaced
        os.close(descriptor)
    os.close(above)


def test_a_file_that_was_prepared_for_a_copy_is_kept(copy: Copier) -> None:
    """As one with a layout of Lustre, which is an attribute."""
    (copy.place / "in").write_bytes(b"in")
    (copy.place / "out").touch()
    try:
        os.setxattr(copy.place / "out", "user.layout", b"wide")
    except OSError as error:
        pytest.skip(f"files have no such attributes here: {error.strerror}")
    before = (copy.place / "out").stat()
    above = os.open(copy.place, os.O_RDONLY)
    descriptor = open_locked("out", above, (copy.place / "in").stat())
    assert os.fstat(descriptor).st_ino == before.st_ino
    close_locked(descriptor)
    os.close(above)


def test_a_file_whose_copy_is_over_is_free_though_it_is_still_to_be_synced(copy: Copier) -> None:
    (copy.place / "in").write_bytes(b"in")
    (copy.place / "out").write_bytes(bytes(MIB))
    above, source = os.open(copy.place, os.O_RDONLY), (copy.place / "in").stat()
    descriptor = open_locked("out", above, source)
    later = os.dup(descriptor)
    with pytest.raises(TargetInUse):
        open_locked("out", above, source)
    close_locked(descriptor)
    close_locked(open_locked("out", above, source))
    os.close(later)
    os.close(above)


def test_a_file_that_another_copy_makes_in_the_place_of_one_is_left_to_it(
    copy: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy.place / "in").write_bytes(b"in")
    (copy.place / "out").write_bytes(b"out")

    def lose(name: str, above: int, *, readable: bool) -> int:
        os.unlink(name, dir_fd=above)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(target, "replace", lose)
    monkeypatch.setattr(identity, "file_user", os.geteuid)
    above = os.open(copy.place, os.O_RDONLY)
    with pytest.raises(TargetInUse):
        open_locked("out", above, (copy.place / "in").stat())
    os.close(above)


@pytest.mark.parametrize("listed", [False, True])
def test_a_copy_over_a_public_file_is_its_owners_alone_until_it_is_whole(
    copy: Copier, listed: bool
) -> None:
    (copy.place / "in").write_bytes(b"secret" * 4 * MIB)
    (copy.place / "out").write_bytes(b"public" * MIB)
    for name, mode in (("in", 0o600), ("out", 0o644)):
        os.chown(copy.place / name, copy.user.userid, copy.user.groupid)
        (copy.place / name).chmod(mode)
    if listed:
        try:
            os.setxattr(copy.place / "out", acl.NAME, list_of(0, 5, 0, (USER, 4, 5)))
        except OSError as error:
            pytest.skip(f"no access control lists here: {error.strerror}")
    with in_the_middle(copy, lambda told: told.bytes > 5 * MIB, rate=10 * MIB) as process:
        assert (copy.place / "out").stat().st_size > 5 * MIB
        assert stat.S_IMODE((copy.place / "out").stat().st_mode) == 0o600
        outcome = ended(process)

    assert outcome.status == 0
    assert stat.S_IMODE((copy.place / "out").stat().st_mode) == 0o600


# What goes wrong below


def test_what_was_written_is_compared_with_its_source_if_that_is_asked_for(copy: Copier) -> None:
    (copy.place / "in").write_bytes(b"y" * 20 * MIB)
    with in_the_middle(
        copy, lambda told: told.bytes > 5 * MIB, verify=True, rate=10 * MIB
    ) as process:
        descriptor = os.open(copy.place / "out", os.O_WRONLY)
        os.pwrite(descriptor, b"x", 12345)
        os.close(descriptor)
        outcome = ended(process)

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [
        f"{copy.place}/out: differs from its source in byte 12345 when it is read back"
    ]
    assert copy.well("in", "out", verify=True).last.bytes == 20 * MIB


@pytest.mark.parametrize(
    ("source", "target", "byte"),
    [
        ([(0, b"abc")], [(0, b"abc")], None),
        ([(0, b"abc")], [(0, b"abd")], 2),
        ([(0, b"abc")], [(0, b"ab")], 2),
        ([(0, b"ab")], [(0, b"abc")], 2),
        ([(2**30, b"a")], [(2**30, b"a")], None),
        ([(2**30, b"a")], [(2**30, b"b")], 2**30),
        ([(2**30, b"a")], [(2**20, b"b"), (2**30, b"a")], 2**20),
        ([(2**20, b"b"), (2**30, b"a")], [(2**30, b"a")], 2**20),
        ([(0, b"x" * 3 * MIB)], [(0, b"x" * (2 * MIB + 7) + b"y" + b"x" * (MIB - 8))], 2 * MIB + 7),
    ],
)
def test_a_difference_is_found_wherever_it_is(
    tmp_path: Path,
    source: list[tuple[int, bytes]],
    target: list[tuple[int, bytes]],
    byte: int | None,
) -> None:
    for name, pieces in (("source", source), ("target", target)):
        with (tmp_path / name).open("wb") as file:
            for at, data in pieces:
                file.seek(at)
                file.write(data)
    with (tmp_path / "source").open("rb") as one, (tmp_path / "target").open("rb") as other:
        assert first_difference(one.fileno(), other.fileno()) == byte


def mounting(mount: str) -> list[str]:
    """The beginning of a command that mounts something where nobody else sees it."""
    nsenter = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if os.geteuid() != 0:
        nsenter.insert(1, "--map-root-user")
    if subprocess.run([*nsenter, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    return nsenter


@pytest.mark.parametrize("large", [True, False])
def test_a_target_that_is_full_is_told(copy: Copier, large: bool) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "out").mkdir()
    for number in range(3 if large else 30):
        (copy.place / "in" / str(number)).write_bytes(bytes(2 * MIB if large else 200_000))
    mount = f"mount -t tmpfs -o size=4m,mode=777 none '{copy.place}/out' && exec \"$@\""
    outcome = copy("in", "out", nsenter=mounting(mount))

    assert outcome.status == copying.FAILED
    assert outcome.complaints
    for complaint in outcome.complaints[:10]:
        assert complaint.startswith(f"{copy.place}/out/in/")
        assert complaint.endswith(f": {os.strerror(errno.ENOSPC)}")
    assert outcome.last.files < outcome.last.total_files


def test_an_error_of_the_disk_is_told_with_both_names(public: Path) -> None:
    copy = Copier(public, User(os.geteuid(), os.getegid()))
    memory = os.path.relpath("/proc/self/mem", public)  # of which the first page cannot be read
    outcome = copy(memory, "out")

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [
        f"{public}/{memory}, or its copy {public}/out: {os.strerror(errno.EIO)}"
    ]


def test_what_does_not_reach_the_disk_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that fails tells of it when all is written out, and not before."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"x")
    plan = staging.Plan(str(tmp_path / "in"), str(tmp_path), ("out",), contents_only=False)
    monkeypatch.setattr(syncing, "sync_file_system", fail)

    assert not copier.Copier(plan, CopyAttempt.of("", 0), is_tree=True).run()
    assert capsys.readouterr().err == f"{tmp_path}: {os.strerror(errno.EIO)}\n"


@pytest.mark.parametrize("name", ["in", "in/deep/two"])
def test_what_did_not_reach_the_disk_is_copied_again_by_another_try(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """The kernel tells of it once: for another try, all looks well."""
    source = tree(tmp_path / "in")
    (source / "deep" / "two").chmod(0o444)
    (source / "deep").chmod(0o555)
    since = now()
    plan = staging.Plan(str(tmp_path / name), str(tmp_path), ("out",), contents_only=False)
    sync, failures = syncing.sync_file_system, [OSError(errno.EIO, os.strerror(errno.EIO))]

    def fail_once(descriptor: int) -> None:
        if failures:
            raise failures.pop()
        sync(descriptor)

    def attempt(since: float) -> tuple[bool, Progress]:
        is_tree = os.path.isdir(plan.source)
        well = copier.Copier(plan, CopyAttempt.of("m", since), is_tree=is_tree).run()
        return well, copying.progress(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr(syncing, "sync_file_system", fail_once)
    assert not attempt(0)[0]
    well, told = attempt(since)

    assert well
    assert (told.earlier_bytes, told.bytes) == (0, told.total_bytes)
    well, told = attempt(since)
    assert well
    assert told.earlier_bytes > 0
    copied = tmp_path / "out"
    assert (copied if copied.is_file() else copied / "deep" / "two").read_bytes() == b"2" * 20_000
    assert (source / "deep" / "two").stat().st_size == 20_000


def test_nothing_is_made_below_a_copy_into_its_own_source_that_did_not_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    source = tree(tmp_path / "in")
    (source / "deep" / "backup").mkdir()
    plan = staging.Plan(str(source), str(source / "deep" / "backup"), ("in",), contents_only=False)
    monkeypatch.setattr(syncing, "sync_file_system", fail)
    assert not copier.Copier(plan, CopyAttempt.of("", 0), is_tree=True).run()

    assert not (source / "deep" / "backup" / "in" / "deep" / "backup" / "in").exists()


def test_a_large_file_that_did_not_reach_the_disk_is_not_gone_on_with(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.touch()
        os.truncate(path, 40 * MIB)
    try:
        os.setxattr(target, MARK, b"m")
    except OSError as error:
        pytest.skip(f"files have no such attributes here: {error.strerror}")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    invalidate("source", descriptor, "target", descriptor)
    invalidate("source", descriptor, "nowhere", descriptor)
    os.close(descriptor)

    assert MARK not in os.listxattr(target)


def test_another_try_on_a_file_system_that_has_become_read_only_is_not_content(
    copy: Copier,
) -> None:
    (copy.place / "in").write_text("words")
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    since = now()
    copy.well("in", "out/", movement="m")
    mount = f"mount --bind -o ro '{copy.place}/out' '{copy.place}/out' && exec \"$@\""
    outcome = copy("in", "out/", nsenter=mounting(mount), movement="m", since=since)

    assert outcome.status == copying.FAILED
    assert f"{copy.place}/out: {os.strerror(errno.EROFS)}" in outcome.complaints


# The pace


def test_bytes_are_copied_at_their_pace_and_what_was_missed_is_not_made_up_for() -> None:
    pace = RateLimit(100)

    assert pace.delay(50, now=10) == 0.5
    assert pace.delay(50, now=10) == 1.0
    assert pace.delay(10, now=11) == pytest.approx(0.1)
    assert pace.delay(100, now=20) == 1.0
    assert RateLimit(0).delay(10**12, now=1) == 0


def test_pieces_are_small_enough_for_the_pace() -> None:
    assert RateLimit(0).piece_size(32 * MIB) == 32 * MIB
    assert RateLimit(80 * MIB).piece_size(32 * MIB) == 10 * MIB
    assert RateLimit(1).piece_size(32 * MIB) == 2**16


def test_files_are_copied_side_by_side_where_each_takes_long() -> None:
    latency = Latency(threshold=0.001, retry_after=10)

    latency.add(60)  # hung, and no more than that
    assert not latency.is_long()
    for _ in range(30):
        latency.add(0.002)
    assert [latency.is_long() for _ in range(12)] == [True] * 11 + [False]


# Memory


def test_a_tree_with_more_names_than_there_is_memory_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file server of the user's can tell of directories without end."""
    (tmp_path / "in").mkdir()

    def endless(directory: int) -> Iterator["os.DirEntry[str]"]:
        raise MemoryError

    monkeypatch.setattr(os, "scandir", endless)
    plan = staging.Plan(str(tmp_path / "in"), str(tmp_path), ("out",), contents_only=False)

    assert not copier.Copier(plan, CopyAttempt.of("", 0), is_tree=True).run()
    said = "has more directories, or names in one, than a copier has memory for"
    assert capsys.readouterr().err == f"{plan.source}: {said}\n"


def test_a_copier_leaves_memory_to_what_depends_on_it_and_to_other_users(user: User) -> None:
    program = (
        "import os, resource\n"
        "from warren.node import identity\n"
        f"identity.become_file_user({user.userid}, {user.groupid})\n"
        "print(open('/proc/self/oom_score_adj').read(), *resource.getrlimit(resource.RLIMIT_DATA))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    first, *most = (int(each) for each in told.stdout.split())
    assert first >= 500
    assert len(set(most)) == 1
    assert 0 < most[0] <= max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8, 2**30)
