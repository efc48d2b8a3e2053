"""A mom for the hook: the real file, in a process of its own, isolated and optimized."""

import time
from dataclasses import dataclass
from pathlib import Path

from warren.wlm.pbs import rehearsal
from warren.wlm.pbs.trial import rehearsed

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
    """Run the hook as a mom does."""
    began = time.monotonic()
    happenings = rehearsed(told)
    return Played(
        outcome=happenings[-1]["outcome"],
        message=happenings[-1]["message"],
        log=[tuple(each["log"]) for each in happenings if "log" in each],
        asked=[each["asked"] for each in happenings if "asked" in each],
        seconds=time.monotonic() - began,
    )
