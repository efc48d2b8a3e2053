"""Commands of profiles in place of the copier: what they are given, and what becomes of them."""

import asyncio
import os
import pwd
import shutil
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.harness import users
from tests.node.copied import Copier, User, copier_at, shape, tree
from tests.node.processes import alive, eventually
from warren.dws.copies import commands
from warren.node import copiers, copying

RSYNC = commands.parse("rsync -a --info=progress2 $SRC $DEST").words
needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not here")


def program(copy: Copier, text: str, *words: str) -> list[str]:
    """Write a program; return the words that run it, by a Python that every user may run."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("the system has no Python of its own")
    (copy.place / "program.py").write_text(text)
    (copy.place / "program.py").chmod(0o755)
    return [python, str(copy.place / "program.py"), *words]


@pytest.mark.parametrize(
    ("source", "destination"),
    [("storage/out/", "to"), ("storage/out", "to"), ("in", "storage/out/")],
)
def test_no_link_in_storage_leads_a_command_elsewhere(
    copy: Copier, source: str, destination: str
) -> None:
    for name in ("in", "storage", "private"):
        (copy.place / name).mkdir()
        (copy.place / name).chmod(0o777)
    (copy.place / "storage" / "out").symlink_to("../private")
    text = "import pathlib, sys\npathlib.Path(sys.argv[1]).touch()"
    words = program(copy, text, f"{copy.place}/ran", "$SRC", "$DEST")
    storage = f"{copy.place}/storage"
    ends = ("", storage) if source == "in" else (storage, "")
    outcome = copy(
        source, destination, command=words, source_storage=ends[0], destination_storage=ends[1]
    )

    assert outcome.complaints[0].endswith(": leads out of the storage through a link")
    assert not (copy.place / "ran").exists()


@needs_rsync
def test_a_command_copies_the_whole_of_a_storage(copy: Copier) -> None:
    tree(copy.place / "r-0")
    (copy.place / "r-0").chmod(0o777)
    storage = f"{copy.place}/r-0"
    outcome = copy("r-0", "to/", command=RSYNC, source_storage=storage)

    assert outcome.status == 0, outcome.complaints
    assert (copy.place / "to" / "r-0" / "one").is_file()


def test_an_agent_reads_what_a_command_prints_whatever_it_is(copy: Copier) -> None:
    (copy.place / "in").touch()
    words = program(copy, "for _ in range(20): print('\\U0001f407' * 1000)", "$SRC", "$DEST")
    work = copy.work("in", "out", command=words, tells_output=True)

    async def story() -> list[str]:
        return [progress.remark async for progress in copiers.run(work)]

    assert asyncio.run(story())[-1].count("\U0001f407") > 1000


def test_a_command_leaves_memory_and_processes_to_what_it_depends_on(copy: Copier) -> None:
    """Its user may trace it, and so have it do anything."""
    text = (
        "import resource\nprint(open('/proc/self/oom_score_adj').read().strip(), "
        "*resource.getrlimit(resource.RLIMIT_NPROC))"
    )
    (copy.place / "in").touch()
    outcome = copy("in", "out", command=program(copy, text, "$SRC", "$DEST"))
    assert outcome.last.command_status is not None
    first, *most = outcome.last.command_status["lastMessage"].split()
    assert int(first) >= 500
    if os.geteuid() == 0:
        names = ("pid_max", "threads-max")
        there = min(int(Path("/proc/sys/kernel", name).read_text()) for name in names)
        assert all(0 < int(each) <= there // 2 for each in most)


@needs_rsync
@pytest.mark.parametrize(
    ("source", "destination", "index", "arrives"),
    [
        ("in", "out", None, "out/in/deep/two"),
        ("in/", "out/", None, "out/deep/two"),
        ("in/one", "out", None, "out"),
        ("in/one", "out/", None, "out/one"),
        ("in/one", "a/b/out", None, "a/b/out"),
        ("r-0/", "out", "r-0", "out/r-0/deep/two"),
        ("r-0", "out", "r-0", "out/r-0/deep/two"),
        ("r-0/deep", "out", "r-0", "out/r-0/deep/two"),
        ("r-0/one", "out", "r-0", "r-0/out"),
        ("r-0/one", "out/", "r-0", "out/r-0/one"),
    ],
)
def test_a_command_copies_to_where_the_copier_does(
    copy: Copier, source: str, destination: str, index: str | None, arrives: str
) -> None:
    tree(copy.place / ("in" if index is None else index))
    if index is not None:
        (copy.place / index).chmod(0o777)
    outcome = copy(source, destination, index, command=RSYNC)

    assert outcome.status == 0, outcome.complaints
    assert (copy.place / arrives).is_file()
    found = (copy.place / arrives).stat()
    assert (found.st_uid, found.st_gid) == (copy.user.userid, copy.user.groupid)


@needs_rsync
def test_what_a_command_says_of_its_progress_is_told(copy: Copier) -> None:
    (copy.place / "in").write_bytes(bytes(10_000_000))
    outcome = copy("in", "out", command=RSYNC)

    assert outcome.last.command_status is not None
    assert outcome.last.command_status["progress"] == "100"
    assert "10,000,000 100%" in outcome.last.command_status["lastMessage"]


def test_names_reach_a_command_as_they_are(copy: Copier) -> None:
    name = "a b;touch c $DEST `id` -rf\n'\""
    (copy.place / name).mkdir()
    text = "import sys; print(repr(sys.argv[1:]))"
    outcome = copy(name, "out", command=program(copy, text, "--from=$SRC", "$DEST", "$UID"))

    assert outcome.last.command_status is not None
    told = outcome.last.command_status["lastMessage"]
    assert told == repr(
        [f"--from={copy.place}/{name}", f"{copy.place}/out/", str(copy.user.userid)]
    )


def test_a_command_is_run_as_its_user_with_nothing_of_the_agents(copy: Copier) -> None:
    (copy.place / "in").touch()
    text = (
        "import os; s = open('/proc/self/status').read();"
        "print(os.getresuid(), os.getresgid(), sorted(os.environ), os.getcwd(),"
        " [l.split()[1] for l in s.splitlines() if l[:6] in ('CapEff', 'CapPrm', 'CapBnd')"
        " or l.startswith('NoNew')])"
    )
    outcome = copy("in", "out", command=program(copy, text, "$SRC", "$DEST"))

    user, group = copy.user.userid, copy.user.groupid
    assert outcome.last.command_status is not None
    told = outcome.last.command_status["lastMessage"]
    assert told.startswith(f"({user}, {user}, {user}) ({group}, {group}, {group}) ['LANG', ")
    assert "'PATH'] / " in told
    assert told.endswith(f"{['0' * 16] * 2 + bounding() + ['1']}")


def bounding() -> list[str]:
    """The bounding set can only be emptied by those who have a capability."""
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(line.split()[1] for line in lines if line.startswith("CapBnd"))
    return ["0" * 16] if os.geteuid() == 0 else [own]


def test_a_command_that_fails_is_told_with_its_last_words(copy: Copier) -> None:
    (copy.place / "in").touch()
    text = "import sys\nfor n in range(50): print('line', n)\nprint('x' * 10**6)\nsys.exit(7)"
    outcome = copy("in", "out", command=program(copy, text, "$SRC", "$DEST"))

    assert outcome.status == copying.FAILED
    (complaint,) = outcome.complaints
    assert "exit status 7: line 31; " in complaint
    assert complaint.endswith(f"; line 49; {'x' * 1000}")


def test_a_command_that_is_not_there_is_told(copy: Copier) -> None:
    (copy.place / "in").touch()
    outcome = copy("in", "out", command=["no-such-program", "$SRC", "$DEST"])

    assert outcome.status == copying.FAILED
    assert "no-such-program: No such file or directory" in outcome.complaints[0]


def test_a_command_and_what_it_runs_find_its_hosts_and_no_file_is_left_of_them(
    copy: Copier,
) -> None:
    (copy.place / "in").touch()
    text = (
        "import os, subprocess, sys; path = sys.argv[1]; read = open(path).read();"
        "again = subprocess.check_output(['cat', path], close_fds=False, text=True);"
        "print(os.stat(path).st_nlink, repr(read + again))"
    )
    words = program(copy, text, "$HOSTFILE", "$SRC", "$DEST")
    outcome = copy("in", "out", command=words, hosts=commands.hostfile_text(8, 0))

    assert outcome.last.command_status is not None
    links, _, read = outcome.last.command_status["lastMessage"].partition(" ")
    assert read == repr("localhost slots=8\n" * 2)
    assert links == "0"  # in memory: of a copier that is killed, too, nothing is left


@pytest.mark.parametrize("tells", [True, False])
def test_what_a_command_says_at_the_end_is_told_if_the_profile_says_so(
    copy: Copier, tells: bool
) -> None:
    (copy.place / "in").touch()
    words = program(copy, "print('one\\rtwo\\n\\nthree')", "$SRC", "$DEST")
    outcome = copy("in", "out", command=words, tells_output=tells)

    assert outcome.last.remark == ("one; two; three" if tells else "")


def test_directories_are_made_unless_the_profile_says_not(copy: Copier) -> None:
    tree(copy.place / "r-0")
    words = program(copy, "print('done')", "$SRC", "$DEST")
    copy("r-0/deep/", "a/b", "r-0", command=words, makes_directories=False)
    assert not (copy.place / "a").exists()

    copy("r-0/deep/", "a/b", "r-0", command=words)
    assert shape(copy.place / "a") == {"b": "directory", "b/r-0": "directory"}


def test_an_index_directory_that_is_a_link_leads_no_command_elsewhere(copy: Copier) -> None:
    tree(copy.place / "r-0")
    for name in ("out", "elsewhere"):
        (copy.place / name).mkdir()
        (copy.place / name).chmod(0o777)
    (copy.place / "out" / "r-0").symlink_to("../elsewhere")
    outcome = copy("r-0/", "out", "r-0", command=program(copy, "print(1)", "$SRC", "$DEST"))

    assert outcome.status == copying.FAILED
    assert outcome.complaints == [f"{copy.place}/out/r-0: Not a directory"]


def asleep(copy: Copier) -> list[str]:
    text = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)"
    return program(copy, text, "$SRC", "$DEST")


def test_a_command_whose_copy_is_given_up_is_ended(copy: Copier) -> None:
    (copy.place / "in").touch()
    work = copy.work("in", "out", command=asleep(copy))
    processes: list[int] = []

    async def main() -> None:
        async with aclosing(copiers.run(work)) as told:  # type: ignore[type-var]
            await anext(told)
            processes.extend(copier_at(copy.place))

    asyncio.run(main())

    assert processes
    eventually(lambda: not copier_at(copy.place))


@pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))
def test_a_command_dies_with_the_process_that_runs_it(public: Path) -> None:
    userid, _ = users.userids()
    copy = Copier(public, User(userid, pwd.getpwuid(userid).pw_gid))
    (public / "in").touch()
    work = copy.work("in", "out", command=asleep(copy))

    async def main() -> set[int]:
        async with aclosing(copiers.run(work)) as told:  # type: ignore[type-var]
            await anext(told)
            eventually(lambda: len(working(public)) == 2)
            copier, command = sorted(working(public))
            os.kill(copier, signal.SIGKILL)
            return {copier, command}

    processes = asyncio.run(main())

    eventually(lambda: not processes & alive())


def working(place: Path) -> set[int]:
    """The processes whose command line names a place."""
    found = set()
    for process in alive():
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if str(place).encode() in words:
            found.add(process)
    return found
