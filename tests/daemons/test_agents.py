"""What an agent is made of: its reconcilers have the time that their node's commands have."""

import asyncio
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up
from tests.controllers.machines import Noting
from tests.dws.builders import meta
from tests.kube.clusters import alongside
from warren.base.objects import Key, Kind
from warren.daemons.agents import agent
from warren.dws import kinds
from warren.dws.node import LUSTRE, LustreMount, NodeTrouble, Volume
from warren.node import blocks, lustre

PROMPT = "did not end within"


class Slow(Noting):
    """A node whose commands fail as their time is over."""

    async def make(self, volume: Volume) -> None:
        # An ext4 is made by three commands.
        await self._command(2 * blocks.MAKE_SECONDS)
        await self._command(blocks.MAKE_SECONDS, fails=True)

    async def mount_lustre(self, source: LustreMount, path: str, *others: Any) -> None:
        await self._command(lustre.SECONDS, fails=True)

    async def _command(self, seconds: float, *, fails: bool = False) -> None:
        await asyncio.sleep(seconds)
        if fails:
            raise NodeTrouble(f"it {PROMPT} {seconds:g} s")


SHARE = {
    "metadata": meta("s", "rabbit-0"),
    "spec": {"count": 1, "capacity": 10, "fileSystemType": "ext4"},
}
MOUNT = {
    "mountPath": "/mnt/wide",
    "type": LUSTRE,
    "device": {"type": LUSTRE, "lustre": {"mgsAddresses": "mgs@tcp", "fileSystemName": "wide"}},
}
CLIENT_MOUNT = {
    "metadata": meta("m", "compute-00"),
    "spec": {"node": "compute-00", "desiredState": "mounted", "mounts": [MOUNT]},
}


@pytest.mark.parametrize(
    ("node", "kind", "obj"),
    [
        ("rabbit-0", kinds.NNF_NODE_STORAGE, SHARE),
        ("compute-00", kinds.CLIENT_MOUNT, CLIENT_MOUNT),
    ],
)
def test_a_command_that_takes_its_whole_time_is_told_of(node: str, kind: Kind, obj: Any) -> None:
    async def story(api: Api) -> None:
        one = agent(api, api.clock, node, Slow(node), rabbit=node.startswith("rabbit"))
        await api.add(kind, obj)
        async with alongside(one.run()):
            await asyncio.sleep(lustre.SECONDS)
            await caught_up()
            await caught_up()
            found = api.find(kind, Key(node, obj["metadata"]["name"]))
            assert PROMPT in found["status"]["error"]["debugMessage"]

    alone(story)
