"""Trying the hook on this node: as its mom would run it, for a job that PBS knows nothing of."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warren.node import commands
from warren.wlm.pbs import simulatedmom

_BEGIN_VERDICTS: Final = {
    "accept": "accepted",
    "reject": "rejected; the vnodes would stay online",
    "error": "failed; PBS would take the vnodes offline",
    "alarm": "killed by the alarm; PBS would take the vnodes offline",
}
_END_VERDICTS: Final = {
    "accept": "accepted",
    "reject": "rejected, which PBS would log and no more",
    "error": "failed, which PBS would log and no more",
    "alarm": "killed by the alarm, which PBS would log and no more",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A dummy job, and the node on which it begins and ends."""

    hook: Path
    hook_name: str
    config: Path | None
    node: str
    jobid: str
    user: str
    place: str
    sharing: str
    vntype: str | None
    alarm: float

    def run_events(self) -> "Iterator[EventResult]":
        """Run the hook for each event of the job; without a begin it has no end."""
        for event in simulatedmom.EVENTS:
            result = self._run_event(event)
            yield result
            if not result.accepted:
                return

    def _run_event(self, event: str) -> "EventResult":
        vnode = simulatedmom.VnodeFields(
            sharing=simulatedmom.SHARING[f"ND_{self.sharing.upper()}"], vntype=self.vntype
        )
        scenario = simulatedmom.Scenario(
            hook=str(self.hook),
            hook_name=self.hook_name,
            event=event,
            job=simulatedmom.JobFields(id=self.jobid, euser=self.user, place=self.place),
            node=self.node,
            vnodes={self.node: vnode},
            config=None if self.config is None else str(self.config),
            alarm=self.alarm,
        )
        return EventResult(event, run_hook(scenario))


def run_hook(scenario: simulatedmom.Scenario) -> list[dict[str, Any]]:
    """Run a hook in a process of its own, isolated and optimized as a mom has it.

    Return what happened, the outcome last: `alarm` where the alarm has killed it.
    """
    command = [sys.executable, "-I", "-S", "-OO", simulatedmom.__file__]
    text = json.dumps(scenario)
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    reports: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    if result.returncode == -signal.SIGALRM:
        reports.append({"outcome": "alarm", "message": "killed by the alarm"})
    elif result.returncode:
        last_words = result.stderr.strip().splitlines()[-1:] or [
            commands.exit_reason(result.returncode)
        ]
        reports.append({"outcome": "error", "message": last_words[0]})
    return reports


@dataclass(frozen=True)
class EventResult:
    """What came of one event."""

    event: str
    reports: list[dict[str, Any]]

    @property
    def accepted(self) -> bool:
        return bool(self.reports[-1]["outcome"] == "accept")

    @property
    def log(self) -> list[str]:
        """The lines that the mom's log would have."""
        lines = [each["log"][1] for each in self.reports if "log" in each]
        # What happens before the hook has a log of its own, PBS logs.
        return lines or [self.reports[-1]["message"]]

    @property
    def verdict(self) -> str:
        outcome = self.reports[-1]["outcome"]
        return (_BEGIN_VERDICTS if self.event == "execjob_begin" else _END_VERDICTS)[outcome]
