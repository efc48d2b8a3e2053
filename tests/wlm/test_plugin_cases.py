"""The table of cases on the embedded instance, whose plugin is in Python."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.virtual import VirtualClock
from tests.instance.lives import Life, alive, spec
from tests.instance.parts import GUEST, OWNER
from tests.wlm.plugin_cases import CASES, SUCCESS, Case, Payload, Submit, play, told
from warren.journal import MemoryJournal
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method
from warren.rpc.message import Request, RpcError
from warren.wlm.embedded.plugin import DwsPlugin


class Embedded:
    """A `Driver`: lives of a job manager in virtual time."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.wanted = case.requests if case.embedded is None else case.embedded
        self._clock = VirtualClock()
        self._journal = MemoryJournal()
        self._seconds = 3600.0 if any(isinstance(s, Submit) and s.long for s in case.steps) else 1.0
        self._lived = AsyncExitStack()
        self._present = True
        self._answers: dict[str, Payload] = {}
        self._asked: list[tuple[str, Payload]] = []
        self._life: Life
        self._job: JobId

    async def __aenter__(self) -> "Embedded":
        plugin = DwsPlugin(self._clock, OWNER, self._case.epilog_timeout)
        life = alive(self._journal, plugins=[plugin], clock=self._clock, seconds=self._seconds)
        self._life = await self._lived.enter_async_context(life)
        if self._present:
            self._register()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._lived.aclose()

    def _register(self) -> None:
        topics = ("create", "setup", "post_run", "teardown", "abort")
        self._life.bus.register("dws", {each: self._method(each) for each in topics})

    def _method(self, name: str) -> Method:
        async def answer(request: Request) -> Payload:
            self._asked.append((name, request.payload))
            return self._answers.get(name, SUCCESS)

        return Method(answer)

    async def submit(self, system: Payload, *, long: bool, urgency: int, guest: bool) -> None:
        options: dict[str, Any] = {"attributes": system}
        if guest:
            self._job = await self._life.submit_as(GUEST, **options)
        else:
            self._job = await self._life.submit_spec(spec(**options), urgency=urgency)

    async def until(self, event: str) -> None:
        await self._seen(lambda: any(each.startswith(event) for each in self._told()))

    async def received(self, request: str) -> None:
        if any(each.startswith(request) for each in self.wanted):
            await self._seen(lambda: any(name == request for name, _ in self._asked))

    async def _seen(self, condition: Any) -> None:
        async with asyncio.timeout(3600):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _told(self) -> list[str]:
        return [told(event.name, event.context) for event in self._life.log(self._job)]

    async def ask(self, method: str, payload: Payload) -> str | None:
        resources = {"resources": self.resources()} if method == "resource-update" else {}
        request = {"id": self._job, **resources, **payload}
        try:
            await self._life.bus.handle().rpc(f"job-manager.dws.{method}", request)
        except RpcError as error:
            return str(error)
        return None

    async def answer(self, method: str, answer: Payload) -> None:
        self._answers[method] = answer

    async def serve(self, present: bool) -> None:
        self._present = present
        if present:
            self._register()
        else:
            self._life.bus.unregister("dws")

    async def except_(self, type: str, severity: int, *, guest: bool) -> None:
        request = {"id": self._job, "type": type, "severity": severity, "note": "enough"}
        await self._life.bus.handle(GUEST if guest else OWNER).rpc("job-manager.raise", request)

    async def kill(self) -> None:
        await self._life.bus.handle().rpc("job-manager.kill", {"id": self._job, "signum": 15})

    async def memo(self, memo: Payload) -> None:
        await self._life.bus.handle().rpc("job-manager.memo", {"id": self._job, "memo": memo})

    async def hasten(self) -> None:
        await self._life.bus.handle().rpc("job-manager.urgency", {"id": self._job, "urgency": 16})

    async def reload(self) -> None:
        await self._lived.aclose()
        await self.__aenter__()

    async def log(self) -> Sequence[tuple[str, Payload]]:
        return [(event.name, event.context) for event in self._life.log(self._job)]

    async def requests(self) -> Sequence[tuple[str, Payload]]:
        return self._asked

    def resources(self) -> Sequence[Payload]:
        found: Sequence[Payload] = spec()["resources"]
        return found


@pytest.mark.parametrize("case", [each for each in CASES if not each.flux], ids=lambda c: c.name)
def test_the_plugin_of_the_embedded_instance(case: Case) -> None:
    async def story() -> None:
        async with Embedded(case) as driver:
            await play(case, driver, driver.wanted)

    virtual.run(story())
