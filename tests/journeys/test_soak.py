"""Rabbit jobs under kills, cancels and held files: the accounting ends as the truth on disk."""

import asyncio
import itertools
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.extent import extent
from tests.journeys.conftest import Cluster, running, wait_for
from tests.journeys.loads import SEED, T, answered, cancel, listed, open_files, submit
from warren.base.bytesize import GIB, MIB
from warren.daemons import rundir
from warren.daemons.statedir import lock_holder
from warren.dws import audit, kinds
from warren.instance import config
from warren.instance.kvs import Kvs
from warren.instance.shell import cgroups
from warren.journal.sqlite import SqliteJournal
from warren.lifecycle.states import RUNNING, Result
from warren.node.extents import Extents
from warren.rfc import fluid, jobspec
from warren.rfc.fluid import JobId
from warren.rpc.message import Handle

JOBS: Final = extent("WARREN_SOAK_JOBS", usual=8, everything=300)
AT_ONCE: Final = 12
"""Jobs that are not over, at the most: more than there are nodes."""
CAPACITY: Final = 6 * GIB
PADDING: Final = 300 * MIB
"""What a volume has beyond what was asked for."""
COMPUTES: Final = 3
KEEP_SECONDS: Final = 8.0
"""How long a file is kept open, at the most."""
LAST_SECONDS: Final = 600.0
"""How long the last jobs may take once nothing disturbs them."""

SITE: Final = """
[exec]
kill-timeout = "1s"
[storage]
busy-timeout = "1s"
"""

BODY: Final = """set -e
cd "$DW_JOB_scratch"
echo > here
[ ! -e input ] || cmp input {input}
mkdir results
cp {input} results/data
echo {name} $FLUX_TASK_RANK > results/who
sleep {seconds}
exit {status}
"""

SIZES: Final = ("16MiB", "64MiB", "400MiB", "1GiB", "2GiB", "4GiB", "5GiB")

ACTIONS: Final = (
    *("nothing",) * 4,
    *("cancel",) * 5,
    *("control",) * 2,
    *("rabbit", "computes") * 2,
    *("copier",) * 3,
    *("keep",) * 3,
    *("shells", "holder"),
)
"""How often what is done after a job was submitted."""


@dataclass(kw_only=True)
class Kept:
    """A process outside of all jobs that has a file of a job's storage open."""

    process: subprocess.Popen[bytes]
    until: float
    """When it ends: what it keeps is what others wait for."""


@dataclass(kw_only=True)
class Soak:
    """Jobs of one user, and all that happens to them."""

    cluster: Cluster
    dice: random.Random
    input: bytes
    accepted: dict[JobId, str] = field(default_factory=dict)
    """Names of jobs by their ids."""
    wide: dict[JobId, int] = field(default_factory=dict)
    """Nodes by jobs whose results are copied out."""
    cancelled: set[JobId] = field(default_factory=set)
    excused: dict[JobId, str] = field(default_factory=dict)
    """Jobs that were running when what they cannot do without was killed, and what it was."""
    kept: list[Kept] = field(default_factory=list)
    copies: Counter[bytes] = field(default_factory=Counter)
    """How often the copier of each copy was killed."""
    done: Counter[str] = field(default_factory=Counter)
    """What has happened, and how often."""
    _deck: list[str] = field(default_factory=list)

    def ask(self, action: Callable[[Handle], Awaitable[T]]) -> T:
        """Do something with the instance, which is there or comes up."""

        async def asking() -> T:
            async with asyncio.timeout(120):
                return await answered(self.cluster, action)

        assert self.cluster.process is not None
        assert self.cluster.process.poll() is None, "control has ended by itself"
        return asyncio.run(asking())

    def jobs(self) -> list[Mapping[str, Any]]:
        return list(self.ask(listed))

    def step(self, number: int) -> None:
        """Submit a job when there is room for one more, and do something to the cluster."""
        wait_for(self._has_room, LAST_SECONDS)
        self._submit(number)
        time.sleep(self.dice.random())
        if not self._deck:
            self._deck = self.dice.sample(ACTIONS, len(ACTIONS))
        action = self._deck.pop()
        happened = getattr(self, f"_{action}")()
        print(f"{time.strftime('%T')} job {number}: {action}: {happened}", flush=True)
        self.done[action] += happened is not None
        assert_nothing_is_given_twice(self.cluster)

    def let_go(self, kept: list[Kept]) -> None:
        """End processes that keep files open."""
        for each in kept:
            each.process.kill()
            each.process.wait()
            self.kept.remove(each)

    def _has_room(self) -> bool:
        self.let_go([each for each in self.kept if each.until < time.monotonic()])
        return sum("result" not in job for job in self.jobs()) < AT_ONCE

    def _submit(self, number: int) -> None:
        dice = self.dice
        badly = dice.random() < 0.1
        name = f"{'badly' if badly else 'well'}-{number}"
        given = self.cluster.shared / "input"
        body = BODY.format(
            input=given, name=name, seconds=f"{dice.random() * 2:.2f}", status=3 if badly else 0
        )
        nodes = dice.choice([1, 1, 2, 3])
        # The largest, with which a node has its rabbit to itself, are rare.
        large = 1 if nodes <= 2 else 0
        capacity = dice.choices(SIZES, weights=[4, 4, 4, 3, 2, large, large])[0]
        file_system = dice.choice(["xfs", "ext4"])
        directives = [f"#DW jobdw type={file_system} capacity={capacity} name=scratch"]
        if dice.random() < 0.5:
            directives.append(f"#DW copy_in source={given} destination=$DW_JOB_scratch/")
        out = dice.random() < 0.6
        if out:
            place = f"{self.cluster.shared}/{name}/"
            directives.append(f"#DW copy_out source=$DW_JOB_scratch/results destination={place}")
        spec = jobspec.make(
            ["sh", "-c", body],
            nodes=nodes,
            name=name,
            cwd="/",
            environment={"PATH": os.environ["PATH"]},
            attributes={"dw": "\n".join(directives)},
        )
        job = self.ask(lambda handle: submit(handle, spec))
        self.accepted[job] = name
        if out:
            self.wide[job] = nodes

    # What is done to it. Each returns what was met, None if there was nothing.

    def _nothing(self) -> None:
        return None

    def _cancel(self) -> str | None:
        active = [job["id"] for job in self.jobs() if "result" not in job]
        if not active:
            return None
        job = self.dice.choice(active)
        if not self.ask(lambda handle: cancel(handle, job)):
            return None
        self.cancelled.add(job)
        return self.accepted[job]

    def _control(self) -> str:
        self.cluster.kill()
        time.sleep(self.dice.random())
        self.cluster.launch()
        if self.dice.random() < 0.3:  # while it starts, too
            time.sleep(self.dice.random() * 2)
            self.cluster.kill()
            self.cluster.launch()
        return "killed"

    def _rabbit(self) -> str | None:
        return self._agent("rabbit")

    def _computes(self) -> str | None:
        return self._agent("compute")

    def _agent(self, sort: str) -> str | None:
        agents = {node: process for node, process in self.cluster.agents().items() if sort in node}
        return self._kill(self.dice.choice(sorted(agents.items()))) if agents else None

    def _copier(self) -> str | None:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for process in self.cluster.copiers():
                with suppress(OSError):
                    copy = Path(f"/proc/{process}/cmdline").read_bytes()
                    # One that is killed as often as it is tried has failed for good.
                    if copy and self.copies[copy] < 2:
                        os.kill(process, signal.SIGKILL)
                        self.copies[copy] += 1
                        return f"process {process}"
        return None

    def _shells(self) -> str | None:
        parent = lock_holder(self.cluster.state.shells_lock)
        return self._disturb("shells", parent) if parent else None

    def _holder(self) -> str | None:
        nodes = self.cluster.nodes()
        hosts = [host for chassis in self.cluster.shape().chassis() for host in chassis.hosts]
        host = self.dice.choice(hosts)
        process = nodes.namespace(host).holder
        return self._disturb(f"holder of {host}", process) if process else None

    def _disturb(self, what: str, process: int) -> str | None:
        """Kill what running jobs cannot do without."""
        before = self._running()
        killed = self._kill((what, process))
        self.excused |= dict.fromkeys(before | self._running(), what)
        return killed

    def _running(self) -> set[JobId]:
        states = {state.bit for state in RUNNING}
        return {job["id"] for job in self.jobs() if job["state"] in states}

    def _kill(self, found: tuple[str, int]) -> str | None:
        what, process = found
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return f"{what}, process {process}"

    def _keep(self) -> str | None:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for path in self.cluster.written("here"):
                with suppress(OSError), path.open("rb") as opened:
                    process = subprocess.Popen(["sleep", "3600"], stdin=opened)
                    until = time.monotonic() + self.dice.random() * KEEP_SECONDS
                    self.kept.append(Kept(process=process, until=until))
                    return str(path)
        return None

    def end(self) -> list[Mapping[str, Any]]:
        """Let all jobs come to their end, and return them."""
        self.let_go([*self.kept])
        end = time.monotonic() + LAST_SECONDS
        while True:
            jobs = self.jobs()
            late = [fluid.f58(job["id"]) for job in jobs if "result" not in job]
            if not late:
                return jobs
            assert time.monotonic() < end, f"these do not end: {late}"
            time.sleep(0.2)

    def wrong(self, job: Mapping[str, Any]) -> str | None:
        """Hold a job's end against what was done to it; return what does not fit."""
        id = job["id"]
        name = self.accepted[id]
        result = next(each for each in Result if each.bit == job["result"])
        self.done[f"{result}"] += 1
        expected = {Result.COMPLETED if name.startswith("well") else Result.FAILED}
        if id in self.cancelled:
            expected = {Result.CANCELED}
        if id in self.excused and result is Result.FAILED:
            expected.add(result)
            self.done[f"{self.excused[id].split()[0]}: {job.get('exception_note')}"] += 1
        if result not in expected:
            said = self.cluster("job", "eventlog", fluid.f58(id)).stdout
            return f"{name} {fluid.f58(id)} is {result}, not one of {expected}: {job}\n{said}"
        if result is Result.COMPLETED and id in self.wide:
            place = self.cluster.shared / name
            whole = {f"{name} {rank}\n" for rank in range(self.wide[id])}
            said_by = {path.read_text() for path in place.rglob("who")}
            data = [path.read_bytes() for path in place.rglob("data")]
            if said_by != whole or data != [self.input] * self.wide[id]:
                return f"{name} {fluid.f58(id)}: results are of {said_by}, not of {whole}: {job}"
        return None


@pytest.fixture
def soak(tmp_path: Path) -> Iterator[Soak]:
    """A cluster of two small rabbits with a few nodes each, and its user."""
    site = tmp_path / "site.toml"
    site.write_text(SITE)
    small = ("--rabbits", "2", "--computes-per-rabbit", str(COMPUTES))
    flash = ("--rabbit-capacity", f"{CAPACITY // GIB}GiB")
    cluster = Cluster(tmp_path, *small, *flash, "--config", str(site))
    for each in running(cluster):
        given = random.Random(0).randbytes(2**20)
        (each.shared / "input").write_bytes(given)
        made = Soak(cluster=each, dice=random.Random(SEED), input=given)
        try:
            yield made
        finally:
            made.let_go([*made.kept])


def test_after_a_soak_the_accounting_is_the_truth_on_disk(soak: Soak) -> None:
    cluster = soak.cluster
    print(f"seed {SEED}, {JOBS} jobs")  # pytest shows it if we fail
    take_everything(soak)
    processes, files = commands(cluster), open_files(cluster)
    assert_nothing_is_left(cluster)

    for number in range(JOBS):
        soak.step(number)
    jobs = soak.end()
    print(soak.done)

    assert set(soak.accepted) <= {job["id"] for job in jobs}
    wrong = [soak.wrong(job) for job in jobs if job["id"] in soak.accepted]
    print(soak.done)
    assert wrong == [None] * JOBS, "\n".join(filter(None, wrong))
    assert_nothing_is_left(cluster)
    take_everything(soak)
    assert_nothing_is_left(cluster)
    # Every node was used: what was killed and is only there when it is needed is there again.
    with suppress(AssertionError):
        wait_for(lambda: commands(cluster) == processes)
    assert commands(cluster) == processes
    wait_for(lambda: open_files(cluster) <= files)
    cluster.down()
    with SqliteJournal(cluster.state.jobs_journal) as journal:
        assert Kvs(journal, os.getuid()).namespaces() == ["primary"]


def take_everything(soak: Soak) -> None:
    """Run a job on all nodes with all the flash that there is, and copies on both rabbits."""
    cluster = soak.cluster
    each = (CAPACITY // COMPUTES - PADDING) // MIB
    script = cluster.script(
        "all.sh",
        "true",
        f"#DW jobdw type=xfs capacity={each}MiB name=scratch",
        f"#DW copy_in source={cluster.shared}/input destination=$DW_JOB_scratch/",
    )
    job = cluster.submit(f"-N{2 * COMPUTES}", script)
    assert cluster("job", "attach", job).returncode == 0
    cluster.wait_event(job, "clean")
    cluster.wait_clean()


def commands(cluster: Cluster) -> Counter[bytes]:
    """Return what runs for a cluster, as it was started."""
    found: Counter[bytes] = Counter()
    for process in cluster.processes():
        with suppress(OSError):  # it has just ended
            found[Path(f"/proc/{process}/cmdline").read_bytes()] += 1
    return found


def assert_nothing_is_given_twice(cluster: Cluster) -> None:
    """What is recorded fits and does not overlap, and no loop device shows anything else."""
    if cluster.shape().flash != "image":
        assert max(cluster.taken().values()) <= CAPACITY
        return
    for chassis in cluster.shape().chassis():
        extents = Extents(cluster.state.flash / chassis.rabbit / "volumes")
        before = extents.all()
        while (now := extents.all()) != before:  # they are read one by one
            before = now
        assert sum(extent.size for extent in before.values()) <= CAPACITY
        places = sorted(before.values(), key=lambda extent: extent.offset)
        assert all(one.end <= other.offset for one, other in itertools.pairwise(places)), places
    # What is attached has its record before, and what is detached has it after.
    known = _recorded(cluster)
    loops = {(loop.backing, loop.offset, loop.size) for loop in cluster.nodes().loops()}
    known |= _recorded(cluster)
    assert loops <= known, loops - known


def _recorded(cluster: Cluster) -> set[tuple[str, int, int]]:
    found = set()
    for chassis in cluster.shape().chassis():
        place = cluster.state.flash / chassis.rabbit
        image = os.path.realpath(place / "disk.img")
        for part in Extents(place / "volumes").all().values():
            found.add((image, part.offset, part.size))
    return found


def assert_nothing_is_left(cluster: Cluster) -> None:
    """Nothing of any job is left, and each part that keeps account knows it."""
    state, nodes, shape = cluster.state, cluster.nodes(), cluster.shape()
    rabbits = [chassis.rabbit for chassis in shape.chassis()]
    hosts = [host for chassis in shape.chassis() for host in chassis.hosts]

    # On disk and on the machine
    cluster.wait_clean()
    assert (nodes.volumes(), nodes.mounts(), nodes.loops(), nodes.stray_loops()) == ([], [], [], [])
    assert cluster.taken() == dict.fromkeys(rabbits, 0)
    for rabbit in rabbits if shape.flash == "image" else []:
        assert (state.flash / rabbit / "disk.img").stat().st_blocks * 512 < 2**20
    for node in [*rabbits, *hosts]:
        root = nodes.namespace(node).root
        assert root is None or list(Path(f"{root}{state.mounts}").iterdir()) == []
    assert [
        each for base in cgroups.base_cgroups(str(state.path)) for each in base.children()
    ] == []
    directories = rundir.directory(state, config.load(state.config_file))
    wait_for(lambda: list(directories.iterdir()) == [])

    # What the API and the scheduler say of it
    for kind in audit.DEPENDENTS:
        assert cluster.stored(kind) == [], kind.name
    storages = cluster.stored(kinds.STORAGE)
    told = {each["metadata"]["name"]: each["status"]["capacity"] for each in storages}
    assert told == {name: asyncio.run(nodes.local_node(name).capacity()) for name in rabbits}
    assert told == dict.fromkeys(rabbits, CAPACITY)
    assert {each["status"]["status"] for each in storages} == {"Ready"}
    known, sched = asyncio.run(answered(cluster, _resources))
    assert [each["allocated"] for each in known["nodes"]] == [0] * len(hosts)
    assert {each["state"] for each in known["nodes"]} == {"free"}, known["nodes"]
    assert (known["offline"], known["drain"]) == ("", {})
    for unused in ("allocated", "down"):
        assert sched[unused]["execution"]["R_lite"] == [], sched[unused]
    assert cluster("doctor").stdout == "no orphaned resources found\n"


async def _resources(handle: Handle) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return await handle.rpc("resource.status"), await handle.rpc("sched.resource-status")
