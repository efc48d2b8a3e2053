"""One rabbit with an MGS: the commands that NnfLustreMGTs ask for, and what it says of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.controllers.alone import Api, alone, caught_up, running
from tests.controllers.machines import Noting
from tests.dws.builders import STAMP, meta
from warren.base.objects import Key, Object
from warren.controllers.mgs import MgsReconciler
from warren.dws import kinds
from warren.dws.node import NodeTrouble
from warren.kube.client import Conflict

KEY = Key("r0", "mgs")
ONE = {"kind": "NnfStorage", "name": "one", "namespace": "default", "uid": "uid-one"}
TWO = {**ONE, "name": "two", "uid": "uid-two"}
SET_ONE = ("configure mgs", ("lctl", "set_param", "-P", "osc.one-*.checksums=1"))
SET_TWO = ("configure mgs", ("lctl", "set_param", "-P", "osc.two-*.checksums=1"))

Story = Callable[[Api, Noting], Awaitable[None]]


class Hanging(Noting):
    """An MGS on which the commands of some never end."""

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        await super().configure_mgs(commands)
        if commands[0][-1].startswith("osc.hang"):
            await asyncio.Event().wait()


def lived(story: Story) -> None:
    async def main(api: Api) -> None:
        machine = Hanging("r0")
        mgs = MgsReconciler(api, api.informers, machine)
        async with running(api, mgs.reconciler.run(), mgs.command_reconciler.run()):
            await story(api, machine)

    alone(main)


def asked(*requesters: Object) -> list[Object]:
    return [
        {
            "reference": each,
            "commands": [f"lctl set_param -P osc.{each['name']}-*.checksums=1"],
        }
        for each in requesters
    ]


async def mgt(api: Api, *requesters: Object, **metadata: Any) -> None:
    spec = {"addresses": ["10.0.0.1@tcp"], "commandList": asked(*requesters)}
    obj = {"metadata": meta(KEY.name, KEY.namespace, **metadata), "spec": spec}
    await api.add(kinds.LUSTRE_MGT, obj)
    await caught_up()


async def ask(api: Api, *requesters: Object) -> None:
    await api.change(kinds.LUSTRE_MGT, KEY, {"spec": {"commandList": asked(*requesters)}})
    await caught_up()


def told(api: Api) -> Sequence[Object]:
    status = api.find(kinds.LUSTRE_MGT, KEY).get("status") or {}
    found: Sequence[Object] = status.get("commandList", [])
    return found


def test_commands_are_run_once_for_each_that_asks_and_forgotten_with_it() -> None:
    async def story(api: Api, machine: Noting) -> None:
        await mgt(api, ONE)
        assert told(api) == [{"reference": ONE, "ready": True}]
        await ask(api, ONE, TWO)
        assert machine.asked == [SET_ONE, SET_TWO]
        assert told(api) == [
            {"reference": ONE, "ready": True},
            {"reference": TWO, "ready": True},
        ]
        await ask(api, TWO)
        assert told(api) == [{"reference": TWO, "ready": True}]
        again = {**ONE, "uid": "uid-of-another-one"}
        await ask(api, TWO, again)
        assert machine.asked == [SET_ONE, SET_TWO, SET_ONE]
        assert machine.flash.mgs_commands == [list(words) for _, words in machine.asked]

    lived(story)


def test_one_that_fails_is_told_tried_again_and_keeps_no_other() -> None:
    async def story(api: Api, machine: Noting) -> None:
        machine.troubles[SET_ONE] = NodeTrouble("no MGS")
        await mgt(api, ONE, TWO)
        first, second = told(api)
        assert first["ready"] is False
        assert (first["error"]["debugMessage"], first["error"]["severity"]) == ("no MGS", "Major")
        assert second == {"reference": TWO, "ready": True}

        machine.troubles.clear()
        for _ in range(10):
            await caught_up()
        assert told(api)[0] == {"reference": ONE, "ready": True}
        assert machine.asked.count(SET_TWO) == 1

    lived(story)


def test_what_can_never_be_run_is_told_and_left_alone() -> None:
    async def story(api: Api, machine: Noting) -> None:
        await mgt(api)
        wrong = {"reference": ONE, "commands": ["lctl x | tee y"]}
        await api.change(kinds.LUSTRE_MGT, KEY, {"spec": {"commandList": [wrong]}})
        await caught_up()
        (answer,) = told(api)
        assert answer["error"]["severity"] == "Fatal"
        assert "name a script instead" in answer["error"]["debugMessage"]
        written = len(api.written)
        for _ in range(10):
            await caught_up()
        assert (len(api.written), machine.asked) == (written, [])

    lived(story)


def test_an_answer_that_cannot_be_written_is_written_later_and_nothing_is_run_again() -> None:
    async def story(api: Api, machine: Noting) -> None:
        api.refusals["patch", kinds.LUSTRE_MGT] = Conflict("meanwhile it was changed")
        await mgt(api, ONE)
        for _ in range(10):
            await caught_up()
        assert machine.asked == [SET_ONE]
        assert told(api) == [{"reference": ONE, "ready": True}]

    lived(story)


def test_an_mgs_that_goes_has_nothing_run() -> None:
    async def story(api: Api, machine: Noting) -> None:
        await mgt(api, ONE, finalizers=["another/one"], deletionTimestamp=STAMP)
        await api.change(kinds.LUSTRE_MGT, KEY, {"spec": {"fsNameStart": "bbbbbbbb"}})
        # It was seen before it went: commands of then may have been run.
        before = len(machine.asked)
        await ask(api, ONE, TWO)
        assert len(machine.asked) == before
        assert SET_TWO not in machine.asked

    lived(story)


def test_commands_that_hang_keep_no_others_and_are_run_once_at_a_time() -> None:
    async def story(api: Api, machine: Noting) -> None:
        hanging = {**ONE, "name": "hang", "uid": "uid-hang"}
        await mgt(api, hanging, ONE)
        assert told(api) == [{"reference": ONE, "ready": True}]
        await ask(api, hanging, ONE, TWO)
        assert told(api) == [{"reference": each, "ready": True} for each in (ONE, TWO)]
        await ask(api, hanging, TWO)
        assert told(api) == [{"reference": TWO, "ready": True}]
        assert [words[-1] for _, words in machine.asked] == [
            f"osc.{name}-*.checksums=1" for name in ("hang", "one", "two")
        ]

    lived(story)


def test_an_answer_that_an_admin_takes_away_has_the_commands_run_again() -> None:
    async def story(api: Api, machine: Noting) -> None:
        await mgt(api, ONE)
        status: Object = {"status": {"commandList": []}}
        await api.change(kinds.LUSTRE_MGT, KEY, status, status=True)
        await caught_up()
        assert machine.asked == [SET_ONE, SET_ONE]
        assert told(api) == [{"reference": ONE, "ready": True}]

    lived(story)
