"""What users are told of their jobs' storage while it is there and afterwards: `dws.storage`."""

import asyncio
import errno
import os
from typing import Any

import orjson
import pytest

from tests.harness import virtual
from tests.harness.lines import Line
from tests.harness.world import DIRECTIVES, World, opened
from warren.daemons.compose import Control
from warren.instance import keys
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.message import RpcError

DW = {"dw": "\n".join(DIRECTIVES)}


async def asked(control: Control, job: int, userid: int | None = None) -> Any:
    """Return what a user is told."""
    asker = os.getuid() if userid is None else userid
    handle = Line(control.instance.bus, asker, asyncio.Event(), Bus(asker))
    return await handle.rpc("dws.storage", {"id": job})


def kept(control: Control, job: JobId) -> Any:
    return orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "rabbit_storage")))


def test_it_is_told_live_and_kept_when_teardown_begins() -> None:
    async def life(world: World, control: Control) -> None:
        world.copy_seconds = 60.0
        job = await world.submit(control, attributes=DW)

        def state() -> Any:
            return (world.workflow(control).get("status") or {}).get("state")

        await world.until(lambda: state() == "DataOut")
        found = await asked(control, job)
        assert (found["desired"], found["ready"]) == ("DataOut", False)
        # Four nodes' GiB, and what xfs needs besides.
        assert found["rabbits"] == {"rabbit-0": found["bytes"]}
        assert found["bytes"] > 4 << 30
        assert found["waits"].startswith("waits for DataOut on rabbit-0")
        assert control.instance.kvs.get(keys.job_key(job, "rabbit_storage")) is None
        with pytest.raises(RpcError) as refused:
            await asked(control, job, os.getuid() + 1)
        assert refused.value.errnum == errno.ENOENT

        await world.ended(control, job)
        with pytest.raises(RpcError) as gone:
            await asked(control, job)
        assert gone.value.errnum == errno.ENOENT
        last = kept(control, job)
        assert (last["bytes"], last["copied"]) == (found["bytes"], {"Success": 8})
        assert {each["progress"] for each in last["copies"]} == {100}

    async def main() -> None:
        async with opened() as world:
            await world.live(lambda control: life(world, control))

    virtual.run(main())
