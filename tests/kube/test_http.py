"""The HTTPS client where the server is not as one wishes: away, foreign, cut off, restarted."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from tests.journal.running import really
from tests.kube.clusters import (
    HOST,
    alongside,
    change,
    eventually,
    key,
    remove,
    served,
    stored,
    taken,
    workflow,
)
from warren.base.clock import SystemClock
from warren.base.objects import Key, key_of
from warren.dws.kinds import WORKFLOW
from warren.journal import MemoryJournal
from warren.kube import http
from warren.kube.client import (
    AlreadyExists,
    Conflict,
    Expired,
    NotFound,
    Refused,
    Unavailable,
)
from warren.kube.http import HttpClient, connect
from warren.kube.informer import Informer
from warren.kube.kubeconfig import Access
from warren.kube.server import tls
from warren.kube.server.resources import NAMESPACE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answered(handler: Handler) -> AsyncIterator[HttpClient]:
    """A client of a server that answers everything as it is told."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = socket.create_server((HOST, 0))
    try:
        await web.SockSite(runner, listener).start()
        async with aiohttp.ClientSession() as session:
            yield HttpClient(session, f"http://{HOST}:{listener.getsockname()[1]}")
    finally:
        await runner.cleanup()


def closed_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", Refused),
        (401, "Unauthorized", Refused),
        (403, "Forbidden", Refused),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (422, "Invalid", Refused),
        (429, "TooManyRequests", Unavailable),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
    ],
)
@really
async def test_each_failure_is_one_of_the_ports_own(
    status: int, reason: str, expected: type[Exception]
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"reason": reason, "message": "so it is"}, status=status)

    async with answered(answer) as client:
        for asked in (
            client.get(WORKFLOW, key("w")),
            client.list(WORKFLOW),
            client.create(WORKFLOW, workflow()),
            client.patch(change(WORKFLOW, workflow(), {})),
            client.delete(remove(WORKFLOW, workflow())),
            taken(client.watch(WORKFLOW, "1"), 1),
        ):
            with pytest.raises(expected, match="so it is"):
                await asked


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[]", b"\xff"], ids=repr)
@really
async def test_a_failure_need_not_come_from_kubernetes(body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, status=502)

    async with answered(answer) as client:
        with pytest.raises(Unavailable):
            await client.get(WORKFLOW, key("w"))
        with pytest.raises(Unavailable):
            await taken(client.watch(WORKFLOW, "1"), 1)


@really
async def test_items_of_a_list_are_told_what_they_are() -> None:
    """A Kubernetes API server says it once for the whole list."""

    async def answer(request: web.Request) -> web.Response:
        items = [{"metadata": {"name": "w", "namespace": "default"}}]
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})

    async with answered(answer) as client:
        listing = await client.list(WORKFLOW)
        assert listing.version == "5"
        [item] = listing.items
        assert (item["apiVersion"], item["kind"]) == (WORKFLOW.api_version, "Workflow")


@really
async def test_requests_are_what_kubernetes_expects() -> None:
    asked: list[tuple[str, str, str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = orjson.loads(await request.read() or b"null")
        asked.append((request.method, request.path_qs, request.content_type, body))
        return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})

    root = f"/apis/{WORKFLOW.group}/{WORKFLOW.version}"
    merge, plain = "application/merge-patch+json", "application/json"
    async with answered(answer) as client:
        await client.list(WORKFLOW, "ns", {"a.example/b": "c", "d": "e"})
        await client.get(NAMESPACE, Key("", "rabbit-0"))
        await client.patch(change(WORKFLOW, workflow(), {"spec": {}}, seen="7", status=True))
        await client.create(WORKFLOW, workflow())
        await client.delete(remove(WORKFLOW, workflow()))
    one = f"{root}/namespaces/default/workflows/w"
    seen = {"spec": {}, "metadata": {"resourceVersion": "7"}}
    made = {**workflow(), "apiVersion": WORKFLOW.api_version, "kind": "Workflow"}
    background = {"propagationPolicy": "Background"}
    assert [(method, path) for method, path, _, _ in asked[:2]] == [
        ("GET", f"{root}/namespaces/ns/workflows?labelSelector=a.example/b%3Dc,d%3De"),
        ("GET", "/api/v1/namespaces/rabbit-0"),
    ]
    assert asked[2:] == [
        ("PATCH", one, merge, seen),
        ("POST", f"{root}/namespaces/default/workflows", plain, made),
        ("DELETE", one, plain, background),
    ]


@really
async def test_a_server_that_is_not_there_is_unavailable(pki: Path) -> None:
    tls.ensure(pki)
    url = f"https://{HOST}:{closed_port()}"
    access = Access(server=url, authority=tls.authority(pki), token="x")
    async with connect(access) as client:
        with pytest.raises(Unavailable):
            await client.get(WORKFLOW, key("w"))
        with pytest.raises(Unavailable):
            await taken(client.watch(WORKFLOW, "1"), 1)


@really
async def test_a_server_that_another_authority_vouches_for_is_not_trusted(
    pki: Path, tmp_path: Path
) -> None:
    tls.ensure(tmp_path)
    async with stored(clock=SystemClock()) as store, served(store, pki) as access:
        foreign = Access(
            server=access.server, authority=tls.authority(tmp_path), token=access.token
        )
        async with connect(foreign) as client:
            with pytest.raises(Unavailable, match="certificate"):
                await client.list(WORKFLOW)


@really
async def test_a_server_that_says_nothing_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_SECONDS", 0.1)
    monkeypatch.setattr(http, "_SILENCE", 0.1)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
        await asyncio.sleep(60)
        raise AssertionError

    async with answered(answer) as client:
        with pytest.raises(Unavailable):
            await client.get(WORKFLOW, key("w"))
        with pytest.raises(Unavailable):
            await taken(client.watch(WORKFLOW, "1"), 1)


@pytest.mark.parametrize("rest", [b"", b'{"type": "MODIF', b"garbage\n"], ids=repr)
@really
async def test_a_watch_that_is_cut_off_is_unavailable_after_what_it_told(rest: bytes) -> None:
    event = orjson.dumps({"type": "ADDED", "object": workflow()}) + b"\n"

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(event + rest)
        assert request.transport is not None
        request.transport.close()
        return response

    async with answered(answer) as client:
        watch = client.watch(WORKFLOW, "1")
        assert (await anext(watch)).object == workflow()
        with pytest.raises(Unavailable):
            await anext(watch)


@really
async def test_a_closed_watch_gives_its_connection_back(pki: Path) -> None:
    """More of them, one after another, than there are connections at a time."""
    async with (
        stored(clock=SystemClock()) as store,
        served(store, pki) as access,
        connect(access) as client,
    ):
        made = await client.create(WORKFLOW, workflow())
        since = str(int(made["metadata"]["resourceVersion"]) - 1)
        for _ in range(70):
            await taken(client.watch(WORKFLOW, since), 1)
        assert await client.get(WORKFLOW, key("w")) == made


@really
async def test_an_informer_outlives_a_server_and_learns_what_it_missed(
    pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unavailable, "delay", 0.02)
    monkeypatch.setattr(Expired, "delay", 0.02)
    journal = MemoryJournal()
    heard: list[str] = []
    async with contextlib.AsyncExitStack() as outer:
        async with stored(journal) as store, served(store, pki) as access:
            client = await outer.enter_async_context(connect(access))
            informer = Informer(client, WORKFLOW)
            informer.listen(lambda obj: heard.append(obj["metadata"]["name"]))
            for name in ("stays", "changes", "vanishes"):
                await store.create(WORKFLOW, workflow(name))
            await outer.enter_async_context(alongside(informer.run()))
            await informer.wait_synced()
        del heard[:]
        async with stored(journal) as store:
            await store.delete(remove(WORKFLOW, workflow("vanishes")))
            await store.patch(change(WORKFLOW, workflow("changes"), {"spec": {"jobID": 1}}))
            await store.create(WORKFLOW, workflow("comes"))
            assert len(informer.all()) == 3
            port = int(access.server.rsplit(":", 1)[1])
            async with served(store, pki, port):
                await eventually(lambda: len(heard) == 3)
                assert sorted(heard) == ["changes", "comes", "vanishes"]
                found = {key_of(obj): obj for obj in informer.all()}
                now = {key_of(obj): obj for obj in store.list(WORKFLOW).items}
                assert found == now
                await store.create(WORKFLOW, workflow("later"))
                await eventually(lambda: len(heard) == 4)
