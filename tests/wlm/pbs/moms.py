"""A mom for the hook: the real file, in a process of its own, isolated and optimized."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from warren.wlm.pbs import rehearsal

HOOK = Path(__file__).parents[3] / "hooks" / "pbs" / "PBS_cray_atom.PY"

NODE = "cmp17"


@dataclass(frozen=True)
class Played:
    """What came of a hook's run."""

    outcome: str
    """accept, reject, error, or alarm, as the mom sees it."""
    message: str
    log: list[tuple[int, str]]
    asked: list[str]
    """The vnodes that the server was asked about."""
    seconds: float

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.log)


def scenario(
    event: str,
    config: Path | None,
    *,
    job: str = "2.pbshost",
    user: str = "root",
    place: str | None = "pack",
    sharing: int | None = rehearsal.SHARING["ND_DEFAULT_SHARED"],
    vntype: str | None = None,
    knows: bool = True,
    answers: bool = True,
    alarm: float = 300.0,
    node: str = NODE,
) -> rehearsal.Scenario:
    """Say what a mom is asked to do, with a server that answers and knows the node, or not."""
    known = {node: {"sharing": sharing, "vntype": vntype}} if knows else {}
    return {
        "hook": str(HOOK),
        "hook_name": "PBS_cray_atom",
        "event": event,
        "job": {"id": job, "euser": user, "place": place},
        "node": node,
        "vnodes": known if answers else None,
        "config": None if config is None else str(config),
        "alarm": alarm,
    }


def play(told: rehearsal.Scenario) -> Played:
    """Run the hook as a mom does: at the alarm its whole process group is killed."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-OO", rehearsal.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd="/",
    )
    try:
        output, errors = process.communicate(json.dumps(told), timeout=float(told["alarm"]) + 5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    happenings = [json.loads(line) for line in output.splitlines()]
    assert errors == ""
    last = happenings[-1] if happenings and "outcome" in happenings[-1] else {"outcome": "alarm"}
    return Played(
        outcome=last["outcome"],
        message=last.get("message", ""),
        log=[tuple(each["log"]) for each in happenings if "log" in each],
        asked=[each["asked"] for each in happenings if "asked" in each],
        seconds=time.monotonic() - began,
    )
