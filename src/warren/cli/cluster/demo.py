"""`warren demo`: a cluster of its own, one rabbit job, everything shown, everything given back."""

import asyncio
import csv
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

import warren
from warren.base.bytesize import format_bytes
from warren.base.errors import UserMistake
from warren.base.words import plural
from warren.cli.cluster import guest as guests
from warren.cli.cluster.timeline import DESCRIPTIONS, JOB_STATE_BY_STEP, Step, Timeline
from warren.cli.common import ask_instance, f58
from warren.cli.job.specs import make_jobspec
from warren.cli.job.submit import submitter
from warren.daemons.statedir import StateDir
from warren.rfc import eventlog

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from warren.daemons.temporarycluster import TemporaryCluster
    from warren.rpc.message import Handle

    Work = Callable[[Handle], Awaitable[list[Any]]]
    Ask = Callable[[Work], list[Any]]

_EXAMPLE: Final = "station-means.sh"
_START_SECONDS: Final = 120.0
_POLL_INTERVAL: Final = 0.05
_BAR_WIDTH: Final = 30


@click.command()
@click.option("--script", metavar="FILE", help="A batch script of your own, with #DW lines.")
@click.option("-N", "--nodes", type=click.IntRange(1, 8), default=4, show_default=True,
              metavar="N", help="On how many nodes it runs.")  # fmt: skip
@click.option("--global", "global_", metavar="PATH",
              help="The global file system that copies reach as $GLOBAL (default: one with "
                   "the example's data).")  # fmt: skip
@click.option("--separate", is_flag=True,
              help="Run every component as a process of its own, with its own role.")  # fmt: skip
@click.option("--tour", is_flag=True,
              help="Run one job of each command and each kind of storage instead, and print the "
                   "reason for each that this machine refuses.")  # fmt: skip
@click.option("--flux", is_flag=True,
              help="Run the job in a real Flux, with a broker on each node: flux-core must be "
                   "installed, and what its plugins are built with.")  # fmt: skip
@click.option("--keep", is_flag=True, help="Keep the state directory.")
def demo(
    script: str | None,
    nodes: int,
    global_: str | None,
    separate: bool,
    tour: bool,
    flux: bool,
    keep: bool,
) -> None:
    """Run one rabbit job through its whole life, on a cluster made for it.

    Exits 0 if the job succeeded, its output is right, and nothing is left of it.
    """
    if tour and script is not None:
        raise UserMistake("--tour has jobs of its own: leave out --script.")
    if flux:
        _check_flux(tour=tour)
    from rich.console import Console

    from warren.daemons.temporarycluster import temporary_cluster

    console = Console(highlight=False, soft_wrap=True)
    _treat_as_interrupts(signal.SIGTERM, signal.SIGHUP)
    # Its name only: what removes it is there before it is.
    directory = Path(tempfile.gettempdir()) / f"warren-demo-{secrets.token_hex(6)}"
    global_directory = (Path(global_) if global_ else directory / "global").absolute()
    rabbits = max(2, -(-nodes // 4))
    config_path = directory / "config.toml"
    options = ["--rabbits", str(rabbits), "--global", str(global_directory)]
    if tour:
        options += ["--config", str(config_path)]
    if separate or flux:
        options.append("--separate")
    if flux:
        options.append("--no-conductor")
    with temporary_cluster(directory, options, keep=keep) as cluster, ExitStack() as stack:
        directory.mkdir(mode=0o700)
        guest = stack.enter_context(guests.guest(directory)) if tour else None
        config_path.write_text(guest.config if guest else "")
        if global_ is None:
            shutil.copytree(_examples() / "data", global_directory)
        demonstration = _Demonstration(console, cluster, nodes, rabbits)
        try:
            failures = demonstration.tour(global_directory, guest) if tour else demonstration.run(
                Path(script) if script else _examples() / _EXAMPLE,
                global_directory,
                check=_station_means_mistake if script is None else None,
                flux=flux,
            )  # fmt: skip
        finally:
            if keep:
                console.print(f"kept: {directory}")
    for failure in failures:
        console.print(f"[red]{_sign(console, '✗', 'failed:')}[/red] {failure}")
    sys.exit(1 if failures else 0)


def _check_flux(*, tour: bool) -> None:
    from warren.daemons import temporaryflux

    if tour:
        raise UserMistake("The jobs of --tour are the cluster's own: leave out --flux.")
    why_unavailable = temporaryflux.why_unavailable()
    if why_unavailable is not None:
        raise UserMistake(f"--flux needs a Flux to start: {why_unavailable}.")


def _sign(console: "Console", sign: str, word: str) -> str:
    """Return a sign, or a word for it where the output has no such letter."""
    return word if console.options.ascii_only else sign


def _not_started_message(output: str, log: Path) -> str:
    """Return the error for a cluster that did not start, with its reason if it is known."""
    why = output.strip().removeprefix("warren: ")
    if why:
        return f"the cluster did not start. {why}"
    return f"the cluster did not start, and has not said why. With --keep its log stays, {log}."


def _treat_as_interrupts(*signums: signal.Signals) -> None:
    """Have signals end us as Ctrl-C does: in order, with the terminal as it was."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return  # as a script's background jobs have it: they end us at once
    for signum in signums:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signum, lambda *_: signal.raise_signal(signal.SIGINT))


def _examples() -> Path:
    """Return the examples: beside the source, or installed with the program."""
    package = Path(warren.__file__).parent
    for directory in (package.parents[1] / "examples", package / "examples"):
        if (directory / _EXAMPLE).exists():
            return directory
    raise UserMistake("The examples are not installed: name a script with --script.")


class _Demonstration(msgspec.Struct):
    """One demo. `run` and `tour` return what is not as it should be."""

    console: "Console"
    cluster: "TemporaryCluster"
    nodes: int
    rabbits: int

    @property
    def statedir(self) -> StateDir:
        return self.cluster.state_dir

    def run(
        self,
        script: Path,
        global_directory: Path,
        check: Callable[[Path], str | None] | None,
        *,
        flux: bool,
    ) -> list[str]:
        from warren.daemons.down import leftovers

        os.environ["GLOBAL"] = str(global_directory.resolve())
        spec = make_jobspec(command=(f"{script.parent}/{script.name}",), nodes=self.nodes)
        self._print_script(script, spec)
        with self._running(), self._flux(spec) if flux else nullcontext(self._ask) as ask:
            started_at = time.monotonic()
            timeline, output = self._run_job(spec, ask)
            self._print_summary(timeline, output, time.monotonic() - started_at)
            failures = self._find_failures(timeline, global_directory, check)
            # While the nodes are still there: with them, whatever is mounted would go, too.
            remaining = leftovers(self.statedir)
        return failures + self._report_leftovers(remaining)

    def tour(self, global_directory: Path, guest: "guests.Guest | None") -> list[str]:
        """Run the jobs of the tour, which have their files below `global_directory`."""
        from warren.cli.cluster.tour import Tour
        from warren.daemons.down import leftovers

        with self._running():
            tour = Tour(
                self.console,
                self.statedir,
                self.nodes,
                global_directory.resolve(),
                containers=_examples() / "containers",
                guest=guest,
            )
            failures = tour.run()
            remaining = leftovers(self.statedir)
        return failures + self._report_leftovers(remaining)

    def _report_leftovers(self, remaining: list[str]) -> list[str]:
        """Print whether anything is left; `remaining` was left before the cluster stopped."""
        from warren.daemons.down import leftovers

        remaining = remaining + leftovers(self.statedir)
        if not remaining:
            sign = _sign(self.console, "✓", "ok:")
            self.console.print(
                f"[green]{sign}[/green] no mount, no allocation and no process is left"
            )
        return [f"left behind: {each}" for each in remaining]

    def _print_script(self, script: Path, spec: dict[str, Any]) -> None:
        self.console.print(f"[bold]{script}[/bold] on {plural(self.nodes, 'node')}")
        for line in str(spec["attributes"]["system"].get("dw", "")).splitlines():
            self.console.print(f"  [dim]{line}[/dim]")

    # The cluster

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Have the cluster for the length of a block."""
        started_at = time.monotonic()
        self.cluster.up()
        status = self._wait_ready()
        isolation = "one mount namespace each"
        flash = "disk images with loop devices, real file systems"
        if status["flash"] == "directory":
            flash = (
                "plain directories, whose sizes are accounted for and not enforced: "
                f"{status['why_no_images']}"
            )
        if not status["isolated"]:
            isolation = (
                "no mount namespaces, which the kernel forbids this user: "
                "each node has paths of its own"
            )
        self.console.print(
            f"cluster of {plural(self.rabbits, 'rabbit')} and {self.rabbits * 4} compute nodes "
            f"({isolation}), up in {time.monotonic() - started_at:.1f} s"
        )
        self.console.print(f"flash: {flash}\n")
        yield
        self.cluster.down()

    def _wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            status = self.statedir.status()
            if status is not None:
                return status
            if self.cluster.wait_ended(_POLL_INTERVAL):
                break
        raise UserMistake(
            _not_started_message(self.cluster.output(), self.statedir.logs / "control.log")
        )

    def _ask(self, work: "Work") -> list[Any]:
        return ask_instance(self.statedir, work)

    @contextmanager
    def _flux(self, spec: dict[str, Any]) -> "Iterator[Ask]":
        """Have a Flux on the cluster's nodes for the length of a block, which is to run the job."""
        from warren.daemons import temporaryflux
        from warren.rpc import brokerclient

        started_at = time.monotonic()
        status = self.statedir.status()
        if status is None or not status["isolated"]:
            raise UserMistake(
                "--flux needs nodes with mount namespaces, which the kernel forbids this user."
            )
        with temporaryflux.running(self.statedir.path.parent / "flux", self.statedir) as flux:

            async def ask(work: "Work") -> list[Any]:
                async with brokerclient.connect(flux.socket) as handle:
                    return await work(handle)

            # Nodes that are emulated have cores that the machine does not have.
            options = {"userrc": str(flux.userrc), "cpu-affinity": "off"}
            spec["attributes"]["system"]["shell"] = {"options": options}
            self.console.print(
                f"flux-core {flux.version} with {flux.scheduler}, a broker on each compute node, "
                f"up in {time.monotonic() - started_at:.1f} s: FLUX_URI=local://{flux.socket}\n"
            )
            yield lambda work: asyncio.run(ask(work))

    # The job

    def _run_job(self, spec: dict[str, Any], ask: "Ask") -> tuple[Timeline, list[Any]]:
        """Submit the job, show its life, and return its timeline and its output."""
        timeline = Timeline()

        async def run_job(handle: "Handle") -> list[Any]:
            with _progress(self.console) as progress:
                view = _LiveView(progress, timeline)
                async with asyncio.TaskGroup() as tasks:
                    synced = asyncio.Event()
                    watch_task = tasks.create_task(self._watch_storage(timeline, view, synced))
                    await synced.wait()
                    job = await submitter(self.statedir, spec)(handle)
                    progress.console.print(f"[bold]{f58(job)}[/bold] submitted")
                    await self._follow(handle, job, timeline, view)
                    await view.wait_workflow_deleted()
                    watch_task.cancel()
            return await _output(handle, job)

        return timeline, ask(run_job)

    @staticmethod
    async def _follow(handle: "Handle", job: int, timeline: Timeline, view: "_LiveView") -> None:
        request = {"id": job, "path": "eventlog", "flags": 0}
        watch = handle.stream("job-info.eventlog-watch", request)
        async with aclosing(watch) as answers:  # type: ignore[type-var]
            async for answer in answers:
                timeline.add_event(eventlog.decode_line(answer["event"]))
                view.update()

    async def _watch_storage(
        self, timeline: Timeline, view: "_LiveView", synced: asyncio.Event
    ) -> None:
        """Follow Workflow, copies, flash and mounts, as any client of the API may.

        The cluster is the demo's own, and the job its first: whatever there is belongs to it.
        """
        from warren.dws import kinds
        from warren.kube import kubeconfig
        from warren.kube.http import connect
        from warren.kube.informer import Informers

        async with connect(kubeconfig.load(self.statedir.kubeconfig)) as client:
            informers = Informers(client)
            workflows = informers.of(kinds.WORKFLOW)

            def listener(add: Callable[[Any], None]) -> Callable[[Any], None]:
                def listen(obj: Any) -> None:
                    add(obj)
                    timeline.workflow_absent = not workflows.keys()
                    view.update()

                return listen

            workflows.listen(listener(timeline.add_workflow))
            informers.of(kinds.NNF_DATA_MOVEMENT).listen(listener(timeline.add_movement))
            informers.of(kinds.NNF_NODE_BLOCK_STORAGE).listen(listener(timeline.add_flash))
            informers.of(kinds.CLIENT_MOUNT).listen(listener(timeline.add_mount))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(informers.run())
                await informers.wait_synced()
                synced.set()

    # The end

    def _print_summary(self, timeline: Timeline, output: list[Any], seconds: float) -> None:
        from warren.cli.job.attach import print_output

        self.console.print("\n[bold]output[/bold]")
        sys.stdout.flush()
        for event in output:
            print_output(event)
        for exception in timeline.exceptions:
            self.console.print(f"[red]exception[/red] {exception}")
        self.console.print("\n[bold]timeline[/bold]")
        for line in _draw_timeline(timeline, _sign(self.console, "━", "-")):
            self.console.print(line)
        self.console.print(
            f"\n[bold]given back[/bold] after {seconds:.1f} s: "
            f"{timeline.flash}, {plural(len(timeline.mounts), 'mount')}"
        )

    def _find_failures(
        self, timeline: Timeline, global_directory: Path, check: Callable[[Path], str | None] | None
    ) -> list[str]:
        failures = []
        if timeline.exceptions or timeline.wait_status != 0:
            failures.append(
                f"the job has failed: {'; '.join(timeline.exceptions) or timeline.wait_status}"
            )
        elif check is not None:
            mistake = check(global_directory)
            if mistake is None:
                sign = _sign(self.console, "✓", "ok:")
                self.console.print(f"[green]{sign}[/green] the output is right")
            else:
                failures.append(mistake)
        return failures


async def _output(handle: "Handle", job: int) -> list[Any]:
    from warren.rpc.message import RpcError

    try:
        request = {"id": job, "keys": ["guest.output"], "flags": 0}
        answer = await handle.rpc("job-info.lookup", request)
    except RpcError:
        return []  # it never came to printing anything
    return eventlog.decode(answer["guest.output"])


class _LiveView:
    """The life as it happens: a line for each step that is done, a bar for the one that is not."""

    def __init__(self, progress: "Progress", timeline: Timeline) -> None:
        self._progress = progress
        self._timeline = timeline
        self._shown_steps: set[str] = set()
        self._bar: TaskID = progress.add_task("starts", total=None, moved="")
        self._workflow_deleted = asyncio.Event()

    async def wait_workflow_deleted(self) -> None:
        """Return when the Workflow has been deleted."""
        await self._workflow_deleted.wait()

    def update(self) -> None:
        """Show what is new."""
        for step in self._timeline.completed_steps():
            if step.name not in self._shown_steps:
                self._shown_steps.add(step.name)
                self._progress.console.print(_line(step, self._timeline))
        current = self._timeline.current_step()
        if current is not None:
            message = self._timeline.message if current.name not in ("SCHED", "tasks") else ""
            self._progress.update(
                self._bar,
                description=f"{current.name}: {message or DESCRIPTIONS.get(current.name, '')}",
            )
            copy_progress = self._timeline.copy_progress(current.name)
            self._progress.update(
                self._bar,
                total=copy_progress.total if copy_progress else None,
                completed=copy_progress.bytes if copy_progress else 0,
                moved=f"{format_bytes(copy_progress.bytes)} of "
                f"{format_bytes(copy_progress.total)}, {format_bytes(copy_progress.rate)}/s"
                if copy_progress
                else "",
            )
        if (
            self._timeline.workflow_absent
            and self._timeline.ended_at is not None
            and not self._workflow_deleted.is_set()
        ):
            seconds = self._timeline.ended_at - self._timeline.submitted_at
            self._progress.console.print(f"  [cyan]INACTIVE[/cyan] after {seconds:.3f} s")
            self._workflow_deleted.set()


@contextmanager
def _progress(console: "Console") -> "Iterator[Progress]":
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(_BAR_WIDTH),
        TextColumn("{task.fields[moved]}"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


def _line(step: Step, timeline: Timeline) -> str:
    state = JOB_STATE_BY_STEP[step.name]
    name = "" if step.name == state else step.name
    outcome = timeline.outcome(step.name)
    return (
        f"  [cyan]{state:<8}[/cyan] [bold]{name:<9}[/bold] {step.seconds or 0:7.3f} s   "
        f"{DESCRIPTIONS[step.name]}" + (f" [dim]({outcome})[/dim]" if outcome else "")
    )


def _draw_timeline(timeline: Timeline, dash: str) -> Iterator[str]:
    """Draw the steps to scale, from submission to the end."""
    total = (timeline.ended_at or time.time()) - timeline.submitted_at
    scale = 60 / total if total > 0 else 0.0
    for step in timeline.completed_steps():
        start = round((step.began - timeline.submitted_at) * scale)
        length = max(1, round((step.seconds or 0) * scale))
        bar = " " * start + dash * length
        yield f"  {step.name:<9} [cyan]{bar:<61}[/cyan] {step.seconds or 0:7.3f} s"
    yield f"  {'in all':<9} {'':<61} {total:7.3f} s"


def _station_means_mistake(global_directory: Path) -> str | None:
    """Return what is wrong with the example's results; None if they are right."""
    values_by_station: defaultdict[str, list[float]] = defaultdict(list)
    with (global_directory / "measurements.csv").open() as data:
        for station, value in csv.reader(data):
            values_by_station[station].append(float(value))
    mean_by_station: dict[str, float] = {}
    for path in sorted((global_directory / "results").glob("**/means.csv")):
        with path.open() as results:
            mean_by_station.update((station, float(mean)) for station, mean in csv.reader(results))
    if mean_by_station.keys() != values_by_station.keys():
        return f"the output has {len(mean_by_station)} stations, not {len(values_by_station)}"
    for station, values in values_by_station.items():
        if abs(mean_by_station[station] - sum(values) / len(values)) > 0.0051:
            return f"the output is wrong for {station}: {mean_by_station[station]}"
    return None
