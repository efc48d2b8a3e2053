"""`warren demo --tour`: a job of each command and each kind of storage, one after the other.

What there is to try is a table. Whether this machine can is asked of the cluster, which refuses a
job with its reason: a refusal of a directive is told, and no failure.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.cli.cluster.timeline import Timeline
from warren.cli.common import ask_instance, f58
from warren.cli.job.specs import make_jobspec
from warren.cli.job.submit import submitter
from warren.daemons.statedir import StateDir
from warren.rfc import eventlog

if TYPE_CHECKING:
    from rich.console import Console

    from warren.base.objects import Object
    from warren.cli.cluster.guest import Guest
    from warren.kube.client import Client
    from warren.kube.informer import Informer
    from warren.rpc.message import Handle

_JOB_TIMEOUT: Final = 300.0
"""How long one job may take, on a machine that has much else to do."""

_POLL_INTERVAL: Final = 0.05

_TAIL_BYTES: Final = 4096
"""Bytes that are kept of what a program says."""

_PORTS: Final = "5000-5009"

_INPUT: Final = "near the nodes"
_WRITE_SCRIPT: Final = 'hostname > "$DW_JOB_fast/it" && grep -q . "$DW_JOB_fast/it"'
_WRITE_RAW_SCRIPT: Final = (
    'printf warren | dd of="$DW_JOB_fast" bs=4096 count=1 conv=sync,notrunc,fsync 2>&1 '
    '&& head -c 6 "$DW_JOB_fast" | grep -q warren'
)


_FETCH_SCRIPT: Final = """\
echo near > "$DW_JOB_fast/page"
fetched() {
    for rabbit in $NNF_CONTAINER_NODES; do
        busybox wget -qO- "http://$rabbit:$NNF_CONTAINER_PORTS/$(hostname)/page" 2>/dev/null
    done | grep -q near
}
tries=0
until fetched || [ "$tries" = 100 ]; do tries=$((tries + 1)); sleep 0.1; done
echo > "$DW_JOB_fast/stop"
[ "$tries" != 100 ]
"""
"""What its task writes into its node's storage comes back from a web server on the rabbit."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the tour. `$GLOBAL` in directives is its directory in the global file system."""

    title: str
    directives: tuple[str, ...]
    script: str = "true"
    nodes: int | None = None
    """How many nodes it has; None is as many as the demo's option says."""
    check: Callable[[Path, int], str | None] = lambda directory, nodes: None
    """Returns what is wrong with what the job has left in its directory, given that and `nodes`."""
    container: str = ""
    """The example of a container, whose profile the job takes."""


def _case_of_type(fs_type: str, script: str = _WRITE_SCRIPT) -> Case:
    directive = f"#DW jobdw type={fs_type} capacity=64MiB name=fast"
    return Case(title=f"a job's own storage, {fs_type}", directives=(directive,), script=script)


def _copy_mistake(directory: Path, nodes: int) -> str | None:
    copied = [path.read_text().strip() for path in sorted(directory.glob("results/**/output"))]
    expected = [_INPUT.upper()] * nodes
    return None if copied == expected else f"copied out is {copied}, and not {expected}"


def _persistent_copy_mistake(directory: Path, nodes: int) -> str | None:
    copied = [path.read_text().strip() for path in sorted(directory.glob("kept/**/it"))]
    return None if copied == ["kept"] * nodes else f"copied out is {copied}"


CASES: Final[Sequence[Case]] = (
    _case_of_type("xfs"),
    _case_of_type("ext4"),
    _case_of_type("raw", _WRITE_RAW_SCRIPT),
    _case_of_type("gfs2"),
    _case_of_type("lustre"),
    Case(
        title="copies in and out",
        directives=(
            "#DW jobdw type=xfs capacity=64MiB name=fast",
            "#DW copy_in source=$GLOBAL/input destination=$DW_JOB_fast/",
            "#DW copy_out source=$DW_JOB_fast/output destination=$GLOBAL/results/",
        ),
        script='tr a-z A-Z < "$DW_JOB_fast/input" > "$DW_JOB_fast/output"',
        check=_copy_mistake,
    ),
    Case(
        title="storage that outlives its job: made",
        directives=("#DW create_persistent type=xfs capacity=64MiB name=tour",),
        nodes=1,
    ),
    Case(
        title="used by a job, which writes",
        directives=("#DW persistentdw name=tour",),
        script='echo kept > "$DW_PERSISTENT_tour/it"',
        nodes=1,
    ),
    Case(
        title="and by another, which reads",
        directives=("#DW persistentdw name=tour",),
        script='grep -q kept "$DW_PERSISTENT_tour/it"',
        nodes=1,
    ),
    Case(
        title="copied from",
        directives=(
            "#DW persistentdw name=tour",
            "#DW copy_out source=$DW_PERSISTENT_tour/it destination=$GLOBAL/kept/",
        ),
        nodes=1,
        check=_persistent_copy_mistake,
    ),
    Case(
        title="and destroyed",
        directives=("#DW destroy_persistent name=tour",),
        nodes=1,
    ),
    Case(
        title="a container beside the job",
        directives=(
            "#DW jobdw type=gfs2 capacity=64MiB name=fast",
            "#DW container name=beside profile=web DW_JOB_pages=fast",
        ),
        script=_FETCH_SCRIPT,
        container="busybox",
    ),
)


class Tour(msgspec.Struct):
    """One tour of a cluster that has no other jobs. `run` returns what has failed."""

    console: "Console"
    statedir: StateDir
    nodes: int
    global_directory: Path
    """The global file system. Jobs have their files in a directory of the tour's there."""
    cases: Sequence[Case] = CASES
    containers: Path = Path()
    """The examples of containers."""
    guest: "Guest | None" = None
    """A user whose jobs have containers, where those of the cluster's owner may not."""
    _timeline: Timeline = msgspec.field(default_factory=Timeline)
    _directory: Path = Path()
    _done_count: int = 0
    _refused_count: int = 0

    def run(self) -> list[str]:
        """Try all cases, and show each."""
        with tempfile.TemporaryDirectory(
            prefix="warren-tour-", dir=self.global_directory
        ) as directory:
            self._directory = Path(directory)
            (self._directory / "input").write_text(f"{_INPUT}\n")
            failures = ask_instance(self.statedir, self._run_all)
        self.console.print(
            f"\n[bold]{len(self.cases)} jobs[/bold]: {self._done_count} done, "
            f"{self._refused_count} refused with a reason, {len(failures)} failed"
        )
        return failures

    async def _run_all(self, handle: "Handle") -> list[str]:
        from rich.markup import escape

        from warren.dws import kinds
        from warren.kube import kubeconfig
        from warren.kube.http import connect
        from warren.kube.informer import Informers

        failures: list[str] = []
        async with connect(kubeconfig.load(self.statedir.kubeconfig)) as client:
            informers = Informers(client)
            workflows = informers.of(kinds.WORKFLOW)
            workflows.listen(self._on_workflow)
            async with asyncio.TaskGroup() as tasks:
                watch_task = tasks.create_task(informers.run())
                await informers.wait_synced()
                for each in {case.container for case in self.cases if case.container}:
                    await self._offer_example(client, each)
                for case in self.cases:
                    failure = await self._run_case(handle, case, workflows)
                    if failure is not None:
                        self.console.print(f"  [red]failed:[/red] {escape(failure)}")
                        failures.append(f"{case.title}: {failure}")
                watch_task.cancel()
        return failures

    async def _offer_example(self, client: "Client", example: str) -> None:
        """Offer an example of a container to jobs, as an admin does."""
        import yaml
        from rich.markup import escape

        from warren.base.objects import Change, Create, Key
        from warren.dws import kinds
        from warren.kube.perform import perform

        directory = self.containers / example
        problem = await run_program(directory / "build", self.statedir.images / example)
        if problem is not None:
            # Jobs are refused then, which is no failure of the cluster's.
            message = f"the image of the example was not made: {problem}"
            self.console.print(f"  [yellow]{escape(message)}[/yellow]")
            return
        profile = yaml.safe_load((directory / "profile.yaml").read_text())
        key = Key(kinds.DEFAULT_NAMESPACE, "default")
        ports = {"spec": {"ports": [_PORTS], "portsCooldownInSeconds": 0}}
        writes = (
            Change(kind=kinds.SYSTEM_CONFIGURATION, key=key, patch=ports),
            Create(kind=kinds.CONTAINER_PROFILE, object=profile),
        )
        await perform(client, writes)

    def _on_workflow(self, workflow: "Object") -> None:
        # Those of others than the present job are gone, or not there yet.
        self._timeline.add_workflow(workflow)

    async def _run_case(self, handle: "Handle", case: Case, workflows: "Informer") -> str | None:
        """Try a case, show it, and return what went wrong."""
        from rich.markup import escape

        directives = [each.replace("$GLOBAL", str(self._directory)) for each in case.directives]
        self.console.print(f"\n[bold]{case.title}[/bold]")
        for each in directives:
            self.console.print(f"  [dim]{escape(each)}[/dim]")
        nodes = case.nodes or self.nodes
        spec: dict[str, Any] = make_jobspec(command=("sh", "-c", case.script), nodes=nodes)
        spec["attributes"]["system"]["dw"] = directives
        self._timeline = Timeline()
        try:
            async with asyncio.timeout(_JOB_TIMEOUT):
                job = await self._submit(handle, case, spec)
                await self._follow(handle, job)
                while workflows.keys():  # noqa: ASYNC110 - the last news of it is that it is gone
                    await asyncio.sleep(_POLL_INTERVAL)
        except UserMistake as mistake:
            reasons = refusals(mistake)
            for each in reasons:
                self.console.print(f"  [yellow]refused:[/yellow] {escape(each)}")
            self._refused_count += bool(reasons)
            return None if reasons else str(mistake)
        except TimeoutError:
            return f"it is not over after {_JOB_TIMEOUT:.0f} s"
        steps = ", ".join(
            f"{each.name} {each.seconds or 0:.3f}" for each in self._timeline.completed_steps()
        )
        self.console.print(f"  [cyan]{f58(job)}[/cyan] on {self._timeline.nodes}: {steps}")
        case_mistake = self._case_mistake(case, nodes)
        if case_mistake is None:
            self._done_count += 1
            seconds = (self._timeline.ended_at or 0.0) - self._timeline.submitted_at
            self.console.print(f"  [green]done[/green] in {seconds:.3f} s")
        return case_mistake

    async def _submit(self, handle: "Handle", case: Case, spec: dict[str, Any]) -> int:
        if case.container and self.guest is not None:
            return await asyncio.to_thread(self.guest.submit, self.statedir, spec)
        return await submitter(self.statedir, spec)(handle)

    async def _follow(self, handle: "Handle", job: int) -> None:
        watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog"})
        async with aclosing(watch) as answers:  # type: ignore[type-var]
            async for answer in answers:
                self._timeline.add_event(eventlog.decode_line(answer["event"]))

    def _case_mistake(self, case: Case, nodes: int) -> str | None:
        if self._timeline.exceptions:
            return "; ".join(self._timeline.exceptions)
        if self._timeline.wait_status != 0:
            return f"its tasks have ended with status {self._timeline.wait_status}"
        return case.check(self._directory, nodes)


def refusals(mistake: UserMistake) -> list[str]:
    """Return why directives are refused; nothing where something else than a directive is."""
    # What is wrong with a directive is told below the place in it, which carets show.
    lines = str(mistake).splitlines()
    return [reason for carets, reason in pairwise(lines) if set(carets.strip()) == {"^"}]


async def run_program(*command: Path, seconds: float = _JOB_TIMEOUT) -> str | None:
    """Run a program, and return the last line of what it says is wrong; None where nothing is."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    output = b""
    try:
        async with asyncio.timeout(seconds):
            while piece := await process.stderr.read(_TAIL_BYTES):
                output = (output + piece)[-_TAIL_BYTES:]
            status = await process.wait()
    except TimeoutError:
        return f"it has not ended within {seconds:g} s"
    finally:
        if process.returncode is None:
            # With what it has started, which has the same output.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if not status:
        return None
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"{command[0].name} has ended with status {status}"
