"""Trying the hook on this node: as its mom would run it, for a job that PBS knows nothing of."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warren.wlm.pbs import rehearsal

_BEGIN: Final = {
    "accept": "accepted",
    "reject": "rejected; the vnodes would stay online",
    "error": "failed; PBS would take the vnodes offline",
    "alarm": "killed by the alarm; PBS would take the vnodes offline",
}
_END: Final = {
    "accept": "accepted",
    "reject": "rejected, which PBS would log and no more",
    "error": "failed, which PBS would log and no more",
    "alarm": "killed by the alarm, which PBS would log and no more",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A job that is none, and the node on which it begins and ends."""

    hook: Path
    name: str
    config: Path | None
    node: str
    job: str
    user: str
    place: str
    sharing: str
    alarm: float

    def events(self) -> "Iterator[Happened]":
        """Run the hook for each event of the job; without a begin it has no end."""
        for event in rehearsal.EVENTS:
            happened = self._run(event)
            yield happened
            if not happened.accepted:
                return

    def _run(self, event: str) -> "Happened":
        told = rehearsal.VnodeTold(
            sharing=rehearsal.SHARING[f"ND_{self.sharing.upper()}"], vntype=None
        )
        scenario = rehearsal.Scenario(
            hook=str(self.hook),
            hook_name=self.name,
            event=event,
            job=rehearsal.JobTold(id=self.job, euser=self.user, place=self.place),
            node=self.node,
            vnodes={self.node: told},
            config=None if self.config is None else str(self.config),
            alarm=self.alarm,
        )
        # Isolated and optimized: that is how a mom has it.
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-OO", rehearsal.__file__],
            input=json.dumps(scenario),
            capture_output=True,
            text=True,
            check=False,
        )
        happenings = [json.loads(line) for line in ran.stdout.splitlines()]
        if not happenings or "outcome" not in happenings[-1]:
            happenings.append({"outcome": "alarm", "message": ""})
        return Happened(event, happenings)


@dataclass(frozen=True)
class Happened:
    """What came of one event."""

    event: str
    happenings: list[dict[str, Any]]

    @property
    def accepted(self) -> bool:
        return bool(self.happenings[-1]["outcome"] == "accept")

    @property
    def log(self) -> list[str]:
        """The lines that the mom's log would have."""
        return [each["log"][1] for each in self.happenings if "log" in each]

    @property
    def verdict(self) -> str:
        outcome = self.happenings[-1]["outcome"]
        return (_BEGIN if self.event == "execjob_begin" else _END)[outcome]
