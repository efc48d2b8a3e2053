"""Nodes are drained because of what went wrong on them."""

import errno

from tests.instance.parts import OWNER, virtually
from warren.instance.exec.draining import drainer
from warren.rpc.bus import Bus, Method
from warren.rpc.message import Payload, Request, RpcError


@virtually
async def test_a_node_that_cannot_be_drained_does_not_keep_others_from_it() -> None:
    asked: list[Payload] = []

    async def drain(request: Request) -> Payload:
        asked.append(request.payload)
        if request.payload["targets"] == "3":
            raise RpcError(errno.EINVAL, "node3 is excluded")
        return {}

    bus = Bus(OWNER)
    bus.register("resource", {"drain": Method(drain)})
    await drainer(bus.handle())([1, 3, 4], "broken")

    # One that is drained already keeps its reason: that is what the mode says.
    assert asked == [
        {"targets": target, "reason": "broken", "mode": "update"} for target in ("1", "3", "4")
    ]
