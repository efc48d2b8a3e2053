"""What one guest tries against another and against the cluster, and what comes of it."""

import asyncio
import inspect
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import users
from tests.journeys.conftest import Cluster, running, wait_for
from tests.journeys.test_users import User, user
from tests.node import rings
from warren.daemons import munged
from warren.daemons.down import leftovers
from warren.node import loops

pytestmark = [
    pytest.mark.skipif(why is not None, reason=str(why))
    for why in (users.why_not(), users.without_munge(), loops.why_unavailable())
]

SCRATCH = "#DW jobdw type=xfs capacity=64MiB name=scratch"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[User, User]]:
    """Two users of a cluster with a single rabbit, which is a disk image."""
    with users.common_ground() as ground, munged.running(ground / "munge") as found:
        config = ground / "config.toml"
        config.write_text(
            "[access]\nallow-guest-user = true\n"
            f'[sign.munge]\nsocket-path = "{found}"\n'
            '[storage]\nbusy-timeout = "1s"\n'
        )
        cluster = Cluster(ground, "--rabbits", "1", "--config", str(config))
        for each in running(cluster):
            one, other = (user(each, userid, found) for userid in users.userids())
            yield one, other


def test_a_guest_gets_no_raw_volume_on_an_image_and_is_told_why(pair: tuple[User, User]) -> None:
    one, _ = pair
    raw = one.signed("true", dw="#DW jobdw type=raw capacity=64MiB name=scratch")

    refused = one.asked("job-ingest.submit", {"J": raw})
    assert "Volumes of type raw are for root alone here" in refused[1]
    # Without validation the owner alone submits.
    refused = one.asked("job-ingest.submit", {"J": raw, "flags": 8})
    assert refused[1] == "only the instance owner submits without validation"


def test_no_user_lists_or_reads_anothers_storage_on_the_same_node(pair: tuple[User, User]) -> None:
    one, other = pair
    mine = 'cd "$DW_JOB_scratch" && umask 0 && echo mine > data && pwd > "$0" && sleep 600'
    told = one.home / "path"
    job = one.submit("sh", "-c", mine, str(told), dw=SCRATCH)
    wait_for(lambda: told.exists() and told.read_text().endswith("\n"))
    path = told.read_text().strip()

    looks = """
        for each in "$0" "$0/data" "${0%/*}" /dev/loop*; do
            head -c 1 "$each" >/dev/null 2>&1 && echo "read $each"
            ls "$each/" >/dev/null 2>&1 && echo "listed $each"
        done
        for each in /proc/[0-9]*; do
            [ "$(stat -c %u "$each" 2>/dev/null)" = "$1" ] || continue
            ls "$each/root/" "$each/cwd/" "$each/fd/" 2>/dev/null
            kill -0 "${each#/proc/}" 2>/dev/null && echo "signalled $each"
        done
        grep -q " $0 " /proc/self/mountinfo && echo on the same node
    """
    nodes = one.cluster.nodes()
    hosts = [host for chassis in one.cluster.shape().chassis() for host in chassis.hosts]
    spaces = [nodes.namespace(host) for host in hosts]
    (there,) = [space for space in spaces if space.mount_id(path) is not None]
    nsenter = asyncio.run(there.nsenter_command())
    become = [f"--reuid={other.userid}", f"--regid={other.userid}", "--clear-groups"]
    tried = subprocess.run(
        [*nsenter, "setpriv", *become, "sh", "-c", looks, path, str(one.userid)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tried.stdout == "on the same node\n"
    one.about("job-manager.raise", job, type="cancel", severity=0)
    one.cluster.wait_event(job, "clean")


def test_no_link_in_shared_storage_has_a_copy_write_elsewhere(pair: tuple[User, User]) -> None:
    one, other = pair
    made = one.submit("true", dw="#DW create_persistent type=xfs capacity=64MiB name=common")
    one.cluster.wait_event(made, "clean")
    shared = one.asked("persistent.share", {"name": "common", "add": {"users": [other.userid]}})
    assert shared["persistent"]["shared"]["users"] == [other.userid]
    source = one.cluster.shared / "keys"
    source.write_text("words\n")
    use = "#DW persistentdw name=common"
    links = 'ln -s "$0" "$DW_PERSISTENT_common/out" && ls "$DW_PERSISTENT_common"'
    planted = other.submit("sh", "-c", links, str(one.home), dw=use)
    assert other.output(planted) == "out\n"

    copies = f"#DW copy_in source={source} destination=$DW_PERSISTENT_common/out/"
    job = one.submit("true", dw=f"{use}\n{copies}")
    one.cluster.wait_event(job, "clean")
    assert not one.cluster.job(job)["success"]
    assert not (one.home / "keys").exists()
    told = one.about("job-info.lookup", job, keys=["eventlog"])
    assert "leads out of the storage through a link" in told["eventlog"]
    gone = one.submit("true", dw="#DW destroy_persistent name=common")
    one.cluster.wait_event(gone, "clean")


@contextmanager
def receiving(of: User, path: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a process of a user's, outside of all jobs, that others can send something."""
    listening = socket.socket(socket.AF_UNIX)
    with listening:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen()
        # Connections are made, and take what is sent, before they are accepted.
        with subprocess.Popen(
            command,
            user=of.userid,
            group=of.userid,
            stdin=listening.fileno(),
            stdout=subprocess.PIPE,
        ) as process:
            listening.close()
            try:
                yield process
            finally:
                process.kill()


def test_a_descriptor_that_is_on_its_way_keeps_neither_node_nor_flash(
    pair: tuple[User, User],
) -> None:
    one, _ = pair
    way = one.home / "way"
    sends = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "d = os.open(os.environ['DW_JOB_scratch'], os.O_RDONLY); socket.send_fds(s, [b'd'], [d])"
    )
    with receiving(one, way, "sleep", "600") as process:  # which leaves it unread
        job = one.submit("/usr/bin/python3", "-c", sends, str(way), dw=SCRATCH)
        one.cluster.wait_event(job, "clean")
        assert one.cluster.job(job)["success"]
        # It was not seen to use it, and goes on without.
        assert process.poll() is None
    wait_for(lambda: leftovers(one.cluster.state) == [])


RECEIVES = f"""
import socket, time
{inspect.getsource(rings)}
_, (found,), _, _ = socket.recv_fds(socket.socket(fileno=0).accept()[0], 1, 1)
ring = Ring(f"/proc/self/fd/{{found}}")
os.close(found)
print("kept", flush=True)
time.sleep(600)
"""


def test_an_io_uring_that_proc_does_not_show_keeps_neither_node_nor_flash(
    pair: tuple[User, User],
) -> None:
    one, _ = pair
    missing = rings.why_not(one.cluster.shared)
    if missing is not None:
        pytest.skip(missing)
    way = one.home / "way to a ring"
    sends = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "d = os.open(os.environ['DW_JOB_scratch'] + '/data', os.O_RDWR | os.O_CREAT, 0o600); "
        "os.write(d, bytes(8192)); socket.send_fds(s, [b'd'], [d]); s.recv(1)"
    )
    with receiving(one, way, "/usr/bin/python3", "-c", RECEIVES) as process:
        job = one.submit("/usr/bin/python3", "-c", sends, str(way), dw=SCRATCH)
        assert process.stdout is not None
        assert process.stdout.readline() == b"kept\n"
        one.cluster.wait_event(job, "clean")
        assert one.cluster.job(job)["success"]
        assert one.cluster.nodes().volumes() == []
        assert process.poll() is None
    wait_for(lambda: leftovers(one.cluster.state) == [])


def test_where_memory_is_short_jobs_are_ended_before_the_cluster(pair: tuple[User, User]) -> None:
    """The kernel ends the largest process, and a job may consist of many small ones."""
    one, _ = pair
    processes = (one.cluster.status()["pid"], *one.cluster.agents().values())
    of_cluster = [int(Path(f"/proc/{each}/oom_score_adj").read_text()) for each in processes]
    job = one.submit("cat", "/proc/self/oom_score_adj")

    assert int(one.output(job)) >= 500
    assert max(of_cluster) == int(Path("/proc/self/oom_score_adj").read_text())


def test_no_process_is_killed_for_a_tasks_public_variables(pair: tuple[User, User]) -> None:
    one, other = pair
    told = one.home / "variables"
    job = one.submit("sh", "-c", 'env > "$0"', str(told))
    one.cluster.wait_event(job, "clean")
    copied = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)

    process = subprocess.Popen(
        ["sleep", "600"],
        user=other.userid,
        group=other.userid,
        env=copied | {"PATH": os.environ["PATH"]},
    )
    try:
        one.cluster.kill()
        one.cluster.up()
        one.cluster.wait_event(one.submit("true"), "clean")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
