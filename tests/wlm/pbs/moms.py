"""A mom for the hook: the real file, in a process of its own, isolated and optimized.

No test talks to the machine's own ATOM: see `played_hook`.
"""

import atexit
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from warren.wlm.pbs import simulatedmom
from warren.wlm.pbs.trial import run_hook

HOOK = Path(__file__).parents[3] / "hooks" / "pbs" / "PBS_cray_atom.PY"

SOCKET = "/var/run/atomd/atomd.sock"
"""Where the hook asks if nothing is configured. On this machine a real ATOM may listen there."""

NOWHERE = "/nonexistent/atomd.sock"
"""Where it asks here instead."""

NODE = "cmp17"


@cache
def played_hook() -> Path:
    """Return the hook's file as it is played: the real one, but for where it asks unless told."""
    source = HOOK.read_text()
    assert source.count(SOCKET) == 1
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    copy = Path(directory.name, HOOK.name)
    copy.write_text(source.replace(SOCKET, NOWHERE))
    return copy


@dataclass(frozen=True)
class Played:
    """What came of a hook's run."""

    outcome: str
    """accept, reject, error, or alarm, as the mom sees it."""
    message: str
    log: list[tuple[int, str]]
    asked: list[str]
    """The vnodes that the server was asked about."""

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
    sharing: int | None = simulatedmom.SHARING["ND_DEFAULT_SHARED"],
    vntype: str | None = None,
    knows: bool = True,
    answers: bool = True,
    alarm: float = 300.0,
    node: str = NODE,
) -> simulatedmom.Scenario:
    """Say what a mom is asked to do, with a server that answers and knows the node, or not."""
    known: dict[str, simulatedmom.VnodeFields] = (
        {node: {"sharing": sharing, "vntype": vntype}} if knows else {}
    )
    return {
        "hook": str(played_hook()),
        "hook_name": "PBS_cray_atom",
        "event": event,
        "job": {"id": job, "euser": user, "place": place},
        "node": node,
        "vnodes": known if answers else None,
        "config": None if config is None else str(config),
        "alarm": alarm,
    }


def play(told: simulatedmom.Scenario) -> Played:
    """Run the hook as a mom does."""
    reports = run_hook(told)
    return Played(
        outcome=reports[-1]["outcome"],
        message=reports[-1]["message"],
        log=[tuple(each["log"]) for each in reports if "log" in each],
        asked=[each["asked"] for each in reports if "asked" in each],
    )
