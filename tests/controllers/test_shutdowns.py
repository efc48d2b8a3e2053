"""Asking containers to end: beside Workflows, with an admin's certificate, and over HTTPS."""

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.controllers.alone import WORKFLOW, Api, alone, running
from tests.dws.builders import JOBDW, meta, raw_workflow
from tests.dws.test_containers import BARE, BARE_PROFILE
from tests.harness.logs import capture_logs
from warren.base.objects import Key, Kind
from warren.controllers.shutdowns import HttpsShutdownClient, ShutdownController
from warren.dws import kinds
from warren.dws.containers import ports, shutdowns
from warren.dws.containers.shutdowns import ShutdownRequest
from warren.kube.server.access import tls

KEY = Key("default", "wf")
WHERE = {"secretName": "wf-token", "secretNamespace": "default"}
PROFILE: dict[str, Any] = {**BARE_PROFILE, "data": {**BARE_PROFILE["data"], "numPorts": 1}}


class Asked:
    """An `ShutdownClient` that notes what it is asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[ShutdownRequest], str, str | None]] = []

    async def request_shutdowns(
        self, asks: Sequence[ShutdownRequest], authority: str, token: str | None
    ) -> None:
        self.seen.append((list(asks), authority, token))


def secret(name: str, **data: str) -> Any:
    found = {
        entry.replace("_", "."): base64.b64encode(each.encode()).decode()
        for entry, each in data.items()
    }
    return {"metadata": meta(name), "data": found}


async def postrun(api: Api, story: Callable[[Asked], Awaitable[None]]) -> Asked:
    """Tell a story of a Workflow in PostRun whose containers run on r0."""
    asked = Asked()
    controller = ShutdownController(api, api.informers, asked)
    async with running(api, controller.reconciler.run()):
        address = [{"type": "InternalIP", "address": "127.0.0.9"}]
        await api.add(
            kinds.NODE,
            {"metadata": {"name": "r0"}, "status": {"addresses": address}},
        )
        await api.add(kinds.CONTAINER_PROFILE, {**PROFILE, "metadata": meta("wf-0")})
        await api.add(
            kinds.BATCH_JOB,
            {
                "metadata": meta("wf-r0", labels=WORKFLOW),
                "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "r0"}}}},
                "status": {"ready": 1},
            },
        )
        wf = raw_workflow(BARE, state="PostRun", status={"workflowToken": WHERE})
        made = await api.store.create(kinds.WORKFLOW, {**wf, "status": {"ready": False}})
        of = {"kind": "Workflow", "name": "wf", "namespace": "default",
              "uid": made["metadata"]["uid"]}  # fmt: skip
        given = {"requester": of, "status": "InUse", "ports": [5000]}
        await api.add(
            kinds.PORT_MANAGER,
            {
                "metadata": {"name": ports.MANAGER_KEY.name,
                             "namespace": ports.MANAGER_KEY.namespace},
                "spec": {"systemConfiguration": {"name": "default", "namespace": "default"},
                         "allocations": [{"requester": of, "count": 1}]},
                "status": {"status": "Ready", "allocations": [given]},
            },
        )  # fmt: skip
        await api.change(kinds.WORKFLOW, KEY, {"status": wf["status"]})
        await story(asked)
    return asked


def test_containers_are_asked_every_two_seconds_until_they_have_ended() -> None:
    async def main(api: Api) -> None:
        await api.add(kinds.SECRET, secret("nnf-dm-usercontainer-server-tls", tls_crt="CA"))
        await api.add(kinds.SECRET, secret("wf-token", token="a.b.c"))

        async def story(asked: Asked) -> None:
            assert len(asked.seen) == 1
            await asyncio.sleep(1.5)  # informers have had a second already
            assert len(asked.seen) == 2
            done = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
            await api.change(kinds.BATCH_JOB, Key("default", "wf-r0"), done, status=True)
            await asyncio.sleep(60)
            assert len(asked.seen) == 2

        asked = await postrun(api, story)
        one = ShutdownRequest(rabbit="r0", address="127.0.0.9", port=5000)
        assert asked.seen[0] == ([one], "CA", "a.b.c")

    alone(main)


def test_without_a_certificate_none_is_asked_and_without_a_token_none_is_sent() -> None:
    async def main(api: Api) -> None:
        async def story(asked: Asked) -> None:
            await asyncio.sleep(10)
            assert asked.seen == []
            await api.add(kinds.SECRET, secret("nnf-dm-usercontainer-server-tls", tls_crt="CA"))
            await api.change(kinds.WORKFLOW, KEY, {"status": {"workflowToken": None}})
            assert [token for _, _, token in asked.seen] == [None]

        await postrun(api, story)

    alone(main)


def test_where_there_are_many_containers_others_have_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutdowns, "BATCH_SIZE", 1)

    async def main(api: Api) -> None:
        await api.add(kinds.SECRET, secret("nnf-dm-usercontainer-server-tls", tls_crt="CA"))
        await api.add(kinds.SECRET, secret("wf-token", token="a.b.c"))

        async def story(asked: Asked) -> None:
            node = api.store.get(kinds.NODE, Key("", "r0"))
            status = node["status"]
            await api.add(kinds.NODE, {"metadata": {"name": "r1"}, "status": status})
            job = api.store.get(kinds.BATCH_JOB, Key("default", "wf-r0"))
            template = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "r1"}}}
            await api.add(
                kinds.BATCH_JOB,
                {
                    "metadata": meta("wf-r1", labels=WORKFLOW),
                    "spec": {**job["spec"], "template": template},
                    "status": {"ready": 1},
                },
            )
            asked.seen.clear()
            await asyncio.sleep(7)
            found = [[each.rabbit for each in asks] for asks, _, _ in asked.seen]
            assert len(found) > 2
            assert {*map(tuple, found)} == {("r0",), ("r1",)}

            # Once there is none to ask any more, the first of them is the next one.
            if asked.seen[-1][0][0].rabbit == "r0":
                await asyncio.sleep(2)
            await api.change(kinds.WORKFLOW, KEY, {"status": {"ready": True}})
            await asyncio.sleep(5)
            assert asked.seen[-1][0][0].rabbit == "r0"
            asked.seen.clear()
            await api.change(kinds.WORKFLOW, KEY, {"status": {"ready": False}})
            assert [each.rabbit for each in asked.seen[0][0]] == ["r0"]

        await postrun(api, story)

    alone(main)


@pytest.mark.parametrize("text", ["//79", "a"], ids=["no text", "no base64"])
def test_a_damaged_certificate_is_as_none_and_no_bug(text: str) -> None:
    async def main(api: Api) -> None:
        damaged = secret("nnf-dm-usercontainer-server-tls")
        await api.add(kinds.SECRET, {**damaged, "data": {"tls.crt": text}})

        async def story(asked: Asked) -> None:
            await asyncio.sleep(10)
            assert asked.seen == []

        with capture_logs("error") as logs:
            await postrun(api, story)
        assert logs == []

    alone(main)


def woken(*workflows: Any) -> list[Key]:
    """Return which of some Workflows are looked at when there is news of them."""
    found: list[Key] = []

    async def main(api: Api) -> None:
        controller = ShutdownController(api, api.informers, Asked())
        controller.reconciler.add = found.append  # type: ignore[method-assign, assignment]
        async with running(api):
            for each in workflows:
                await api.add(kinds.WORKFLOW, each)

    alone(main)
    return found


def test_workflows_that_wait_for_no_containers_are_not_looked_at() -> None:
    assert woken(raw_workflow(BARE, state="PostRun")) == [KEY]
    assert woken(raw_workflow(BARE, state="PostRun", ready=True)) == []
    assert woken(raw_workflow(BARE, state="PreRun")) == []
    assert woken(raw_workflow(JOBDW, state="PostRun")) == []


def test_what_is_gone_or_not_there_yet_is_not_asked_for() -> None:
    wf = raw_workflow(BARE, state="PostRun")
    auth = "#DW jobdw type=gfs2 capacity=1GiB name=foo requires=user-container-auth"
    copy = {**PROFILE, "metadata": meta("wf-0")}
    broken = {**copy, "data": {**PROFILE["data"], "numPorts": "many"}}
    manager = {
        "metadata": meta(ports.MANAGER_KEY.name, ports.MANAGER_KEY.namespace),
        "spec": {"systemConfiguration": {"name": "default", "namespace": "default"}},
        "status": {"status": "SystemConfigurationNotFound"},
    }
    for there in (
        (),
        ((kinds.WORKFLOW, wf),),
        ((kinds.WORKFLOW, raw_workflow(auth, state="PostRun")),),
        ((kinds.WORKFLOW, wf), (kinds.CONTAINER_PROFILE, copy)),
        ((kinds.WORKFLOW, wf), (kinds.PORT_MANAGER, manager)),
        ((kinds.WORKFLOW, wf), (kinds.PORT_MANAGER, manager), (kinds.CONTAINER_PROFILE, copy)),
        ((kinds.WORKFLOW, wf), (kinds.PORT_MANAGER, manager), (kinds.CONTAINER_PROFILE, broken)),
    ):
        alone(partial(_asks_none, there))


async def _asks_none(there: Sequence[tuple[Kind, Any]], api: Api) -> None:
    asked = Asked()
    controller = ShutdownController(api, api.informers, asked)
    async with running(api):
        for kind, obj in there:
            await api.add(kind, obj)
        assert await controller.reconcile(KEY) is None
    assert asked.seen == []
    assert api.asked == []


# Over HTTPS


@asynccontextmanager
async def container(
    tmp_path: Path,
    said: list[Any],
    answer: Callable[[web.Request], Awaitable[web.Response]] | None = None,
) -> AsyncIterator[tuple[int, str]]:
    """Be a container that is asked; give its port, and the certificate that vouches for it."""

    async def redirect(request: web.Request) -> web.Response:
        said.append((request.path, await request.text(), dict(request.headers)))
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer or redirect)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context: ssl.SSLContext = tls.server_context(tmp_path)
        await web.SockSite(runner, listener, ssl_context=context).start()
        yield listener.getsockname()[1], tls.authority(tmp_path).decode()
        await runner.cleanup()


def ask(port: int, rabbit: str = "localhost") -> ShutdownRequest:
    return ShutdownRequest(rabbit=rabbit, address="127.0.0.1", port=port)


def test_a_container_is_asked_once_with_the_token_and_its_answer_is_not_followed(
    tmp_path: Path,
) -> None:
    said: list[Any] = []

    async def main() -> None:
        async with container(tmp_path, said) as (port, authority):
            await HttpsShutdownClient(seconds=30).request_shutdowns([ask(port)], authority, "a.b.c")

    asyncio.run(main())
    [(path, body, headers)] = said
    assert (path, json.loads(body)) == ("/shutdown", {"message": "shutdown"})
    assert headers["Authorization"] == "Bearer a.b.c"
    assert headers["X-Auth-Type"] == "XOAUTH2"


def test_a_certificate_vouches_for_itself(tmp_path: Path) -> None:
    said: list[Any] = []

    async def main() -> None:
        async with container(tmp_path, said) as (port, _):
            own = (tmp_path / "server.crt").read_text()
            await HttpsShutdownClient(seconds=30).request_shutdowns(
                [ask(port), ask(port)], own, None
            )

    asyncio.run(main())
    assert len(said) == 2


def test_no_token_is_told_to_what_no_certificate_vouches_for(tmp_path: Path) -> None:
    said: list[Any] = []

    async def main() -> None:
        async with container(tmp_path / "one", said) as (port, authority):
            tls.server_context(tmp_path / "other")
            other = tls.authority(tmp_path / "other").decode()
            asking = HttpsShutdownClient(seconds=30)
            await asking.request_shutdowns([ask(port)], other, "a.b.c")
            await asking.request_shutdowns([ask(port, rabbit="r0")], authority, "a.b.c")
            await asking.request_shutdowns([ask(port)], "no certificate", "a.b.c")

    asyncio.run(main())
    assert said == []


def test_no_more_are_asked_at_once_than_a_workflow_may(tmp_path: Path) -> None:
    async def main() -> None:
        now, most = 0, 0

        async def silent(*_: Any) -> None:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            tasks.add(len(asyncio.all_tasks()))
            await asyncio.sleep(0)
            now -= 1

        tasks: set[int] = set()
        asking = HttpsShutdownClient(max_concurrent=2)
        asking._post = silent  # type: ignore[method-assign, assignment]
        tls.server_context(tmp_path)
        await asking.request_shutdowns([ask(1)] * 50, tls.authority(tmp_path).decode(), None)
        assert most == 2
        assert max(tasks) == 3

    asyncio.run(main())


def test_containers_are_asked_beside_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        both = asyncio.Barrier(2)

        async def answer(_: web.Request) -> web.Response:
            await both.wait()
            return web.Response()

        async with container(tmp_path, [], answer) as (port, authority):
            await HttpsShutdownClient(seconds=30).request_shutdowns(
                [ask(port)] * 2, authority, None
            )
        assert both.n_waiting == 0

    asyncio.run(main())


def test_no_connection_is_kept_open_for_another_request(tmp_path: Path) -> None:
    peers: list[Any] = []

    async def main() -> None:
        async def answer(request: web.Request) -> web.Response:
            assert request.transport is not None
            peers.append(request.transport.get_extra_info("peername"))
            return web.Response()

        async with container(tmp_path, [], answer) as (port, authority):
            await HttpsShutdownClient(seconds=30, max_concurrent=1).request_shutdowns(
                [ask(port)] * 3, authority, None
            )

    asyncio.run(main())
    assert len({*peers}) == 3


def test_one_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            tls.server_context(tmp_path)
            authority = tls.authority(tmp_path).decode()
            await HttpsShutdownClient(seconds=0.05).request_shutdowns(
                [ask(port)] * 3, authority, None
            )

    asyncio.run(main())
