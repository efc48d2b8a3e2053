"""What an agent is made of: its reconcilers have the time that their node's commands have."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up
from tests.controllers.machines import Noting
from tests.dws.builders import meta
from tests.kube.clusters import alongside
from warren.base.objects import Key, Kind
from warren.daemons.agentreconcilers import build_agent
from warren.dws import commandlines, kinds, labels
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import LUSTRE, LustreMount, NodeTrouble, Volume
from warren.dws.rabbits import links, rabbitstorages
from warren.kube.client import Forbidden, Listing
from warren.node import blocks, commands, lustre

PROMPT = "did not end within"


class Slow(Noting):
    """A node whose commands fail as their time is over."""

    async def make(self, volume: Volume) -> None:
        # An ext4 is made by three commands.
        await self._command(2 * blocks.MAKE_SECONDS)
        await self._command(blocks.MAKE_SECONDS, fails=True)

    async def mount_lustre(self, source: LustreMount, path: str, *others: Any) -> None:
        await self._command(lustre.COMMAND_SECONDS, fails=True)

    async def _command(self, seconds: float, *, fails: bool = False) -> None:
        await asyncio.sleep(seconds)
        if fails:
            raise NodeTrouble(f"it {PROMPT} {seconds:g} s")


SHARE: dict[str, Any] = {
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


MGT = {
    "metadata": meta("mgt", "rabbit-0"),
    "spec": {
        "addresses": ["mgs@tcp"],
        "fsNameStart": "aaaaaaaa",
        "commandList": [
            {
                "reference": {"kind": "NnfStorage", "name": "s", "namespace": "default"},
                "commands": ["lctl a"],
            }
        ],
    },
}

LINK = {
    "metadata": meta(links.NNF_NODE_NAME, "compute-00", annotations={labels.RABBIT: "rabbit-0"}),
    "spec": {"state": "Enable"},
}
NO_LUSTRE = "mount.lustre is not there"


class Without(Noting):
    """A node that mounts nothing."""

    async def mount_lustre(self, source: LustreMount, path: str, *others: Any) -> None:
        raise NodeTrouble(NO_LUSTRE)


async def unreached(rabbit: str) -> str | None:
    return f"{rabbit} does not answer"


def test_a_compute_node_whose_mount_fails_tests_its_link_at_once_and_says_what_it_found() -> None:
    async def story(api: Api) -> None:
        cut = False

        async def probe(rabbit: str) -> str | None:
            return await unreached(rabbit) if cut else None

        one = build_agent(
            api,
            api.clock,
            "compute-00",
            Without("compute-00"),
            is_rabbit=False,
            probe=probe,
            link_policy=links.LinkTestPolicy(interval=3600.0, failures=1),
        )
        await api.add(kinds.NNF_NODE, LINK)
        async with alongside(one.run()):
            await asyncio.sleep(60.0)
            cut = True
            await asyncio.sleep(60.0)
            assert _lost(api) is None
            await api.add(kinds.CLIENT_MOUNT, CLIENT_MOUNT)
            await caught_up()
            assert "rabbit-0 does not answer" in _lost(api)

    alone(story)


def _lost(api: Api) -> Any:
    found = api.find(kinds.NNF_NODE, Key("compute-00", links.NNF_NODE_NAME))
    return found["metadata"]["annotations"].get(labels.LOST_LINK)


class Older(Api):
    """An API whose roles say nothing of a kind."""

    unknown: Kind = kinds.NNF_NODE

    async def list(self, kind: Kind, namespace: str = "", labels: Any = None) -> Listing:
        if kind == self.unknown:
            raise Forbidden(f"{kind.plural} are not yours")
        return await super().list(kind, namespace, labels)


def test_a_compute_node_whose_role_is_an_older_one_mounts_all_the_same() -> None:
    async def story(api: Api) -> None:
        older = Older(api.store, ())
        one = build_agent(
            older, api.clock, "compute-00", Without("compute-00"), is_rabbit=False, probe=unreached
        )
        await api.add(kinds.CLIENT_MOUNT, CLIENT_MOUNT)
        async with alongside(one.run()):
            await asyncio.sleep(5.0)
            found = api.find(kinds.CLIENT_MOUNT, Key("compute-00", "m"))
            assert NO_LUSTRE in found["status"]["error"]["debugMessage"]

    alone(story)


def test_a_rabbit_whose_role_is_an_older_one_makes_volumes_all_the_same() -> None:
    async def story(api: Api) -> None:
        older = Older(api.store, ())
        older.unknown = kinds.LUSTRE_MGT
        node = Noting("rabbit-0")
        one = build_agent(older, api.clock, "rabbit-0", node, is_rabbit=True)
        await api.add(kinds.NNF_NODE_STORAGE, SHARE)
        async with alongside(one.run()):
            await asyncio.sleep(5.0)
            assert [each for each in node.asked if each[0] == "make"]

    alone(story)


def test_what_a_file_system_has_for_its_mgs_is_run_on_the_rabbit_that_has_it() -> None:
    async def story(api: Api) -> None:
        node = Noting("rabbit-0")
        one = build_agent(api, api.clock, "rabbit-0", node, is_rabbit=True)
        await api.add(kinds.LUSTRE_MGT, MGT)
        async with alongside(one.run()):
            await asyncio.sleep(5.0)
            assert ("configure mgs", ("lctl", "a")) in node.asked

    alone(story)


@pytest.mark.parametrize(
    ("node", "kind", "obj"),
    [
        ("rabbit-0", kinds.NNF_NODE_STORAGE, SHARE),
        ("compute-00", kinds.CLIENT_MOUNT, CLIENT_MOUNT),
    ],
)
def test_a_command_that_takes_its_whole_time_is_told_of(node: str, kind: Kind, obj: Any) -> None:
    async def story(api: Api) -> None:
        one = build_agent(api, api.clock, node, Slow(node), is_rabbit=node.startswith("rabbit"))
        await api.add(kind, obj)
        async with alongside(one.run()):
            await asyncio.sleep(lustre.COMMAND_SECONDS)
            await caught_up()
            await caught_up()
            found = api.find(kind, Key(node, obj["metadata"]["name"]))
            assert PROMPT in found["status"]["error"]["debugMessage"]

    alone(story)


class Telling(Noting):
    """A node that notes which commands it has for its Lustre."""

    commands = NO_COMMANDS

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        self.commands = profile


@pytest.mark.parametrize("node", ["rabbit-0", "compute-00"])
def test_an_agent_knows_which_of_a_profiles_commands_are_for_its_side(node: str) -> None:
    sides = ("rabbit", "compute")
    lines = {f"data.x.{side}PreMount": ("true",) for side in sides}
    told = {labels.COMMANDS: commandlines.encode(ProfileCommands(lines=lines))}
    carrying = {**CLIENT_MOUNT, "metadata": meta("m", node, annotations=told)}

    async def story(api: Api) -> None:
        machine = Telling(node)
        one = build_agent(api, api.clock, node, machine, is_rabbit=node.startswith("rabbit"))
        await api.add(kinds.CLIENT_MOUNT, carrying)
        async with alongside(one.run()):
            await asyncio.sleep(5.0)
            assert [*machine.commands.lines] == [f"data.x.{node.partition('-')[0]}PreMount"]

    alone(story)


class SlowToTell(Noting):
    """A rabbit that tells slowly what it has, and then fails to."""

    async def unsupported_types(self) -> dict[str, str]:
        await asyncio.sleep(3 * commands.COMMAND_TIMEOUT)
        return {}

    async def capacity(self) -> int:
        await asyncio.sleep(commands.COMMAND_TIMEOUT)
        raise NodeTrouble(f"it {PROMPT} {commands.COMMAND_TIMEOUT:g} s")


def test_a_rabbit_that_tells_slowly_what_it_has_says_why_it_cannot_be_used() -> None:
    async def story(api: Api) -> None:
        one = build_agent(api, api.clock, "rabbit-0", SlowToTell("rabbit-0"), is_rabbit=True)
        async with alongside(one.run()):
            await asyncio.sleep(10 * commands.COMMAND_TIMEOUT)
            found = api.find(kinds.NNF_NODE, Key("rabbit-0", rabbitstorages.NNF_NODE_NAME))
            assert PROMPT in found["metadata"]["annotations"][labels.FAILURE]

    alone(story)


class Exporting:
    """A rabbit whose volumes take long to be made ready."""

    def __init__(self) -> None:
        self.volumes: list[str] = []

    async def export(self, volume: str, nodes: Collection[str]) -> None:
        await asyncio.sleep(2 * commands.COMMAND_TIMEOUT)
        self.volumes.append(volume)

    async def withdraw_others(self, volumes: Collection[str]) -> None: ...


def test_volumes_that_are_slowly_made_ready_are_all_offered() -> None:
    async def story(api: Api) -> None:
        exports = Exporting()
        node = Noting("rabbit-0")
        one = build_agent(api, api.clock, "rabbit-0", node, is_rabbit=True, exports=exports)
        share = {**SHARE, "spec": {**SHARE["spec"], "count": 3}}
        await api.add(kinds.NNF_NODE_STORAGE, share)
        access = [{"capacity": 10, "access": ["rabbit-0", "n0"]}] * 3
        flash = {"metadata": meta("s", "rabbit-0"), "spec": {"allocations": access}}
        await api.add(kinds.NNF_NODE_BLOCK_STORAGE, flash)
        async with alongside(one.run()):
            await asyncio.sleep(7 * commands.COMMAND_TIMEOUT)
            assert len(set(exports.volumes)) == 3

    alone(story)
