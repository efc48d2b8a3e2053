"""The daemons that directives name, in a whole cluster: started and stopped with their jobs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import World, opened
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance import config
from warren.instance.simulated import SimulatedCommands, TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc import fluid
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

EVERY = extent("WARREN_STOPS_EVERY", usual=17, everything=1)
"""After one write of how many the process is stopped."""

SITE = """
[daemons.copy-offload]
prolog = ["/offload/start"]
epilog = ["/offload/stop"]
timeout = "20s"

[daemons.user-container-manager]
prolog = ["/containers/start"]
epilog = ["/containers/stop"]
"""
JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"
BOTH = f"{JOBDW} requires=copy-offload,user-container-manager"


class Recorded(SimulatedCommands):
    """Commands that are written down, and do what a test says of their name and node."""

    def __init__(self, world: World, **plays: TaskBehavior) -> None:
        super().__init__(self._played)
        self.world, self.plays = world, plays
        self.run: list[tuple[str, str]] = []
        """Name and node of each."""
        self.environments: list[Mapping[str, str]] = []
        self.mounted: list[bool] = []
        """Whether the job's storage was mounted on the node when each was started."""
        self.cleared: list[str] = []

    def _played(self, argv: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        name, node = argv[0].strip("/").replace("/", "_"), environment["WARREN_NODE"][-2:]
        self.run.append((argv[0], environment["WARREN_NODE"]))
        self.environments.append(environment)
        mounts = [place for each in self.world.flash.values() for place in each.mounts]
        self.mounted.append(any(host == environment["WARREN_NODE"] for host, _ in mounts))
        return self.plays.get(f"{name}_{node}") or self.plays.get(name) or TaskBehavior()

    async def kill_leftovers(self, job: str | None = None) -> None:
        if job is not None:
            self.cleared.append(job)


def in_a_world(
    story: Callable[[World, Control, Recorded], Awaitable[None]],
    site: str = SITE,
    **plays: TaskBehavior,
) -> None:
    async def main() -> None:
        async with opened() as world:
            world.config = config.parse(site)
            world.commands = commands = Recorded(world, **plays)
            await world.live(lambda control: story(world, control, commands))

    virtual.run(main())


async def submitted(world: World, control: Control, *directives: str, nodes: int = 2) -> JobId:
    return await world.submit(control, nodes=nodes, attributes={"dw": list(directives)})


def names(world: World, control: Control, job: JobId) -> list[str]:
    """The job's events from its nodes to its end; holds with what they are for."""
    found = [
        f"{each.name} {each.context['description']}" if "description" in each.context else each.name
        for each in world.eventlog(control, job)
        if each.name not in ("memo", "dws_environment")
    ]
    return found[found.index("alloc") + 1 :]


def failures(world: World, control: Control, job: JobId) -> list[tuple[int, str]]:
    return [
        (each.context["severity"], each.context["note"])
        for each in world.eventlog(control, job)
        if each.name == "exception"
    ]


async def drained(control: Control) -> dict[str, Any]:
    nodes = (await control.instance.bus.handle().rpc("resource.status"))["nodes"]
    return {node["name"]: node["reason"] for node in nodes if node["state"] == "drained"}


def test_daemons_run_on_the_jobs_nodes_while_its_storage_is_mounted() -> None:
    """Statements 002.27, 002.30: the daemons of a directive are enabled for its job, by name."""

    async def story(world: World, control: Control, commands: Recorded) -> None:
        job = await submitted(world, control, BOTH)
        ended = await world.ended(control, job)

        assert ended.job.result is Result.COMPLETED
        assert names(world, control, job) == [
            "prolog-start dws-daemons-start",
            "prolog-start dws-setup",
            "prolog-finish dws-setup",
            "prolog-finish dws-daemons-start",
            "start",
            "finish",
            "epilog-start dws-daemons-stop",
            "epilog-start dws-epilog",
            "release",
            "epilog-finish dws-daemons-stop",
            "epilog-finish dws-epilog",
            "free",
            "clean",
        ]
        both = ["compute-00", "compute-01"]
        assert [name for name, _ in commands.run] == [
            "/offload/start", "/offload/start", "/containers/start", "/containers/start",
            "/containers/stop", "/containers/stop", "/offload/stop", "/offload/stop",
        ]  # fmt: skip
        assert [sorted(node for name, node in commands.run if name == each) for each in
                ("/offload/start", "/containers/stop")] == [both, both]  # fmt: skip
        assert commands.mounted == [True] * 8
        assert commands.environments[0] == {
            "FLUX_JOB_ID": fluid.f58(job),
            "FLUX_JOB_USERID": str(ended.job.userid),
            "FLUX_JOB_RANKS": "0-1",
            "WARREN_NODE": commands.run[0][1],
            "WARREN_DAEMON": "copy-offload",
            "DW_WORKFLOW_NAME": f"fluxjob-{job}",
            "DW_WORKFLOW_NAMESPACE": "default",
        }
        assert commands.cleared == [fluid.f58(job)]
        await world.assert_nothing_left(control)

    in_a_world(story)


def test_a_job_that_names_no_daemon_has_none_whatever_its_author_has_written() -> None:
    async def story(world: World, control: Control, commands: Recorded) -> None:
        attributes = {"dw": [JOBDW], "dw_requires": ["copy-offload"]}
        for spec in (attributes, {"dw_requires": ["copy-offload"]}):
            job = await world.submit(control, nodes=1, attributes=spec)
            assert (await world.ended(control, job)).job.result is Result.COMPLETED

        assert commands.run == []

    in_a_world(story)


def test_a_daemon_that_does_not_start_fails_the_job_and_drains_no_node() -> None:
    async def story(world: World, control: Control, commands: Recorded) -> None:
        job = await submitted(world, control, BOTH)

        assert (await world.ended(control, job)).job.result is Result.FAILED
        note = "prolog of the daemon 'copy-offload' failed with exit status 3 on compute-01"
        assert failures(world, control, job) == [(0, note)]
        assert ("/containers/start", "compute-00") not in commands.run
        # What may have been started is stopped.
        assert {name for name, _ in commands.run} > {"/offload/stop", "/containers/stop"}
        assert world.seen == {}
        assert await drained(control) == {}
        await world.assert_nothing_left(control)

    in_a_world(story, offload_start_01=TaskBehavior(status=3 << 8))


def test_a_daemon_that_takes_too_long_to_start_fails_the_job() -> None:
    async def story(world: World, control: Control, commands: Recorded) -> None:
        job = await submitted(world, control, BOTH, nodes=1)

        assert (await world.ended(control, job)).job.result is Result.FAILED
        note = "prolog of the daemon 'copy-offload' timed out on compute-00"
        assert failures(world, control, job) == [(0, note)]

    in_a_world(story, offload_start=TaskBehavior(seconds=1000))


def test_a_node_on_which_a_daemon_does_not_stop_gets_no_jobs_any_more() -> None:
    async def story(world: World, control: Control, commands: Recorded) -> None:
        job = await submitted(world, control, BOTH)

        # The job's tasks have done their work, and its storage is given back.
        assert (await world.ended(control, job)).job.result is Result.COMPLETED
        note = "epilog of the daemon 'copy-offload' timed out on compute-01"
        assert failures(world, control, job) == [(2, note)]
        reason = f"epilog of the daemon 'copy-offload' timed out for job {fluid.f58(job)}"
        assert await drained(control) == {"compute-01": reason}
        assert commands.run.count(("/offload/stop", "compute-01")) == 1
        assert commands.cleared == [fluid.f58(job)]
        await world.assert_nothing_left(control)

    in_a_world(story, offload_stop_01=TaskBehavior(seconds=1000))


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (SITE, "Unknown word 'copy-ofload' in requires: it takes copy-offload, "
               "user-container-auth or user-container-manager. Did you mean 'copy-offload'?"),
        ("", "Unknown word 'copy-ofload' in requires: it takes copy-offload or "
             "user-container-auth. Did you mean 'copy-offload'?"),
    ],
)  # fmt: skip
def test_a_daemon_that_the_site_does_not_have_is_refused(site: str, words: str) -> None:
    """Statement 002.30: which daemons are valid each site says, as its workload manager does."""
    directive = f"{JOBDW} requires=copy-ofload"

    async def story(world: World, control: Control, commands: Recorded) -> None:
        with pytest.raises(RpcError) as refused:
            await submitted(world, control, directive)
        text, caret, *sentence = str(refused.value).splitlines()[-3:]
        assert caret.index("^") == text.index("copy-ofload")
        assert sentence == [words]
        # So it is where no job stands behind the Workflow.
        with pytest.raises(Exception, match="copy-ofload") as in_proposal:
            await control.api.store.create(kinds.WORKFLOW, workflow(directive))
        assert words.partition(".")[0] in str(in_proposal.value)

    in_a_world(story, site)


def workflow(directive: str) -> dict[str, Any]:
    spec = {"desiredState": "Proposal", "dwDirectives": [directive], "jobID": "1", "wlmID": "x",
            "userID": 1, "groupID": 1}  # fmt: skip
    return {"metadata": {"name": "by-hand", "namespace": "default"}, "spec": spec}


def test_a_daemon_that_was_taken_from_the_site_meanwhile_fails_jobs_that_need_it() -> None:
    async def begins(world: World, control: Control) -> None:
        job = await submitted(world, control, BOTH, nodes=1)
        await world.until(lambda: any(
            each.name == "alloc" for each in world.eventlog(control, job)
        ))  # fmt: skip

    async def goes_on(world: World, control: Control) -> None:
        entry = world.only_job(control)
        assert entry is not None
        ended = await world.ended(control, entry.job.id)
        assert ended.job.result is Result.FAILED
        told = [note for severity, note in failures(world, control, ended.job.id) if severity == 0]
        assert told == ["the daemon 'copy-offload' is not in the site's configuration any more: "
                        "submit the job again without it, or ask an admin for it"]  # fmt: skip
        await world.assert_nothing_left(control)

    async def main() -> None:
        async with opened() as world:
            world.config = config.parse(SITE)
            world.commands = Recorded(world)
            await world.live(lambda control: begins(world, control))
            world.config = config.parse("")
            await world.live(lambda control: goes_on(world, control))

    virtual.run(main())


@pytest.mark.parametrize("command", ["/offload/start", "/offload/stop"])
def test_a_command_that_was_cut_short_is_run_again_when_nothing_of_it_is_left(command: str) -> None:
    async def begins(world: World, control: Control, commands: Recorded) -> None:
        await submitted(world, control, f"{JOBDW} requires=copy-offload", nodes=1)
        await world.until(lambda: any(name == command for name, _ in commands.run))

    async def goes_on(world: World, control: Control, commands: Recorded) -> None:
        entry = world.only_job(control)
        assert entry is not None
        ended = await world.ended(control, entry.job.id)
        assert ended.job.result is Result.COMPLETED
        assert [name for name, _ in commands.run].count(command) == 2
        # Before it is run again, and at the end.
        assert commands.cleared == [fluid.f58(ended.job.id)] * 2
        await world.assert_nothing_left(control)

    async def main() -> None:
        async with opened() as world:
            world.config = config.parse(SITE)
            world.commands = commands = Recorded(
                world, offload_start=TaskBehavior(seconds=5), offload_stop=TaskBehavior(seconds=5)
            )
            await world.live(lambda control: begins(world, control, commands))
            await world.live(lambda control: goes_on(world, control, commands))

    virtual.run(main())


def test_daemons_of_a_job_that_runs_are_left_alone_by_a_restart() -> None:
    async def begins(world: World, control: Control, commands: Recorded) -> None:
        await submitted(world, control, f"{JOBDW} requires=copy-offload", nodes=1)
        await world.until(lambda: len(world.seen) == 1)

    async def goes_on(world: World, control: Control, commands: Recorded) -> None:
        entry = world.only_job(control)
        assert entry is not None
        assert commands.cleared == []
        await world.ended(control, entry.job.id)
        assert [name for name, _ in commands.run] == ["/offload/start", "/offload/stop"]
        assert commands.cleared == [fluid.f58(entry.job.id)]

    async def main() -> None:
        play = lambda command, environment: TaskBehavior(seconds=50)  # noqa: E731
        async with opened(play=play) as world:
            world.config = config.parse(SITE)
            world.commands = commands = Recorded(world)
            await world.live(lambda control: begins(world, control, commands))
            await world.live(lambda control: goes_on(world, control, commands))

    virtual.run(main())


def test_a_stop_after_any_write_leaves_nothing_and_every_daemon_is_stopped() -> None:
    async def story(world: World, control: Control, commands: Recorded) -> None:
        entry = world.only_job(control)
        job = entry.job.id if entry is not None else await submitted(world, control, BOTH, nodes=1)
        ended = await world.ended(control, job)
        assert ended.job.result is Result.COMPLETED
        await world.assert_nothing_left(control)

    async def one(stop: int) -> bool:
        async with opened() as world:
            world.config = config.parse(SITE)
            world.commands = commands = Recorded(world)
            seam = Seam(stop)
            await world.live(lambda control: story(world, control, commands), seam)
            await world.live(lambda control: story(world, control, commands))
            order = [name for name, _ in commands.run]
            assert order.index("/offload/start") < order.index("/offload/stop")
            assert order[-1] == "/offload/stop"
            return True

    for stop in range(0, 120, EVERY):
        virtual.run(one(stop))


def test_the_rules_in_force_say_which_daemons_there_are() -> None:
    """Statement 002.29: the active DWDirectiveRule can be looked at, as users are refused by it."""

    async def story(world: World, control: Control, commands: Recorded) -> None:
        (rule,) = control.api.store.objects_of(kinds.DIRECTIVE_RULE)
        assert (rule["metadata"]["namespace"], rule["metadata"]["name"]) == ("dws-system", "nnf")
        words = {
            command["command"]: definition["patterns"]
            for command in rule["spec"]
            for definition in command["ruleDefs"]
            if definition["key"] == "^requires$"
        }
        patterns = ["^copy-offload$", "^user-container-auth$", "^user-container-manager$"]
        assert words == {"jobdw": patterns, "persistentdw": patterns}
        # Users, who need no rights in the API, ask the instance.
        guest = control.instance.bus.handle(control.instance.bus.owner + 1)
        told = (await guest.rpc("config.get"))["daemons"]
        assert sorted(told) == ["copy-offload", "user-container-manager"]

    in_a_world(story)
