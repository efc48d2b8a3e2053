"""The timeline of a rabbit job: its steps, what happens in each, how long each took.

Made from what any client can see: the job's events, its Workflow, its data
movements. Nothing here waits or prints.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from warren.base.bytesize import format_bytes, from_human
from warren.base.objects import Object
from warren.base.times import parse_rfc3339
from warren.base.words import plural
from warren.rfc.eventlog import Event

TASKS: Final = "tasks"

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "Proposal": "what the directives need is worked out",
    "SCHED": "nodes, and flash of their own chassis",
    "Setup": "rabbits make the file systems",
    "DataIn": "rabbits copy the input in",
    "PreRun": "compute nodes mount",
    TASKS: "the job's tasks run",
    "PostRun": "compute nodes unmount",
    "DataOut": "rabbits copy the results out",
    "Teardown": "rabbits give the flash back",
}
"""The steps of a job, in order, and what happens in each."""

JOB_STATE_BY_STEP: Final[Mapping[str, str]] = {
    "Proposal": "DEPEND",
    "SCHED": "SCHED",
    "Setup": "RUN",
    "DataIn": "RUN",
    "PreRun": "RUN",
    TASKS: "RUN",
    "PostRun": "CLEANUP",
    "DataOut": "CLEANUP",
    "Teardown": "CLEANUP",
}
"""The job's state while each step is taken."""

_STEP_BOUNDS: Final = {("start", "priority"): "SCHED", ("start", "start"): TASKS,
                  ("end", "alloc"): "SCHED", ("end", "finish"): TASKS}  # fmt: skip

_PROGRESS_MESSAGE: Final = re.compile(r"copied (.+?) of (.+?) in (\d+) of (\d+) files(?:; .*)?")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step, as far as it is known. Times are seconds since the epoch."""

    name: str
    began: float
    ended: float | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.ended is None else max(self.ended - self.began, 0.0)


class CopyProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far some copies are, together."""

    bytes: int = 0
    total: int = 0
    files: int = 0
    copies: int = 0
    rate: int = 0
    """Bytes a second."""

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.bytes)} in {plural(self.files, 'file')}, "
            f"{plural(self.copies, 'copy', 'copies')}, {format_bytes(self.rate)}/s"
        )


class Timeline(msgspec.Struct, kw_only=True):
    """What is known of a job so far."""

    steps: dict[str, Step] = msgspec.field(default_factory=dict)
    nodes: str = ""
    """The scheduler's summary of the job's resources."""
    rabbits: str = ""
    """Its rabbits, as a hostlist."""
    exceptions: list[str] = msgspec.field(default_factory=list)
    wait_status: int | None = None
    """How the tasks have ended, when they have."""
    submitted_at: float = 0.0
    ended_at: float | None = None
    message: str = ""
    """The message in the status of its Workflow."""
    workflow_absent: bool = False
    """Whether no Workflow is there: not yet, or not any more."""
    share_bytes: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """Bytes of each share of flash that was ever seen, by rabbit and name."""
    mounts: set[str] = msgspec.field(default_factory=set)
    computes: set[str] = msgspec.field(default_factory=set)
    """The compute nodes that were to mount something."""
    _movements: dict[str, dict[str, CopyProgress]] = msgspec.field(default_factory=dict)

    def add_event(self, event: Event) -> None:
        """Take in an event of the job."""
        context = event.context
        match event.name:
            case "submit":
                self.submitted_at = event.timestamp
            case "memo":
                self.rabbits = context.get("rabbits", self.rabbits)
            case "alloc":
                sched = context.get("annotations", {}).get("sched", {})
                self.nodes = sched.get("resource_summary", "")
            case "exception":
                note = f"{context['type']}: {context.get('note', '')}"
                self.exceptions.append(note)
            case "finish":
                self.wait_status = context["status"]
            case "clean":
                self.ended_at = event.timestamp
            case _:
                pass
        begun_step, ended_step = (
            _STEP_BOUNDS.get(("start", event.name)),
            _STEP_BOUNDS.get(("end", event.name)),
        )
        if begun_step is not None:
            self.steps.setdefault(begun_step, Step(name=begun_step, began=event.timestamp))
        if ended_step is not None and ended_step in self.steps:
            self.steps[ended_step] = replace(self.steps[ended_step], ended=event.timestamp)

    def add_workflow(self, obj: Object) -> None:
        """Take in the Workflow as it is now."""
        status = obj.get("status", {})
        state = status.get("state")
        self.message = status.get("message", "")
        if not state or "desiredStateChange" not in status:
            return
        began = parse_rfc3339(status["desiredStateChange"])
        ended = parse_rfc3339(status["readyChange"]) if status.get("ready") else None
        self.steps[state] = Step(name=state, began=began, ended=ended)

    def add_movement(self, obj: Object) -> None:
        """Take in a data movement as it is now."""
        command = obj["metadata"]["labels"].get("dm.cray.hpe.com/initiator", "")
        command_status = obj.get("status", {}).get("commandStatus", {})
        match = _PROGRESS_MESSAGE.fullmatch(command_status.get("lastMessage", ""))
        name = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if match is not None:
            self._movements.setdefault(command, {})[name] = CopyProgress(
                bytes=from_human(match[1]),
                total=from_human(match[2]),
                files=int(match[3]),
                copies=1,
                rate=from_human(command_status["rate"].removesuffix("/s")),
            )

    def add_flash(self, obj: Object) -> None:
        """Take in the flash of a share, from its NnfNodeBlockStorage."""
        key = obj["metadata"]["namespace"], obj["metadata"]["name"]
        self.share_bytes[key] = sum(each["capacity"] for each in obj["spec"]["allocations"])

    def add_mount(self, obj: Object) -> None:
        """Take in a node's mounts."""
        if obj["metadata"]["name"].endswith("-computes"):
            self.computes.add(obj["spec"]["node"])
        for mount in obj["spec"]["mounts"]:
            self.mounts.add(f"{obj['spec']['node']}:{mount['mountPath']}")

    @property
    def flash(self) -> str:
        """How much flash the job had, in words."""
        total = format_bytes(sum(self.share_bytes.values()))
        rabbits = {rabbit for rabbit, _ in self.share_bytes}
        return f"{total} of flash on {plural(len(rabbits), 'rabbit')}"

    def copy_progress(self, step: str) -> CopyProgress | None:
        """Return how far the copies of DataIn or DataOut are; None if there are none."""
        command = {"DataIn": "copy_in", "DataOut": "copy_out"}.get(step, "")
        movements = self._movements.get(command)
        if not movements:
            return None
        progresses = movements.values()
        return CopyProgress(
            bytes=sum(progress.bytes for progress in progresses),
            total=sum(progress.total for progress in progresses),
            files=sum(progress.files for progress in progresses),
            copies=len(movements),
            rate=sum(progress.rate for progress in progresses),
        )

    def completed_steps(self) -> Iterator[Step]:
        """Return the steps that have been taken, in order."""
        for name in DESCRIPTIONS:
            step = self.steps.get(name)
            if step is not None and step.ended is not None:
                yield step

    def current_step(self) -> Step | None:
        """Return the step that is being taken."""
        open_steps = [step for step in self.steps.values() if step.ended is None]
        return max(open_steps, key=lambda step: step.began, default=None)

    def outcome(self, step: str) -> str:
        """Return what has come of a step, in words."""
        copy_progress = self.copy_progress(step)
        if copy_progress is not None:
            return str(copy_progress)
        match step:
            case "SCHED":
                return f"{self.nodes} beside {self.rabbits}" if self.rabbits else self.nodes
            case "Setup":
                return self.flash
            case "PreRun":
                return plural(len(self.computes), "compute node")
            case "tasks" if self.wait_status is not None:
                return f"exit status {self.wait_status >> 8}"
            case _:
                return ""
