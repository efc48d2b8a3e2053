"""Pods as real processes: what their containers see, may do and leave behind."""

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.harness import tracing
from tests.node.conftest import Nodes
from tests.node.processes import alive, eventually
from warren.base.objects import Object
from warren.dws.node import NodeTrouble
from warren.dws.pods.pod import PodState
from warren.node import commands, podmemory
from warren.node.images import Images
from warren.node.podmemory import PodMemory
from warren.node.podnetwork import PodNetwork, free_address, host_address
from warren.node.podprocess.container import _call_when_ended
from warren.node.podprocess.pod import Pod
from warren.node.pods import Pods, _lock_holder, process_command

USERID = os.geteuid() or 4711
GROUPID = os.getegid() or 4712
"""Whose containers these are: root's are nobody's."""


@dataclass
class Machine:
    """A machine with a rabbit that runs pods."""

    nodes: Nodes
    network: PodNetwork
    pods: Pods

    def place(self, uid: str = "a") -> Path:
        return self.nodes.root / "pods" / uid

    def log(self, container: str = "app", uid: str = "a") -> str:
        return (self.place(uid) / f"{container}.log").read_text()

    async def start(self, plan: Object, uid: str = "a") -> None:
        def made(address: str) -> Object:
            hosts = f"127.0.0.1 localhost\n{address} {plan['hostname']}\n"
            return self.imaged({"hosts": hosts, **plan})

        await self.pods.start(uid, made)

    def imaged(self, plan: Object) -> Object:
        """Give each container an image: empty but for the machine's own programs."""

        def one(container: Object) -> Object:
            mounts = [mount("usr", "/usr", read_only=True), *container["mounts"]]
            return {**container, "root": str(self.image), "mounts": mounts}

        return {
            **plan,
            "init": [one(each) for each in plan["init"]],
            "containers": [one(each) for each in plan["containers"]],
            "volumes": {**plan["volumes"], "usr": {"path": "/usr"}},
        }

    @property
    def image(self) -> Path:
        return self.nodes.root / "image"

    async def ended(self, uid: str = "a") -> PodState:
        # A process that began too late may have it for a moment: it is followed again then.
        while (last := [state async for state in self.pods.follow(uid)][-1]).alive:
            pass
        return last

    def run(self, *containers: Object, **more: Any) -> PodState:
        """Run a pod to its end."""

        async def story() -> PodState:
            await self.start(plan(*containers, **more))
            return await self.ended()

        return asyncio.run(story())


@pytest.fixture
def machine(nodes: Nodes) -> Iterator[Machine]:
    """A machine of which no process, mount or pod is left after the test."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    if not Path("/bin").is_symlink():
        pytest.skip("this machine's programs are not all in /usr")
    network = PodNetwork(nodes.root / "network")
    try:
        asyncio.run(network.ensure())
    except NodeTrouble as trouble:
        pytest.skip(f"no network for pods here: {trouble}")
    before = alive()
    machine = Machine(nodes, network, _pods(nodes, network))
    for name in ("etc", "tmp", "proc", "dev"):
        (machine.image / name).mkdir(parents=True)
    (machine.image / "tmp").chmod(0o1777)
    for link in ("bin", "sbin", "lib", "lib64"):
        (machine.image / link).symlink_to(f"usr/{link}")
    yield machine
    asyncio.run(_removed(machine))
    assert machine.pods.uids() == []
    holder = network.holder
    network.end()
    eventually(lambda: holder not in alive())
    ours = {nodes.namespace(name).holder for name in nodes.names()}
    eventually(lambda: not _of_us() - before - ours)


def _pods(
    nodes: Nodes,
    network: PodNetwork,
    start_timeout: float = 30,
    memory: PodMemory | None = None,
) -> Pods:
    images = Images(nodes.root / "own", nodes.root / "library")
    place = nodes.root / "pods"
    return Pods(
        place,
        0,
        network,
        nodes.namespace(),
        images,
        memory=memory,
        start_timeout=start_timeout,
    )


async def _removed(machine: Machine) -> None:
    for uid in machine.pods.uids():
        await machine.pods.remove(uid)


def _of_us() -> set[int]:
    """Return the processes that are pods, or run by bubblewrap."""
    return {
        each
        for each in alive()
        if any(word in _command(each) for word in (b"podprocess", b"bwrap"))
    }


def container(script: str, name: str = "app", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "argv": ["/bin/sh", "-c", script],
        "environment": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        "directory": "/",
        "userid": USERID,
        "groupid": GROUPID,
        "readOnly": False,
        "mounts": [],
        **more,
    }


def mount(volume: str, path: str, below: str = "", *, read_only: bool = False) -> Object:
    return {"volume": volume, "path": path, "below": below, "readOnly": read_only}


def plan(*containers: Object, init: Sequence[Object] = (), **more: Any) -> dict[str, Any]:
    return {
        "hostname": "rabbit-0",
        "grace": 5,
        "ports": [],
        "volumes": {},
        "init": list(init),
        "containers": list(containers),
        **more,
    }


def codes(states: Sequence[Mapping[str, Any]]) -> list[int | None]:
    return [each.get("exitCode") for each in states]


# Who a container is


def test_a_container_is_its_user_alone_and_has_no_powers(machine: Machine) -> None:
    """Statement 001.23: the Workflow's uid and gid run the container."""
    script = "id -u; id -g; hostname; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; echo $$"
    assert codes(machine.run(container(script)).containers) == [0]
    assert machine.log().split() == [
        str(USERID), str(GROUPID), "rabbit-0",
        "CapEff:", "0000000000000000", "CapBnd:", "0000000000000000", "NoNewPrivs:", "1", "1",
    ]  # fmt: skip


def test_a_container_sees_no_process_but_its_own(machine: Machine) -> None:
    machine.run(container("ls /proc | grep -c '^[0-9]'"))
    assert int(machine.log()) <= 4


def test_variables_are_told_to_the_container_and_to_nobody_else(machine: Machine) -> None:
    own = {"PATH": "/usr/bin:/bin", "TOKEN": "hidden words"}
    told = container('echo "$TOKEN"; env | sort | cut -d= -f1; sleep 30', environment=own)

    async def story() -> None:
        await machine.start(plan(told))
        await _printed(machine, "TOKEN")
        assert b"hidden words" not in b"".join(_commands())

    asyncio.run(story())
    assert machine.log().splitlines()[0] == "hidden words"


def test_what_a_container_writes_into_its_image_is_its_own_and_bounded(machine: Machine) -> None:
    script = "echo words > /tmp/it && cat /tmp/it; head -c 300M /dev/zero > /tmp/much || echo full"
    state = machine.run(container(script), container("ls /tmp/it", "other"))
    assert codes(state.containers)[0] == 0
    assert machine.log().startswith("words\n")
    assert machine.log().endswith("full\n")
    assert codes(state.containers)[1] != 0


def test_a_container_whose_image_may_only_be_read_cannot_write_there(machine: Machine) -> None:
    state = machine.run(container("touch /tmp/it", readOnly=True))
    assert codes(state.containers) != [0]


def test_a_container_leaves_memory_and_processes_to_what_it_depends_on(machine: Machine) -> None:
    machine.run(container("cat /proc/self/oom_score_adj; grep 'Max processes' /proc/self/limits"))
    first, _, _, *most, _ = machine.log().split()
    assert int(first) >= 500
    if os.geteuid() == 0:  # an ordinary user's cluster has no others to leave processes to
        names = ("pid_max", "threads-max")
        there = min(int(Path("/proc/sys/kernel", name).read_text()) for name in names)
        assert all(0 < int(each) <= there // 2 for each in most)


# Its memory


@pytest.fixture
def bounded(machine: Machine) -> Iterator[Machine]:
    """A machine on which all containers have 256 MiB, and those of one user 128 MiB."""
    cluster = str(machine.nodes.root)
    memory = podmemory.find(cluster, podmemory.Limits(2**28, 2**27))
    if memory is None:
        pytest.skip(podmemory.NO_CONTROLLER)
    machine.pods = _pods(machine.nodes, machine.network, memory=memory)
    yield machine
    asyncio.run(_removed(machine))
    podmemory.remove_all(cluster)
    assert podmemory._bases(cluster, Path("/proc/self")) == []


HOARD = "exec tail /dev/zero"
"""Reads a line that has no end."""


def test_a_container_that_takes_more_memory_than_its_limit_is_killed(bounded: Machine) -> None:
    state = bounded.run(
        container(f"echo words; {HOARD}", memory=2**25),
        container("sleep 0.5; echo on", "other", memory=2**25),
    )
    killed, other = state.containers
    assert (killed["exitCode"], killed["reason"]) == (137, "OOMKilled")
    assert killed["message"].startswith("words\nit was killed: it took more memory")
    assert other["exitCode"] == 0
    assert "reason" not in other


def test_a_container_without_a_limit_has_what_its_user_has(bounded: Machine) -> None:
    state = bounded.run(container(HOARD))
    assert (state.containers[0]["exitCode"], state.containers[0]["reason"]) == (137, "OOMKilled")


def test_what_is_written_into_file_systems_in_memory_counts(bounded: Machine) -> None:
    state = bounded.run(container("exec head -c 64M /dev/zero > /dev/shm/it", memory=2**25))
    assert (state.containers[0]["exitCode"], state.containers[0]["reason"]) == (137, "OOMKilled")


def test_memory_that_a_user_keeps_beyond_a_pods_end_is_not_anothers(bounded: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("it takes containers of two users")
    fill = "head -c 80M /dev/zero > /dev/shm/it; echo full; sleep 30"

    async def keep() -> int:
        await bounded.start(plan(container(fill)), "first")
        await _printed(bounded, "full", "first")
        pid = _lock_holder(bounded.place("first") / "lock")
        return os.open(f"/proc/{pid}/root/mnt/shm/it", os.O_RDONLY)

    async def run_again(uid: str, userid: int) -> PodState:
        again = fill.replace("30", "0")
        await bounded.start(plan(container(again, userid=userid, groupid=userid)), uid)
        return await bounded.ended(uid)

    # As a process that was passed the file by a socket has it.
    descriptor = asyncio.run(keep())
    try:
        asyncio.run(bounded.pods.remove("first"))
        own = asyncio.run(run_again("own", USERID)).containers[0]
        others = asyncio.run(run_again("others", USERID + 1)).containers[0]
    finally:
        os.close(descriptor)
    assert "full" not in bounded.log(uid="own") or own.get("reason") == "OOMKilled"
    assert others["exitCode"] == 0
    freed = asyncio.run(run_again("freed", USERID)).containers[0]
    assert freed["exitCode"] == 0


def test_a_container_whose_cgroup_is_gone_does_not_run_without_a_limit(bounded: Machine) -> None:
    gate = bounded.nodes.root / "gate"
    gate.mkdir(mode=0o755)
    script = "echo on; until [ -e /gate/open ]; do sleep 0.02; done"
    first = container(script, mounts=[mount("gate", "/gate")])
    held = container("exit 0", "held", memory=2**25)

    async def story() -> PodState:
        await bounded.start(plan(held, init=[first], volumes={"gate": {"path": str(gate)}}))
        await _printed(bounded, "on")
        made = json.loads((bounded.place() / "machine.json").read_text())["cgroups"]
        os.rmdir(made[1])
        (gate / "open").touch()
        return await bounded.ended()

    [ended] = asyncio.run(story()).containers
    assert ended["exitCode"] == 128
    assert "cgroup.procs: No such file or directory" in ended["message"]


class FullMemory(PodMemory):
    """Cgroups that take no process."""

    def make(self, pod: str, number: int, userid: int, limit: int | None) -> Path:
        container = self.path(pod, number, userid)
        container.mkdir(parents=True)
        (container / "cgroup.procs").symlink_to("/dev/full")
        return container


def test_a_container_that_cannot_enter_its_cgroup_does_not_run(machine: Machine) -> None:
    memory = FullMemory(machine.nodes.root / "full", 2, podmemory.Limits(2**28, 2**27))
    machine.pods = _pods(machine.nodes, machine.network, memory=memory)

    [ended] = machine.run(container("exit 0")).containers
    assert ended["exitCode"] == 128
    assert ended["message"] == f"it cannot be put into its cgroup {memory.path('a', 0, USERID)}"
    shutil.rmtree(machine.nodes.root / "full")  # plain files: rmdir leaves them


def test_a_pods_cgroups_are_removed_with_it_and_no_others_are(bounded: Machine) -> None:
    async def story() -> tuple[list[Path], list[Path]]:
        made = []
        for uid in ("a", "b"):
            await bounded.start(plan(container("sleep 60"), container("sleep 60", "other")), uid)
            cgroups = json.loads((bounded.place(uid) / "machine.json").read_text())["cgroups"]
            made.append([Path(each) for each in cgroups])
        await bounded.pods.remove("a")
        return made[0], made[1]

    removed, others = asyncio.run(story())
    assert [each.exists() for each in (*removed, *others)] == [False, False, True, True]


def test_a_cgroup_that_was_held_beyond_its_pods_end_goes_with_the_next_pod(
    bounded: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podmemory, "_PAUSES", (0.01,))
    bounded.run(container("exit 0"))
    [cgroup] = json.loads((bounded.place() / "machine.json").read_text())["cgroups"]
    with subprocess.Popen(["sleep", "60"]) as holder:
        Path(cgroup, "cgroup.procs").write_text(str(holder.pid))
        asyncio.run(bounded.pods.remove("a"))
        assert Path(cgroup).exists()
        assert bounded.pods.uids() == []
        holder.kill()
    # Also by an agent that was restarted, and now has no memory to divide.
    bounded.pods = _pods(bounded.nodes, bounded.network)
    asyncio.run(bounded.start(plan(container("exit 0")), "next"))
    assert not Path(cgroup).exists()
    assert not list(bounded.place().parent.glob(".old-*"))


# Its volumes


def test_a_container_has_what_is_mounted_on_its_rabbit(machine: Machine) -> None:
    """Statement 001.40: volumes are paths of the rabbit, with all that is mounted below."""
    path = f"{machine.nodes.prefix}/job"

    async def story() -> None:
        nsenter = await machine.nodes.namespace().nsenter_command()
        script = (f"mkdir -m 711 {path} && mkdir {path}/0 && mount -t tmpfs none {path}/0 && "
                  f"chmod 777 {path}/0 && echo words > {path}/0/it")  # fmt: skip
        await commands.run([*nsenter, "sh", "-c", script])
        told = container("cat /data/0/it; echo more > /data/0/new", mounts=[mount("fast", "/data")])
        await machine.start(plan(told, volumes={"fast": {"path": path}}))
        assert codes((await machine.ended()).containers) == [0]
        assert (await commands.run([*nsenter, "cat", f"{path}/0/new"])) == "more\n"
        await commands.run([*nsenter, "umount", f"{path}/0"])

    asyncio.run(story())
    assert machine.log() == "words\n"


def test_allocations_are_found_by_links_in_a_directory_that_cannot_be_written_to(
    machine: Machine,
) -> None:
    """Statements 001.43, 001.45, 001.46: as pods of Kubernetes have them."""
    path = f"{machine.nodes.prefix}/job"
    first = container(
        "mkdir -p /nnf-index/fast/rabbit-0-1 && cd /nnf-index/fast && "
        "ln -s rabbit-0-1 node-0 && ln -s node-0 compute-01",
        "first",
        mounts=[mount("nnf-index", "/nnf-index")],
    )
    told = container(
        "cat /data/compute-01/it; echo more > /data/node-0/new; ls /data; "
        "echo lost > /data/beside || echo told",
        mounts=[
            # Containers mount what is below another mount after it, whatever the order here.
            mount("fast", "/data/rabbit-0-1", "rabbit-0-1"),
            mount("nnf-index", "/data", "fast", read_only=True),
        ],
    )
    volumes = {"fast": {"path": path}, "nnf-index": {"size": None}}

    async def story() -> None:
        nsenter = await machine.nodes.namespace().nsenter_command()
        own = f"{path}/rabbit-0-1"
        script = (
            f"mkdir -m 711 {path} && mkdir {path}/rabbit-0-0 {own} && "
            f"mount -t tmpfs none {own} && chmod 777 {own} && echo words > {own}/it"
        )
        await commands.run([*nsenter, "sh", "-c", script])
        await machine.start(plan(told, init=[first], volumes=volumes))
        state = await machine.ended()
        assert (codes(state.init), codes(state.containers)) == ([0], [0])
        assert (await commands.run([*nsenter, "cat", f"{own}/new"])) == "more\n"
        await commands.run([*nsenter, "umount", own])

    asyncio.run(story())
    said = [each for each in machine.log().splitlines() if "lost" not in each and ":" not in each]
    assert said == ["words", "compute-01", "node-0", "rabbit-0-1", "told"]


def test_a_volume_that_is_not_on_the_rabbit_is_told(machine: Machine) -> None:
    told = container("true", mounts=[mount("fast", "/data")])
    state = machine.run(told, volumes={"fast": {"path": f"{machine.nodes.prefix}/nowhere"}})
    assert "nowhere: No such file or directory" in state.error
    assert codes(state.containers) == [None]


def test_a_read_only_volume_cannot_be_written_to(machine: Machine) -> None:
    told = container("touch /data/it", mounts=[mount("own", "/data", read_only=True)])
    assert codes(machine.run(told, volumes={"own": {"size": None}}).containers) != [0]


def test_containers_of_a_pod_share_its_directories(machine: Machine) -> None:
    first = container("echo words > /a/it", "first", mounts=[mount("own", "/a")])
    then = container("cat /b/it /c", mounts=[mount("own", "/b"), mount("own", "/c", "it")])
    state = machine.run(then, init=[first], volumes={"own": {"size": None}})
    assert (codes(state.init), codes(state.containers)) == ([0], [0])
    assert machine.log() == "words\nwords\n"


def test_a_directory_of_a_pod_has_the_size_that_it_asks_for(machine: Machine) -> None:
    told = container("head -c 2M /dev/zero > /a/it", mounts=[mount("own", "/a")])
    assert codes(machine.run(told, volumes={"own": {"size": 2**20}}).containers) != [0]


def test_files_are_given_by_what_they_hold(machine: Machine) -> None:
    files = {"storages": "W10=", "some/bytes": "//4="}
    told = container("cat /etc/nnf/storages; wc -c < /etc/nnf/some/bytes",
                     mounts=[mount("config", "/etc/nnf", read_only=True)])  # fmt: skip
    assert codes(machine.run(told, volumes={"config": {"files": files}}).containers) == [0]
    assert machine.log().split() == ["[]2"] or machine.log().split() == ["[]", "2"]


def test_no_link_that_a_user_makes_leads_out_of_a_volume(machine: Machine) -> None:
    first = container("ln -s / /a/out", "first", mounts=[mount("own", "/a")])
    then = container("ls /b", mounts=[mount("own", "/b", "out/etc")])
    state = machine.run(then, init=[first], volumes={"own": {"size": None}})
    assert codes(state.containers) == [128]
    assert "passes a link" in state.containers[0]["message"]


# Its life


def test_containers_that_prepare_run_one_after_the_other_before_all_others(
    machine: Machine,
) -> None:
    order = [container("sleep 0.2; echo 1 >> /a/it", "one", mounts=[mount("own", "/a")]),
             container("echo 2 >> /a/it", "two", mounts=[mount("own", "/a")])]  # fmt: skip
    last = container("cat /a/it", mounts=[mount("own", "/a")])
    machine.run(last, init=order, volumes={"own": {"size": None}})
    assert machine.log().split() == ["1", "2"]


def test_where_one_that_prepares_fails_nothing_else_runs_and_its_words_are_told(
    machine: Machine,
) -> None:
    state = machine.run(container("true"), init=[container("echo no data; exit 3", "first")])
    assert (codes(state.init), codes(state.containers)) == ([3], [None])
    assert state.init[0]["message"] == "no data"


def test_the_status_of_each_container_is_told(machine: Machine) -> None:
    state = machine.run(container("exit 7"), container("true", "other"),
                        container("", "third", argv=["/nowhere"]))  # fmt: skip
    first, second, third = codes(state.containers)
    assert (first, second) == (7, 0)
    assert third not in (0, None)
    assert "/nowhere" in state.containers[2]["message"]


def test_what_a_container_leaves_running_ends_with_it(machine: Machine) -> None:
    state = machine.run(container("sleep 4713 & exit 0"))
    assert codes(state.containers) == [0]
    assert not _running(b"4713")


def test_of_endless_output_the_last_is_kept(machine: Machine) -> None:
    machine.run(container("yes | head -c 40000000; echo; echo last"))
    assert machine.log().endswith("last\n")
    files = [each for each in machine.place().iterdir() if each.name.startswith("app.log")]
    assert 0 < sum(each.stat().st_size for each in files) <= 2 * 8 * 2**20


def test_a_pod_that_is_stopped_may_end_by_itself(machine: Machine) -> None:
    async def story() -> PodState:
        script = "trap 'echo asked; exit 0' TERM; echo on; while :; do sleep 0.05; done"
        await machine.start(plan(container(script)))
        await _printed(machine, "on")
        machine.pods.stop("a")
        return await machine.ended()

    state = asyncio.run(story())
    assert state.stopped
    assert codes(state.containers) == [0]
    assert machine.log() == "on\nasked\n"


def test_a_pod_that_does_not_end_is_killed_when_its_time_is_over(machine: Machine) -> None:
    async def story() -> PodState:
        script = "trap '' TERM; echo on; while :; do sleep 0.05; done"
        await machine.start(plan(container(script), grace=0.2))
        await _printed(machine, "on")
        machine.pods.stop("a")
        return await machine.ended()

    assert codes(asyncio.run(story()).containers) == [137]


def test_a_pod_is_followed_by_another_agent_than_the_one_that_started_it(machine: Machine) -> None:
    """A pod outlives its agent."""

    async def begin() -> None:
        await machine.start(plan(container("echo on; sleep 0.5; exit 5")))

    asyncio.run(begin())
    again = _pods(machine.nodes, machine.network)

    async def follow() -> list[PodState]:
        return [state async for state in again.follow("a")]

    states = asyncio.run(follow())
    assert codes(states[-1].containers) == [5]
    assert not states[-1].alive


def test_a_pod_that_was_begun_is_not_begun_again(machine: Machine) -> None:
    async def story() -> None:
        await machine.start(plan(container("echo on")))
        await machine.ended()
        await machine.start(plan(container("echo again")))

    asyncio.run(story())
    assert machine.log() == "on\n"


def test_a_pod_whose_agent_died_before_its_process_began_is_begun_by_the_next(
    machine: Machine,
) -> None:
    """With the plan that it had: it has been told to others."""
    place = machine.place()
    place.mkdir(parents=True)
    told = machine.imaged(plan(container("echo first"), hosts="", address="10.0.1.9/8"))
    (place / "plan.json").write_text(json.dumps(told))
    (place / "address").write_text("10.0.1.9/8")

    async def story() -> None:
        await machine.start(plan(container("echo second")))
        assert machine.pods.address("a") == "10.0.1.9"
        await machine.ended()

    asyncio.run(story())
    assert machine.log() == "first\n"


@pytest.mark.parametrize("torn", ["", '{"hostname": "rabb'])
def test_a_plan_that_a_power_cut_has_torn_is_made_again(machine: Machine, torn: str) -> None:
    place = machine.place()
    place.mkdir(parents=True)
    (place / "address").write_text("10.0.1.9/8")
    (place / "plan.json").write_text(torn)
    assert codes(machine.run(container("echo on")).containers) == [0]
    assert machine.pods.address("a") == "10.0.1.9"


@pytest.mark.parametrize("torn", ["", '{"init": [', "[]", '{"init": []}'])
def test_a_pod_whose_state_a_power_cut_has_torn_is_lost_and_says_so(
    machine: Machine, torn: str
) -> None:
    machine.run(container("echo on"))
    (machine.place() / "state.json").write_text(torn)
    state = machine.pods.state("a")
    assert state is not None
    assert not state.alive
    assert "cannot be read" in state.error


def test_a_living_pods_address_is_known_without_its_plan_and_given_to_no_other(
    machine: Machine,
) -> None:
    asyncio.run(machine.start(plan(container("sleep 60"))))
    (machine.place() / "plan.json").write_text("")
    address = machine.pods.address("a")
    assert address is not None
    asyncio.run(machine.start(plan(container("true")), "b"))
    assert machine.pods.address("b") not in (None, address)


def test_a_pod_that_has_ended_keeps_its_address_from_no_other(machine: Machine) -> None:
    """Its job may run for days yet, and has what its containers have printed until then."""
    machine.run(container("true"))
    address = machine.pods.address("a")

    async def story() -> None:
        await machine.start(plan(container("true")), "b")
        await machine.ended("b")

    asyncio.run(story())
    assert machine.pods.address("b") == address


def test_what_is_kept_of_an_ended_pods_network_is_cut_off_before_another_has_its_address(
    machine: Machine,
) -> None:
    """A socket that its user has handed to a process elsewhere keeps it."""

    def links() -> int:
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        nsenter = ["nsenter", f"--target={machine.network.holder}", *user, "--net"]
        shown = subprocess.check_output(
            [*nsenter, "ip", "-oneline", "link", "show", "master", "pods"]
        )
        return len(shown.splitlines())

    async def story() -> None:
        await machine.start(plan(container("sleep 60")))
        kept = os.open(f"/proc/{_process_of(machine)}/ns/net", os.O_RDONLY)
        try:
            machine.pods.stop("a")
            await machine.ended()
            assert links() == 1
            await machine.start(plan(container("sleep 60")), "b")
            assert links() == 1
            second = machine.pods.state("b")
            assert second is not None
            assert second.alive, second.error
        finally:
            os.close(kept)

    asyncio.run(story())
    assert machine.pods.address("b") == machine.pods.address("a")


def test_a_pod_that_is_slow_to_begin_is_begun_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process is there before the slow one has said that it lives."""
    os.mkfifo(go := machine.nodes.root / "go")
    slow = _program(machine, f'#!/bin/sh\nread go < {go}\nexec {sys.executable} "$@"\n')
    hasty = _pods(machine.nodes, machine.network, start_timeout=0.2)
    told = machine.imaged(plan(container("echo on; sleep 0.3; echo off"), hosts=""))

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", slow)
            before = os.listdir("/proc/self/fd")
            with pytest.raises(NodeTrouble, match=r"not begun within 0\.2 s: it is waited for"):
                await hasty.start("a", lambda _: told)
            assert os.listdir("/proc/self/fd") == before
        await machine.start(told)
        await _printed(machine, "on")
        go.write_text("\n")
        await machine.ended()

    asyncio.run(story())
    eventually(lambda: not _running(os.fsencode(machine.place())))
    assert machine.log() == "on\noff\n"
    assert "BlockingIOError" not in (machine.place() / ".process.log").read_text()


def test_a_pod_that_is_slow_to_begin_holds_up_no_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(go := machine.nodes.root / "go")
    there = machine.nodes.root / "there"
    script = f'#!/bin/sh\ntouch {there}\nread go < {go}\nexec {sys.executable} "$@"\n'
    slow = _program(machine, script)

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", slow)
            first = asyncio.ensure_future(machine.start(plan(container("true"))))
            while not there.exists():  # noqa: ASYNC110 - no news of a file
                await asyncio.sleep(0.02)
        await machine.start(plan(container("true")), "b")
        assert machine.pods.state("a") is None
        assert machine.pods.address("a") != machine.pods.address("b")
        go.write_text("\n")
        await first

    asyncio.run(story())


def test_a_process_that_comes_when_its_pod_has_ended_leaves_it_so(machine: Machine) -> None:
    machine.run(container("echo on"))
    subprocess.run(process_command(machine.place()), check=True)
    assert machine.log() == "on\n"


def test_a_pod_that_lives_and_has_not_begun_is_left_to_begin(machine: Machine) -> None:
    """Its disk is full, for one."""
    machine.place().mkdir(parents=True)
    (full := machine.place() / "state.json.new").mkdir()
    hasty = _pods(machine.nodes, machine.network, start_timeout=2)
    told = machine.imaged(plan(container("echo on"), hosts=""))

    async def story() -> PodState:
        with pytest.raises(NodeTrouble, match="not begun within"):
            await hasty.start("a", lambda _: told)
        process = _process_of(machine)
        with pytest.raises(NodeTrouble, match="takes long to begin"):
            await hasty.start("a", lambda _: told)
        assert _process_of(machine) == process
        full.rmdir()
        while machine.pods.state("a") is None:  # noqa: ASYNC110 - no news of a file
            await asyncio.sleep(0.02)
        await hasty.start("a", lambda _: told)
        return await machine.ended()

    assert codes(asyncio.run(story()).containers) == [0]
    assert machine.log() == "on\n"


def test_a_pod_that_is_stopped_as_soon_as_it_is_seen_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"""#!{sys.executable}
import os, signal, sys
sys.path.append({str(Path(warren.__file__).parent.parent)!r})
from warren.node.podprocess import program
from warren.node.podprocess.pod import Pod
publish_state = Pod.publish_state
def published(pod):
    publish_state(pod)
    Pod.publish_state = publish_state
    os.kill(os.getpid(), signal.SIGTERM)
Pod.publish_state = published
program.main(sys.argv[-1])
"""
    monkeypatch.setattr(sys, "executable", _program(machine, script))
    state = machine.run(container("sleep 100"), container("true", "other"), grace=0.2)
    assert state.stopped
    assert codes(state.containers)[0] in (137, 143)
    assert codes(state.containers)[1] in (0, 137, 143)
    assert all(each["message"] for each in state.containers if each["exitCode"] == 143)


def _program(machine: Machine, text: str) -> str:
    file = machine.nodes.root / "program"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def test_a_full_disk_ends_no_application_and_its_end_is_told_when_there_is_room(
    machine: Machine,
) -> None:
    machine.place().mkdir(parents=True)
    (machine.place() / "other.log").mkdir()
    full = machine.place() / "state.json.new"

    async def story() -> PodState:
        waits = "echo on; while ! [ -e /a/go ]; do sleep 0.02; done; echo off"
        await machine.start(
            plan(
                container(waits, mounts=[mount("own", "/a")]),
                container("sleep 0.3; touch /a/go", "other", mounts=[mount("own", "/a")]),
                volumes={"own": {"size": None}},
            )
        )
        states = machine.pods.follow("a")
        async for state in states:
            if all("startedAt" in each for each in state.containers):
                break
        full.mkdir()
        await _printed(machine, "off")
        now = machine.pods.state("a")
        assert now is not None
        assert now.alive
        full.rmdir()
        return [each async for each in states][-1]

    state = asyncio.run(story())
    assert not state.alive
    assert codes(state.containers) == [0, 0]


def test_a_pod_that_is_to_go_does_not_wait_for_a_full_disk(machine: Machine) -> None:
    async def story() -> PodState:
        await machine.start(plan(container("trap 'exit 0' TERM; echo on; sleep 100 & wait")))
        await _printed(machine, "on")
        (machine.place() / "state.json.new").mkdir()
        machine.pods.stop("a")
        return await machine.ended()

    assert not asyncio.run(story()).alive


def test_a_container_that_cannot_be_begun_leaves_nothing_open(tmp_path: Path) -> None:
    own = Pod(str(tmp_path), plan(container("true")), is_root=True)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        own._containers[0]._start(["/nowhere"], [])
    assert os.listdir("/proc/self/fd") == before


def test_of_the_end_of_a_container_is_news_once() -> None:
    before = os.listdir("/proc/self/fd")
    child = os.posix_spawn("/bin/true", ["true"], {})

    async def story() -> list[str]:
        first = os.listdir("/proc/self/fd")
        ended = asyncio.Event()
        _call_when_ended(child, ended.set)
        await ended.wait()
        return [each for each in os.listdir("/proc/self/fd") if each not in first]

    assert asyncio.run(story()) == []
    os.waitpid(child, 0)
    assert os.listdir("/proc/self/fd") == before


def test_last_words_may_be_as_long_as_they_are(machine: Machine) -> None:
    """Of bytes that are six each where they are told."""
    script = r"head -c 2000 /dev/zero | tr '\0' '\377'; exit 3"
    state = machine.run(*(container(script, f"app-{number}") for number in range(6)))
    assert codes(state.containers) == [3] * 6
    assert sum(len(each["message"]) for each in state.containers) == 12000


def test_with_the_process_of_a_pod_die_its_containers_and_that_is_seen(machine: Machine) -> None:
    async def story() -> PodState:
        await machine.start(plan(container("echo on; sleep 4714")))
        await _printed(machine, "on")
        os.kill(_process_of(machine), signal.SIGKILL)
        return await machine.ended()

    state = asyncio.run(story())
    assert codes(state.containers) == [None]
    eventually(lambda: not _running(b"4714"))


def test_a_pod_that_is_removed_is_gone_with_all_that_runs(machine: Machine) -> None:
    async def story() -> None:
        await machine.start(plan(container("echo on; sleep 4715")))
        await _printed(machine, "on")
        await machine.pods.remove("a")

    asyncio.run(story())
    assert machine.pods.uids() == []
    assert not machine.place().exists()
    eventually(lambda: not _running(b"4715"))


def _running(word: bytes) -> bool:
    return any(word in each.split(b"\0") for each in _commands())


def _commands() -> Iterator[bytes]:
    yield from map(_command, alive())


def _process_of(machine: Machine, uid: str = "a") -> int:
    place = os.fsencode(machine.place(uid))
    found = [each for each in _of_us() if each and place in _command(each)]
    (process,) = found
    assert process is not None
    return process


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


async def _printed(machine: Machine, word: str, uid: str = "a") -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(FileNotFoundError):
                if f"{word}\n" in machine.log(uid=uid):
                    return
            await asyncio.sleep(0.02)


# The network

_SERVE = (
    "import socket; s = socket.create_server(('', 80)); print('on', flush=True)\n"
    "while True:\n c, _ = s.accept(); c.sendall(c.recv(100).upper()); c.close()"
)
PYTHON = shutil.which("python3", path="/usr/bin:/bin")


@pytest.mark.skipif(PYTHON is None, reason="the machine's own files have no python3")
def test_each_pod_has_its_own_port_80_and_is_reached_by_name_and_by_the_port_of_its_node(
    machine: Machine,
) -> None:
    """Statements 001.25, 001.32: names resolve, and the application sees its own port."""

    async def story() -> list[bytes]:
        serving = container("", argv=[PYTHON, "-c", _SERVE])
        for uid, host in (("a", "127.0.0.11"), ("b", "127.0.0.12")):
            ports = [{"host": host, "port": 45671, "to": 80}]
            await machine.start(plan(serving, ports=ports, hostname=f"rabbit-{uid}"), uid)
        for uid in ("a", "b"):
            await _printed(machine, "on", uid)
        address = machine.pods.address("b")
        machine.pods.tell_hosts("a", f"127.0.0.1 localhost\n{address} rabbit-b.wf\n")
        answers = []
        for host in ("127.0.0.11", "127.0.0.12"):
            reader, writer = await asyncio.open_connection(host, 45671)
            writer.write(b"words")
            answers.append(await reader.read())
            writer.close()
        return answers

    assert asyncio.run(story()) == [b"WORDS", b"WORDS"]

    async def by_name() -> PodState:
        script = (
            "import socket; c = socket.create_connection(('rabbit-a.wf', 80)); "
            "c.sendall(b'named'); print(c.recv(100).decode())"
        )

        def made(address: str) -> Object:
            hosts = f"{machine.pods.address('a')} rabbit-a.wf\n"
            return machine.imaged(plan(container("", argv=[PYTHON, "-c", script]), hosts=hosts))

        await machine.pods.start("c", made)
        return await machine.ended("c")

    state = asyncio.run(by_name())
    assert codes(state.containers) == [0], state
    assert machine.log(uid="c") == "NAMED\n"
    # What its pod had is free when it has gone.
    asyncio.run(_removed(machine))
    with socket.create_server(("127.0.0.11", 45671)):
        pass


def test_hosts_are_told_where_containers_have_filled_what_they_may(machine: Machine) -> None:
    wait = "while ! grep rabbit-{} /etc/hosts; do sleep 0.02; done; wc -l < /etc/hosts"
    filled = "head -c 300M /dev/zero > /tmp/much; echo full"

    async def story() -> PodState:
        await machine.start(plan(container("; ".join([filled, wait.format(8), wait.format(9)]))))
        await _printed(machine, "full")
        machine.pods.tell_hosts("a", "127.0.0.1 localhost\n" * 999 + "10.0.9.1 rabbit-8\n")
        await _printed(machine, "1000")
        machine.pods.tell_hosts("a", "10.0.9.2 rabbit-9\n")
        await _printed(machine, "1")
        return await machine.ended()

    assert codes(asyncio.run(story()).containers) == [0]


def test_hosts_that_cannot_be_written_are_told(machine: Machine) -> None:
    async def story() -> None:
        await machine.start(plan(container("echo on; sleep 100")))
        await _printed(machine, "on")
        with pytest.raises(NodeTrouble, match="hosts of the pod a cannot be written: No space"):
            machine.pods.tell_hosts("a", "127.0.0.1 localhost\n" * 10**6)

    asyncio.run(story())


@pytest.mark.skipif(PYTHON is None, reason="the machine's own files have no python3")
def test_a_container_sees_the_interfaces_of_its_pod_and_changes_nothing_there(
    machine: Machine,
) -> None:
    script = "ls /sys/class/net; ! mount -o remount,rw /sys && ! echo 1 > /sys/class/net/lo/mtu"
    assert codes(machine.run(container(script)).containers) == [0]
    assert machine.log().split()[:2] == ["eth0", "lo"]


def test_a_pod_reaches_nothing_of_the_machines_own_network(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)"
        state = machine.run(container("", argv=[PYTHON, "-c", script]))
    assert codes(state.containers) == [1]
    assert "refused" in state.containers[0]["message"]


def test_a_port_that_is_in_use_is_told(machine: Machine) -> None:
    with socket.create_server(("127.0.0.13", 45672)):
        ports = [{"host": "127.0.0.13", "port": 45672, "to": 80}]
        state = machine.run(container("true"), ports=ports)
    assert state.error == "port 45672 of 127.0.0.13: Address already in use"


def test_addresses_are_given_once_and_run_out_with_a_reason() -> None:
    given: list[str] = []
    for _ in range(253):
        given.append(free_address(300, given))
    assert len(set(given)) == 253
    assert given[0] == "10.1.45.2/8"
    with pytest.raises(NodeTrouble, match=r"all addresses of 10\.1\.45\.0/24 are in use"):
        free_address(300, given)
    with pytest.raises(NodeTrouble, match="too many"):
        free_address(70000, [])


def test_each_rabbit_of_each_cluster_has_an_address_of_its_own() -> None:
    given = [host_address(owner, number) for owner in ("a", "b", "c") for number in range(300)]
    assert len(set(given)) == len(given)
    assert all(each.startswith("127.") and not each.startswith("127.0.") for each in given)
    assert host_address("a", 0) == given[0]


# What its user may try, who may reach its processes from outside


def _of(word: bytes) -> list[int]:
    """Return the processes of a container with a word in its command: bubblewrap's, too."""
    return [each for each in alive() if each and word in _command(each)]


def test_a_pod_ends_though_its_user_has_stopped_what_waits_for_a_container(
    machine: Machine,
) -> None:
    """Teardown waits for its end: no signal of the job's user puts that off."""

    async def story() -> PodState:
        await machine.start(plan(container("echo on; sleep 4716"), grace=0.2))
        await _printed(machine, "on")
        for each in _of(b"4716"):
            os.kill(each, signal.SIGSTOP)
        machine.pods.stop("a")
        async with asyncio.timeout(60):
            return await machine.ended()

    assert codes(asyncio.run(story()).containers) == [137]
    eventually(lambda: not _running(b"4716"))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_pod_ends_though_its_user_traces_its_containers(
    machine: Machine, *, is_stopped: bool
) -> None:
    word = f"47{17 + is_stopped}"

    async def story() -> None:
        await machine.start(plan(container(f"echo on; sleep {word}"), grace=0.2))
        await _printed(machine, "on")
        argv = tracing.command(*_of(word.encode()))
        tracer = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        try:
            assert tracer.stdout is not None
            assert await tracer.stdout.readline() == b"traced\n"
            if is_stopped:
                machine.pods.stop("a")
                async with asyncio.timeout(60):
                    assert codes((await machine.ended()).containers) == [137]
            await machine.pods.remove("a")
        finally:
            tracer.kill()
            await tracer.wait()

    asyncio.run(story())
    eventually(lambda: not _of(word.encode()))


_UNTIED = """
import ctypes, time
ctypes.CDLL(None).prctl(1, 0)  # PR_SET_PDEATHSIG
print("on", flush=True)
time.sleep(4719)
"""


@pytest.mark.skipif(PYTHON is None, reason="the machine's own files have no python3")
def test_no_container_outlives_the_process_of_its_pod_whatever_it_does(machine: Machine) -> None:
    async def story() -> None:
        await machine.start(plan(container("", argv=[PYTHON, "-c", _UNTIED])))
        await _printed(machine, "on")
        await machine.pods.remove("a")

    asyncio.run(story())
    eventually(lambda: not any(b"4719" in each for each in _commands()))


_DEAF = (
    "import socket, sys, time; s = socket.create_server(('', 80), backlog=1000)\n"
    "print('on', flush=True); time.sleep(3); sys.exit(3)"
)


@pytest.mark.skipif(PYTHON is None, reason="the machine's own files have no python3")
def test_those_who_connect_to_a_port_in_great_number_take_from_the_pod_no_file_nor_disk(
    machine: Machine,
) -> None:
    """Any user of the machine may connect to a port of its node, and stay."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most, where = 256, ("127.0.0.14", 45673)

    async def story() -> PodState:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        try:
            ports = [{"host": where[0], "port": where[1], "to": 80}]
            await machine.start(plan(container("", argv=[PYTHON, "-c", _DEAF]), ports=ports))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await _printed(machine, "on")
        with ExitStack() as connections:
            for _ in range(most):
                with suppress(OSError):
                    connections.enter_context(socket.create_connection(where, timeout=1))
            return await machine.ended()

    assert codes(asyncio.run(story()).containers) == [3]
    said = (machine.place() / ".process.log").read_text()
    assert "Too many open files" not in said


def test_what_a_container_writes_beside_its_image_is_bounded_as_well(machine: Machine) -> None:
    script = """
        head -c 300M /dev/zero 2>&1 > /dev/shm/much || echo full
        echo > /dev/more || echo refused
        mkdir /tmp/many && cd /tmp/many && seq 200000 | xargs touch 2>/dev/null || echo many
        seq 200000 | ( cd /own && xargs touch ) 2>/dev/null || echo many
    """
    volumes = {"own": {"size": 2**20}}
    machine.run(container(script, mounts=[mount("own", "/own")]), volumes=volumes)
    words = [each for each in machine.log().splitlines() if " " not in each]
    assert words == ["full", "refused", "many", "many"]
