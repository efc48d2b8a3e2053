"""Mount namespaces of emulated nodes, and the processes that hold them."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import stuck
from tests.harness.users import TEST_USER
from tests.node.conftest import Nodes, mounts_of
from tests.node.processes import alive, eventually
from warren.dws.node import InUse, NodeTrouble, Volume
from warren.node import commands, namespaces
from warren.node.directory import DirectoryFlash
from warren.node.flash import MountSource
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace, mount_points


def run(namespace: HeldMountNamespace, *command: str) -> str:
    """Run a command on a node."""

    async def main() -> str:
        return await commands.run([*await namespace.nsenter_command(), *command])

    return asyncio.run(main())


def mount(namespace: HeldMountNamespace, path: Path) -> None:
    run(namespace, "mkdir", "-p", str(path))
    run(namespace, "mount", "-t", "tmpfs", "none", str(path))


# Holders


def test_a_node_has_no_holder_before_it_is_wanted(nodes: Nodes) -> None:
    namespace = nodes.namespace()

    assert namespace.holder is None
    assert mounts_of(namespace) == set()
    namespace.end()


def test_a_node_is_held_once(nodes: Nodes) -> None:
    namespace = nodes.namespace()
    holder = asyncio.run(namespace.ensure())

    assert holder in alive()
    assert asyncio.run(namespace.ensure()) == holder


def test_a_holder_outlives_who_started_it_and_is_found_again(nodes: Nodes) -> None:
    program = """
import asyncio, pathlib, sys
from warren.node.namespaces import HeldMountNamespace
print(asyncio.run(HeldMountNamespace(*map(pathlib.Path, sys.argv[1:])).ensure()))
"""
    words = [str(nodes.directory("node1")), str(nodes.prefix)]
    said = subprocess.check_output([sys.executable, "-c", program, *words], text=True)

    assert nodes.namespace().holder == int(said)
    assert asyncio.run(nodes.namespace().ensure()) == int(said)


def test_those_who_want_a_node_at_once_get_the_same_holder(nodes: Nodes) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(*(nodes.namespace().ensure() for _ in range(5)))

    assert len(set(asyncio.run(main()))) == 1


def test_a_node_that_was_ended_can_be_had_again_empty(nodes: Nodes) -> None:
    namespace = nodes.namespace()
    mount(namespace, nodes.prefix / "job")
    before = asyncio.run(namespace.ensure())
    namespace.end()
    eventually(lambda: before not in alive())

    assert namespace.holder is None
    assert asyncio.run(namespace.ensure()) != before
    assert nodes.mounts() == set()


def test_ending_twice_is_no_trouble(nodes: Nodes) -> None:
    asyncio.run(nodes.namespace().ensure())
    nodes.namespace().end()
    nodes.namespace().end()


@contextmanager
def sleeper() -> Iterator[int]:
    """A process that looks like a holder, and is none."""
    with subprocess.Popen(["sleep", "infinity"]) as process:
        try:
            eventually(
                lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"sleep\0infinity\0"
            )
            yield process.pid
        finally:
            process.kill()


def test_a_process_that_has_got_a_holders_number_is_not_believed(nodes: Nodes) -> None:
    namespace = nodes.namespace()
    before = asyncio.run(namespace.ensure())
    namespace.end()
    eventually(lambda: before not in alive())
    with sleeper() as stranger:
        (nodes.directory("node1") / "holder").write_text(str(stranger))

        assert namespace.holder is None
        namespace.end()
        assert stranger in alive()
        assert asyncio.run(namespace.ensure()) != stranger


def test_the_holder_of_another_node_is_not_believed(nodes: Nodes) -> None:
    other = asyncio.run(nodes.namespace("node2").ensure())
    asyncio.run(nodes.namespace("node1").ensure())
    nodes.namespace("node1").end()
    record = nodes.directory("node1") / "holder"
    record.write_text(str(other))

    assert nodes.namespace("node1").holder is None


@pytest.mark.parametrize("record", ["", "rubbish", "999999999", "-1", "0", "1"])
def test_a_record_that_names_no_holder_is_not_believed(nodes: Nodes, record: str) -> None:
    nodes.directory("node1").mkdir(parents=True)
    (nodes.directory("node1") / "holder").write_text(record)

    assert nodes.namespace().holder is None
    asyncio.run(nodes.namespace().ensure())


def test_a_place_for_mount_points_that_cannot_be_made_is_a_trouble(nodes: Nodes) -> None:
    nodes.prefix.touch()

    with pytest.raises(NodeTrouble, match="/nnf: File exists"):
        asyncio.run(nodes.namespace().ensure())


def test_a_refusal_of_the_kernel_is_told_in_its_words(nodes: Nodes, forbidden: None) -> None:
    with pytest.raises(NodeTrouble, match=r"node1 could not be made: .*Operation not permitted"):
        asyncio.run(nodes.namespace().ensure())


def test_nodes_are_available_here_and_asking_leaves_nothing_mounted(nodes: Nodes) -> None:
    # Others mount elsewhere at the same time.
    before = mount_points(os.getpid()) & {"/tmp"}

    assert asyncio.run(namespaces.why_unavailable()) is None
    assert mount_points(os.getpid()) & {"/tmp"} == before


def test_nodes_are_not_available_where_the_kernel_refuses(forbidden: None) -> None:
    assert asyncio.run(namespaces.why_unavailable()) == (
        "unshare: unshare failed: Operation not permitted"
    )


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that does not let us have namespaces."""
    unshare = tmp_path / "bin" / "unshare"
    unshare.parent.mkdir()
    unshare.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", str(unshare.parent), prepend=os.pathsep)


# What is seen where


def test_what_is_mounted_on_a_node_is_not_seen_outside(nodes: Nodes) -> None:
    path = nodes.prefix / "job"
    mount(nodes.namespace(), path)
    run(nodes.namespace(), "touch", str(path / "inside"))

    assert str(path) in nodes.mounts()
    assert str(path) not in mount_points(os.getpid())
    assert list(nodes.prefix.iterdir()) == []

    run(nodes.namespace(), "umount", str(path))


def test_what_users_mount_in_their_storage_is_none_of_the_nodes_mounts(nodes: Nodes) -> None:
    """They may move it while it is looked for: it goes with what it is in."""
    storage = nodes.prefix / "job"
    mount(nodes.namespace(), storage)
    mount(nodes.namespace(), storage)
    mount(nodes.namespace(), storage / "passwd")

    assert {str(storage), str(storage / "passwd")} <= mounts_of(nodes.namespace())
    assert nodes.namespace().mounts_below_prefix() == {str(storage)}

    run(nodes.namespace(), "umount", str(storage / "passwd"))
    run(nodes.namespace(), "umount", str(storage))
    assert nodes.namespace().mounts_below_prefix() == {str(storage)}
    run(nodes.namespace(), "umount", str(storage))
    assert nodes.namespace().mounts_below_prefix() == set()


def test_nodes_do_not_see_each_others_mounts_at_the_same_path(nodes: Nodes) -> None:
    flash = DirectoryFlash(nodes.root / "flash", 1000)
    path = str(nodes.prefix / "job")
    machines = [NamespacedNode(name, flash, nodes.namespace(name)) for name in ("node1", "node2")]

    async def both() -> None:
        for machine, name in zip(machines, "ab", strict=True):
            await machine.make(_volume(name))
            (flash.files_path("rabbit1", name) / f"of-{name}").touch()
            await machine.mount("rabbit1", name, "xfs", path)

    asyncio.run(both())

    assert run(nodes.namespace("node1"), "ls", path) == "of-a\n"
    assert run(nodes.namespace("node2"), "ls", path) == "of-b\n"

    asyncio.run(machines[0].unmount(path))
    assert nodes.mounts("node1") == set()
    assert run(nodes.namespace("node2"), "ls", path) == "of-b\n"
    asyncio.run(machines[1].unmount(path))


def test_two_nodes_may_have_the_same_volume(nodes: Nodes) -> None:
    flash = DirectoryFlash(nodes.root / "flash", 1000)
    machines = [NamespacedNode(name, flash, nodes.namespace(name)) for name in ("node1", "node2")]

    path = str(nodes.prefix / "job")

    async def mounted() -> None:
        await machines[0].make(_volume("a"))
        for machine in machines:
            await machine.mount("rabbit1", "a", "xfs", path)

    asyncio.run(mounted())
    run(nodes.namespace("node1"), "touch", f"{path}/file")

    assert run(nodes.namespace("node2"), "ls", path) == "file\n"

    for machine in machines:
        asyncio.run(machine.unmount(path))


def test_what_is_mounted_outlives_the_agent(nodes: Nodes) -> None:
    flash = DirectoryFlash(nodes.root / "flash", 1000)
    path = str(nodes.prefix / "job")

    async def before() -> None:
        machine = NamespacedNode("node1", flash, nodes.namespace())
        await machine.make(_volume("a"))
        await machine.mount("rabbit1", "a", "xfs", path)

    async def after() -> None:
        machine = NamespacedNode("node1", flash, nodes.namespace())
        await machine.mount("rabbit1", "a", "xfs", path)
        assert nodes.mounts() == {path}
        await machine.unmount(path)

    asyncio.run(before())
    asyncio.run(after())


def test_what_is_in_use_is_not_unmounted_and_may_be_later(nodes: Nodes) -> None:
    flash = DirectoryFlash(nodes.root / "flash", 1000)
    machine = NamespacedNode("node1", flash, nodes.namespace())
    path = str(nodes.prefix / "job")

    async def begin() -> list[str]:
        await machine.make(_volume("a"))
        await machine.mount("rabbit1", "a", "xfs", path)
        return await nodes.namespace().nsenter_command()

    words = [*asyncio.run(begin()), "sh", "-c", 'cd "$0" && echo in && read never', path]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"in\n"
        with pytest.raises(InUse, match=f"in use by process {user.pid} ") as caught:
            asyncio.run(machine.unmount(path, os.geteuid()))
        assert nodes.mounts() == {path}

    assert not caught.value.fatal
    asyncio.run(machine.unmount(path, os.geteuid()))


def test_what_is_mounted_is_its_owners_alone_and_users_cannot_list_where(nodes: Nodes) -> None:
    flash = DirectoryFlash(nodes.root / "flash", 1000)
    machine = NamespacedNode("node1", flash, nodes.namespace())
    path = nodes.prefix / "of a job" / "node1-0"

    async def begin() -> None:
        await machine.make(_volume("a"))
        await machine.mount("rabbit1", "a", "xfs", str(path))

    asyncio.run(begin())
    root = nodes.namespace().root
    assert root is not None
    modes = [Path(f"{root}{each}").stat().st_mode & 0o777 for each in (path, path.parent)]
    assert modes == [0o700, 0o711]
    assert Path(f"{root}{nodes.prefix}").stat().st_mode & 0o777 == 0o711
    asyncio.run(machine.unmount(str(path)))


@pytest.mark.parametrize("path", ["/etc/job", "/allowed/../etc/job", "/allowedly"])
def test_nothing_is_mounted_but_where_it_may_be(nodes: Nodes, path: str) -> None:
    flash = DirectoryFlash(nodes.root / "flash", 1000)
    places = [nodes.prefix, Path("/allowed")]
    machine = NamespacedNode("node1", flash, nodes.namespace(), mount_roots=places)
    asyncio.run(machine.make(_volume("a")))

    with pytest.raises(NodeTrouble, match=r"nothing is mounted but below .* or /allowed") as told:
        asyncio.run(machine.mount("rabbit1", "a", "xfs", path))
    assert told.value.fatal
    assert nodes.mounts() == set()


class Wrong(DirectoryFlash):
    """Volumes that are files, and are taken for directories."""

    file: Path

    async def source(self, rabbit: str, name: str, file_system: str) -> MountSource:
        return MountSource(("--bind", str(self.file)))


def test_a_mount_that_fails_names_its_device_and_the_reason(nodes: Nodes) -> None:
    flash = Wrong(nodes.root / "flash", 1000)
    flash.file = nodes.root / "device"
    flash.file.touch()
    machine = NamespacedNode("node1", flash, nodes.namespace())
    path = str(nodes.prefix / "job")

    with pytest.raises(NodeTrouble, match=f"^{flash.file}: mount: {path}: .*directory") as told:
        asyncio.run(machine.mount("rabbit1", "a", "xfs", path))
    assert not told.value.fatal
    asyncio.run(machine.unmount(path))


def _volume(name: str) -> Volume:
    return Volume(
        rabbit="rabbit1",
        name=name,
        size=100,
        file_system="xfs",
        userid=os.geteuid(),
        groupid=os.getegid(),
    )


# Going there


JOIN = """
import os, sys
from warren.node.namespaces import join

child = os.fork()
if child == 0:
    join(int(sys.argv[1]), "node1")
    print(os.getuid(), os.geteuid(), os.getgid(), flush=True)
    print(sorted(os.listdir(sys.argv[2])), flush=True)
    os.execvp(sys.argv[3], sys.argv[3:])
_, status = os.waitpid(child, 0)
print(os.path.exists(sys.argv[2] + "/of-the-job"))
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""What a shell does: fork, join, and become something else."""


def joined(nodes: Nodes, *command: str) -> list[str]:
    """What a process says that has joined a node where something is mounted."""
    path = nodes.prefix / "job"
    mount(nodes.namespace(), path)
    run(nodes.namespace(), "touch", str(path / "of-the-job"))
    words = [str(nodes.namespace().holder), str(path), *command]
    try:
        ended = subprocess.run(
            [sys.executable, "-c", JOIN, *words], stdout=subprocess.PIPE, text=True, check=False
        )
    finally:
        run(nodes.namespace(), "umount", str(path))
    return [*ended.stdout.splitlines(), str(ended.returncode)]


def test_a_process_that_joins_a_node_sees_its_mounts_and_stays_who_it_is(nodes: Nodes) -> None:
    said = joined(nodes, "id", "-u")

    user, group = os.getuid(), os.getgid()
    assert said == [f"{user} {user} {group}", "['of-the-job']", str(user), "False", "0"]


def test_a_user_who_joins_a_node_has_no_power_over_its_mounts(nodes: Nodes) -> None:
    if os.geteuid() == 0:
        pytest.skip("root has power over every mount")

    *_, status = joined(nodes, "umount", str(nodes.prefix / "job"))

    assert status != "0"


NAMED = """
import os, socket, sys
from warren.node.namespaces import join

join(int(sys.argv[2]) if len(sys.argv) > 2 else None, sys.argv[1])
print(socket.gethostname(), os.getuid(), os.getgid(), flush=True)
os.execvp("hostname", ["hostname", "changed"])
"""
"""What a shell does; and its task tries to change the name of the node."""


def named(host: str, *holder: str, within: Sequence[str] = ()) -> tuple[list[str], int]:
    """What a process finds that has joined a node, and the status of its try."""
    words = [*within, sys.executable, "-c", NAMED, host, *holder]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    return ended.stdout.split(), ended.returncode


@pytest.mark.parametrize("held", [True, False])
def test_a_node_has_a_host_name_of_its_own(nodes: Nodes, held: bool) -> None:
    holders = [str(asyncio.run(nodes.namespace(name).ensure())) for name in ("node1", "node2")]
    one, two = (
        named(f"node{number}", *([holder] if held else []))[0]
        for number, holder in enumerate(holders, 1)
    )

    ids = [str(os.getuid()), str(os.getgid())]
    assert [one, two] == [["node1", *ids], ["node2", *ids]]


@pytest.mark.parametrize("held", [True, False])
def test_a_users_task_does_not_change_the_name_of_its_node(nodes: Nodes, held: bool) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may change every host name that it has")
    holder = [str(asyncio.run(nodes.namespace().ensure()))] if held else []

    assert named("node1", *holder)[1] != 0


def test_roots_task_changes_the_name_of_no_other_node(nodes: Nodes) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change a host name")
    before = socket.gethostname()

    assert named("node1")[1] == 0
    assert socket.gethostname() == before
    assert named("node1")[0][0] == "node1"


def test_where_the_kernel_gives_no_uts_namespace_a_node_has_the_machines_name(
    nodes: Nodes,
) -> None:
    forbid = 'echo 0 >/proc/sys/user/max_uts_namespaces && exec "$@"'
    within = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]

    assert named("node1", within=within)[0][0] == socket.gethostname()


def test_a_name_that_is_too_long_for_the_kernel_is_left_out(nodes: Nodes) -> None:
    assert named("n" * 65)[0][0] == socket.gethostname()


def test_a_node_that_is_not_held_is_not_joined(nodes: Nodes) -> None:
    program = "import sys; from warren.node.namespaces import join; join(int(sys.argv[1]), 'x')"
    with subprocess.Popen(["true"]) as gone:
        pass
    ended = subprocess.run(
        [sys.executable, "-c", program, str(gone.pid)], capture_output=True, check=False
    )

    assert b"FileNotFoundError" in ended.stderr


def test_no_process_has_no_mount_points() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass

    assert mount_points(gone.pid) == set()


def test_a_holder_that_is_killed_is_replaced(nodes: Nodes) -> None:
    holder = asyncio.run(nodes.namespace().ensure())
    os.kill(holder, signal.SIGKILL)
    eventually(lambda: nodes.namespace().holder is None)

    assert asyncio.run(nodes.namespace().ensure()) != holder


def test_a_process_that_does_not_answer_where_it_is_holds_up_no_look_at_nodes(nodes: Nodes) -> None:
    asyncio.run(nodes.namespace().ensure())
    nsenter = asyncio.run(nodes.namespace().nsenter_command())
    with subprocess.Popen([*nsenter, "sleep", "600"]) as process:
        try:
            eventually(lambda: namespaces.pids_in([nodes.namespace()]) == [process.pid])
            with stuck.in_exec(TEST_USER):
                assert namespaces.pids_in([nodes.namespace()]) == [process.pid]
        finally:
            process.kill()


def test_a_process_that_has_a_holders_number_and_does_not_answer_is_not_believed(
    nodes: Nodes,
) -> None:
    with stuck.in_exec(TEST_USER) as process:
        nodes.directory("node1").mkdir(parents=True)
        (nodes.directory("node1") / "holder").write_text(str(process.pid))
        assert nodes.namespace().holder is None
        (nodes.directory("node1") / "holder").unlink()
