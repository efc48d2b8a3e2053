"""How a simulated node behaves: how long what it does takes, and how often it fails.

Times are lognormal, as those of real devices are: most are near the median, and a few are many
times as long. The same seed and the same requests give the same times and faults.
"""

import asyncio
import math
import random
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.dws.node import NodeTrouble

ACTIONS: Final = ("make", "release", "mount", "unmount", "copy")


class ActionBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How one action goes."""

    seconds: float = 0.0
    """The median."""
    sigma: float = 0.0
    """How far times are spread: the standard deviation of their logarithms."""
    fails: float = 0.0
    """The share of tries that fail, from 0 to 1."""
    fatal: float = 0.0
    """The share of those that fail for good."""

    def __post_init__(self) -> None:
        for name in ("seconds", "sigma", "fails", "fatal"):
            value = getattr(self, name)
            highest = math.inf if name in ("seconds", "sigma") else 1.0
            if not (math.isfinite(value) and 0 <= value <= highest):
                upper_bound = "" if highest == math.inf else " and 1 at most"
                raise UserMistake(
                    f"{name}: {value} is not a number that is 0 at least{upper_bound}."
                )


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How all actions of a node go. What it says nothing of takes no time and never fails."""

    seed: int = 0
    actions: Mapping[str, ActionBehaviour] = msgspec.field(default_factory=dict)

    def fault_injector(self, node: str) -> "FaultInjector":
        """Return the injector of one node: nodes of one seed do not fail in step."""
        return FaultInjector(self, random.Random(f"{self.seed} {node}"))


NO_FAULTS: Final = Behaviour()
"""A node that takes no time and never fails."""


class FaultInjector:
    """Draws the times and faults of one node, request after request."""

    def __init__(self, behaviour: Behaviour, generator: random.Random) -> None:
        self._actions = behaviour.actions
        self._random = generator

    def draw_seconds(self, name: str) -> float:
        """Return how long an action takes this time."""
        action = self._actions.get(name)
        if action is None or action.seconds == 0:
            return 0.0
        return self._random.lognormvariate(math.log(action.seconds), action.sigma)

    def draw_fault(self, name: str) -> bool | None:
        """Return whether the action fails for good; None where it does not fail this time."""
        action = self._actions.get(name)
        if action is None or self._random.random() >= action.fails:
            return None
        return self._random.random() < action.fatal

    async def inject(self, name: str) -> None:
        """Take the time that an action takes, and raise NodeTrouble if it fails."""
        seconds, fatal = self.draw_seconds(name), self.draw_fault(name)
        if seconds:
            await asyncio.sleep(seconds)
        if fatal is not None:
            raise NodeTrouble(f"{name} has failed, as simulated", fatal=fatal)


def parse(table: Mapping[str, Any]) -> Behaviour:
    """Read a behaviour from a table of a configuration file. Raises UserMistake.

    `{"seed": 1, "mount": {"seconds": 0.1, "sigma": 0.5, "fails": 0.01}}`
    """
    actions = {}
    for name, value in table.items():
        if name == "seed":
            continue
        if name not in ACTIONS or not isinstance(value, Mapping):
            raise UserMistake(f"{name} is no action of a node: take {', '.join(ACTIONS)}.")
        unknown = sorted({*value} - {*ActionBehaviour.__struct_fields__})
        if unknown:
            raise UserMistake(f"{name}.{unknown[0]} is not known here.")
        if not all(type(each) in (int, float) for each in value.values()):
            raise UserMistake(f"{name}: numbers are needed.")
        try:
            actions[name] = ActionBehaviour(**value)
        except UserMistake as mistake:
            raise UserMistake(f"{name}.{mistake}") from None
    seed = table.get("seed", 0)
    if type(seed) is not int:
        raise UserMistake(f"seed: {seed!r} is not a whole number.")
    return Behaviour(seed=seed, actions=actions)
