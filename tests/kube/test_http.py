"""The HTTPS client where the server is not as one wishes: away, foreign, cut off, restarted."""

import asyncio
import contextlib
import itertools
import json
import random
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web

from tests.harness.virtual import EPOCH, VirtualClock
from tests.journal.running import read, really, virtually
from tests.kube.clusters import (
    HOST,
    TOKEN,
    alongside,
    change,
    eventually,
    key,
    remove,
    served,
    stored,
    taken,
    told,
    workflow,
)
from warren import __version__
from warren.base.clock import SystemClock
from warren.base.objects import Key, key_of
from warren.dws.kinds import WORKFLOW
from warren.journal import MemoryJournal
from warren.kube import kubeconfig
from warren.kube.client import (
    AlreadyExists,
    Conflict,
    Expired,
    Invalid,
    NotFound,
    Refused,
    Unavailable,
    WatchEvent,
)
from warren.kube.credentials import Identity
from warren.kube.http import HttpClient, connect
from warren.kube.informer import Informer
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.retries import Failure, retry_after, retry_delay
from warren.kube.server.access import tls
from warren.kube.server.builtin import NAMESPACE
from warren.kube.transport import Transport

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ROOT = f"/apis/{WORKFLOW.group}/{WORKFLOW.version}"


class Least(random.Random):
    """Chance that always takes the least: no client waits for longer than is asked of it."""

    def uniform(self, a: float, b: float) -> float:
        return a


class Most(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


class Api:
    """A server that answers everything as it is told, and a client of it.

    They meet on a Unix socket, which delivers at once: this works in virtual time too.
    """

    def __init__(self, directory: str, handler: Handler) -> None:
        self._path = f"{directory}/api"

        async def handle(request: web.Request) -> web.StreamResponse:
            return await handler(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)

    async def start(self) -> None:
        await self._runner.setup()
        await web.UnixSite(self._runner, self._path).start()

    def connections(self) -> int:
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    @asynccontextmanager
    async def client(
        self, access: ClusterAccess, chance: random.Random
    ) -> AsyncIterator[HttpClient]:
        connector = aiohttp.UnixConnector(self._path, limit=0)
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                transport = Transport(session, access, VirtualClock(), rng=chance)
                yield HttpClient(transport, rng=chance)
        finally:
            await self._runner.cleanup()


@asynccontextmanager
async def answered(
    handler: Handler, chance: random.Random | None = None, **access: Any
) -> AsyncIterator[HttpClient]:
    """A client of a server that answers everything as it is told."""
    with tempfile.TemporaryDirectory() as directory:
        api = Api(directory, handler)
        await api.start()
        way = ClusterAccess(server="http://api", **access)
        async with api.client(way, chance or Least()) as client:
            yield client


@asynccontextmanager
async def listening(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that answers everything as it is told, on a port of its own; return where."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    listener = socket.create_server((HOST, 0))
    try:
        await web.SockSite(runner, listener, ssl_context=context).start()
        scheme = "http" if context is None else "https"
        yield f"{scheme}://{HOST}:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()


def in_turn(*answers: int | web.Response) -> tuple[Handler, list[web.Request]]:
    """Answer with these, the last one again and again; a 0 hangs up. Keep what was asked."""
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        now = answers[min(len(asked), len(answers) - 1)]
        asked.append(request)
        if now == 0:
            assert request.transport is not None
            request.transport.close()
        if isinstance(now, int):
            return web.json_response(workflow() if now == 200 else {}, status=now or 200)
        return now

    return answer, asked


def telling(*lines: bytes) -> Handler:
    """Answer a watch with these lines, and end it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        return response

    return answer


def line(sort: str = "ADDED", **obj: Any) -> bytes:
    return orjson.dumps({"type": sort, "object": obj or workflow()}) + b"\n"


def passed() -> float:
    return asyncio.get_running_loop().time()


def closed_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


Action = Callable[[HttpClient], Awaitable[Any]]

READS: dict[str, Action] = {
    "get": lambda client: client.get(WORKFLOW, key("w")),
    "list": lambda client: client.list(WORKFLOW),
}
WRITES: dict[str, Action] = {
    "create": lambda client: client.create(WORKFLOW, workflow()),
    "patch": lambda client: client.patch(change(WORKFLOW, workflow(), {})),
    "delete": lambda client: client.delete(remove(WORKFLOW, workflow())),
}
ACTIONS: dict[str, Action] = {
    **READS,
    **WRITES,
    "watch": lambda client: taken(client.watch(WORKFLOW, "1"), 1),
}


# What an answer means


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", Refused),
        (401, "Unauthorized", Refused),
        (403, "Forbidden", Refused),
        (404, "NotFound", NotFound),
        (408, "Timeout", Unavailable),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Unavailable),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
    ],
)
@virtually
async def test_each_failure_is_one_of_the_ports_own(
    status: int, reason: str, expected: type[Exception]
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"reason": reason, "message": "so it is"}, status=status)

    async with answered(answer) as client:
        for action in ACTIONS.values():
            with pytest.raises(expected, match="so it is"):
                await action(client)


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[]", b"\xff"], ids=repr)
@virtually
async def test_a_failure_need_not_come_from_kubernetes(body: bytes) -> None:
    handler, _ = in_turn(502)

    async def answer(request: web.Request) -> web.StreamResponse:
        await handler(request)
        return web.Response(body=body, status=502)

    async with answered(answer) as client:
        for action in ACTIONS.values():
            with pytest.raises(Unavailable, match=r"."):
                await action(client)


@pytest.mark.parametrize("body", [b"", b"<html>Welcome</html>", b"[]"], ids=repr)
@virtually
async def test_a_success_need_not_come_from_kubernetes(body: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async with answered(answer) as client:
        for action in [*READS.values(), *WRITES.values()]:
            with pytest.raises(Unavailable, match="http://api"):
                await action(client)


@virtually
async def test_a_portal_is_not_followed() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("https://login.example")

    async with answered(answer) as client:
        for action in ACTIONS.values():
            with pytest.raises(Refused, match=r"http://api points to https://login.example"):
                await action(client)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"message": "no"}, "no"),
        ({"message": "no", "details": None}, "no"),
        ({"message": "spec.a: Required", "details": {"causes": [{"message": "Required"}]}}, ""),
        (
            {
                "message": "w is invalid.",
                "details": {
                    "causes": [{"field": "spec.a", "message": "Required"}, {"message": "too few"}]
                },
            },
            "w is invalid: spec.a: Required; too few",
        ),
        ({"message": None}, "HTTP status 422"),
        ({"details": {"causes": ["odd"]}}, '{"details": {"causes": ["odd"]}}'),
    ],
)
@virtually
async def test_the_causes_of_a_refusal_are_told_once(told: dict[str, Any], sentence: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(told, status=422)

    async with answered(answer) as client:
        with pytest.raises(Refused) as refused:
            await client.create(WORKFLOW, workflow())
        assert str(refused.value) == (sentence or told["message"])


# What is asked


@virtually
async def test_items_of_a_list_are_told_what_they_are() -> None:
    """A Kubernetes API server says it once for the whole list."""

    async def answer(request: web.Request) -> web.Response:
        items = [{"metadata": {"name": "w", "namespace": "default"}}]
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})

    async with answered(answer) as client:
        listing = await client.list(WORKFLOW)
        assert listing.resource_version == "5"
        [item] = listing.items
        assert (item["apiVersion"], item["kind"]) == (WORKFLOW.api_version, "Workflow")


class Asked:
    """A server that says yes to everything, and remembers what it was."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str, Any]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read() or b"null")
        self.requests.append((request.method, request.path_qs, request.content_type, body))
        if "watch" in request.query:
            return await telling(line())(request)
        return web.json_response({"items": None, "metadata": {"resourceVersion": "1"}})


MERGE, PLAIN = "application/merge-patch+json", "application/json"
BACKGROUND = {"propagationPolicy": "Background"}


@virtually
async def test_requests_are_what_kubernetes_expects() -> None:
    asked = Asked()
    async with answered(asked) as client:
        await client.list(WORKFLOW, "ns", {"a.example/b": "c", "d": "e"})
        await client.get(NAMESPACE, Key("", "rabbit-0"))
        await taken(client.watch(WORKFLOW, "5", "ns"), 1)
        await client.patch(
            change(WORKFLOW, workflow(), {"spec": {}}, resource_version="7", status=True)
        )
        await client.create(WORKFLOW, workflow())
        await client.delete(remove(WORKFLOW, workflow()))
    selector = "labelSelector=a.example/b%3Dc,d%3De"
    watch = "watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=300"
    one = f"{ROOT}/namespaces/default/workflows/w"
    seen = {"spec": {}, "metadata": {"resourceVersion": "7"}}
    made = {**workflow(), "apiVersion": WORKFLOW.api_version, "kind": "Workflow"}
    assert [(method, path) for method, path, _, _ in asked.requests[:3]] == [
        ("GET", f"{ROOT}/namespaces/ns/workflows?{selector}&limit=500"),
        ("GET", "/api/v1/namespaces/rabbit-0"),
        ("GET", f"{ROOT}/namespaces/ns/workflows?{watch}"),
    ]
    assert asked.requests[3:] == [
        ("PATCH", one, MERGE, seen),
        ("POST", f"{ROOT}/namespaces/default/workflows", PLAIN, made),
        ("DELETE", one, PLAIN, BACKGROUND),
    ]


@virtually
async def test_everything_is_asked_for_and_written_in_the_version_that_is_spoken() -> None:
    asked = Asked()
    spoken = f"{WORKFLOW.group}/v1alpha6"
    async with answered(asked) as newer:
        client = newer.with_versions({WORKFLOW.group: "v1alpha6"})
        given = [
            await client.get(WORKFLOW, key("w")),
            await client.create(WORKFLOW, workflow()),
            await client.patch(change(WORKFLOW, workflow(), {"apiVersion": WORKFLOW.api_version})),
            *(event.object for event in await taken(client.watch(WORKFLOW, "1"), 1)),
        ]
        await client.list(WORKFLOW)
        await client.delete(remove(WORKFLOW, workflow()))
        await client.get(NAMESPACE, Key("", "rabbit-0"))
    assert [obj["apiVersion"] for obj in given] == [WORKFLOW.api_version] * 4
    assert all(path.startswith(f"/apis/{spoken}/") for _, path, _, _ in asked.requests[:-1])
    assert asked.requests[-1][1] == "/api/v1/namespaces/rabbit-0"
    written = [
        body["apiVersion"] for method, _, _, body in asked.requests if method in ("POST", "PATCH")
    ]
    assert written == [spoken, spoken]


class Pages:
    """A server of lists in pages, which once forgets what they are pages of."""

    def __init__(self, *, forgets: bool = False) -> None:
        self.forgets = forgets
        self.asked: list[dict[str, str]] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        names, begin = ["a", "b", "c"], int(request.query.get("continue", "0"))
        if begin == 2 and self.forgets:
            return web.json_response({"reason": "Expired"}, status=410)
        end = begin + 1 if "limit" in request.query else len(names)
        metadata = {"resourceVersion": str(7 + begin)}
        if end < len(names):
            metadata["continue"] = str(end)
        items = [workflow(name) for name in names[begin:end]]
        return web.json_response({"metadata": metadata, "items": items})


@virtually
async def test_a_list_is_made_of_its_pages_and_of_the_version_of_the_first() -> None:
    pages = Pages()
    async with answered(pages) as client:
        listing = await client.list(WORKFLOW, labels={"x": "y"})
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b", "c"]
    assert listing.resource_version == "7"
    limit = {"labelSelector": "x=y", "limit": "500"}
    assert pages.asked == [limit, {**limit, "continue": "1"}, {**limit, "continue": "2"}]


@virtually
async def test_a_list_that_is_too_old_for_its_next_page_is_asked_for_as_a_whole() -> None:
    pages = Pages(forgets=True)
    async with answered(pages) as client:
        listing = await client.list(WORKFLOW, labels={"x": "y"})
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b", "c"]
    assert pages.asked[-1] == {"labelSelector": "x=y"}


@really
async def test_a_list_of_many_is_the_same_in_pages(pki: Path) -> None:
    async with (
        stored(clock=SystemClock()) as store,
        served(store, pki) as access,
        connect(access) as client,
    ):
        many = [workflow(f"w-{number:04}") for number in range(501)]
        await asyncio.gather(*(store.create(WORKFLOW, each) for each in many))
        assert (await client.list(WORKFLOW)).items == store.list(WORKFLOW).items


# What is asked again


@pytest.mark.parametrize("status", [0, 429, 500, 502, 503, 504])
@virtually
async def test_a_read_is_tried_again(status: int) -> None:
    handler, asked = in_turn(status, status, 200)
    async with answered(handler) as client:
        assert (await client.get(WORKFLOW, key("w")))["metadata"]["name"] == "w"
        # A connection that broke may be replaced below us as well, by aiohttp.
        assert len(asked) == 3


@pytest.mark.parametrize("status", [429, 503])
@virtually
async def test_a_write_that_was_turned_away_is_tried_again(status: int) -> None:
    for write in WRITES.values():
        handler, asked = in_turn(status, status, 200)
        async with answered(handler) as client:
            await write(client)
        assert len(asked) == 3


@pytest.mark.parametrize("status", [0, 500, 502, 504])
@virtually
async def test_a_write_that_may_have_been_done_is_not_repeated(status: int) -> None:
    for name, write in WRITES.items():
        if name == "delete" and status == 0:
            continue  # aiohttp itself does it again, once: what is gone stays so
        handler, asked = in_turn(status, 200)
        async with answered(handler) as client:
            with pytest.raises(Unavailable):
                await write(client)
        assert len(asked) == 1


@virtually
async def test_what_could_not_be_sent_is_tried_again_until_a_server_is_there() -> None:
    handler, asked = in_turn(200)
    with tempfile.TemporaryDirectory() as directory:
        api = Api(directory, handler)

        async def later() -> None:
            await asyncio.sleep(3)
            await api.start()

        async with (
            api.client(ClusterAccess(server="http://api"), Most()) as client,
            alongside(later()),
        ):
            await client.create(WORKFLOW, workflow())
            assert len(asked) == 1
            assert 3 <= passed() < 10


@virtually
async def test_tries_come_to_an_end() -> None:
    handler, asked = in_turn(500)
    async with answered(handler, Most()) as client:
        with pytest.raises(Unavailable):
            await client.get(WORKFLOW, key("w"))
        assert len(asked) == 6
        assert passed() < 10


@virtually
async def test_a_server_says_when_to_come_again() -> None:
    busy = web.json_response({}, status=429, headers={"Retry-After": "7"})
    date = {"Retry-After": formatdate(EPOCH + 20, usegmt=True)}
    handler, asked = in_turn(busy, web.json_response({}, status=503, headers=date), 200)
    async with answered(handler) as client:
        await client.create(WORKFLOW, workflow())
        assert len(asked) == 3
        assert passed() == pytest.approx(20, abs=0.1)


@virtually
async def test_what_would_be_too_late_is_not_waited_for() -> None:
    handler, asked = in_turn(web.json_response({}, status=429, headers={"Retry-After": "3600"}))
    async with answered(handler) as client:
        with pytest.raises(Unavailable) as away:
            await client.create(WORKFLOW, workflow())
        assert len(asked) == 1
        assert passed() == 0
        assert away.value.delay == 60


@virtually
async def test_a_server_that_says_nothing_is_unavailable() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await web.StreamResponse().prepare(request)
        await asyncio.sleep(3600)
        raise AssertionError

    async with answered(answer) as client:
        with pytest.raises(Unavailable, match="gives no answer in 30 s"):
            await client.get(WORKFLOW, key("w"))
        assert passed() == pytest.approx(30)
        with pytest.raises(Unavailable, match="cut off"):
            await read(client.watch(WORKFLOW, "1"), [])
        assert passed() == pytest.approx(180)


def test_waits_double_up_to_a_limit_and_are_a_random_part_of_that() -> None:
    broken = Failure()
    longest = [retry_delay("GET", broken, tried, Most()) for tried in range(1, 7)]
    assert longest == [0.25, 0.5, 1, 2, 4, None]
    assert [retry_delay("GET", broken, tried, Least()) for tried in range(1, 6)] == [0] * 5
    chance = random.Random(1)
    some = {retry_delay("GET", broken, 4, chance) for _ in range(100)}
    assert len(some) == 100
    assert all(each is not None and 0 <= each <= 2 for each in some)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        (" 0 ", 0),
        ("-1", None),
        ("99999999999999", 60),
        ("soon", None),
        ("٣", None),
        (formatdate(EPOCH + 5, usegmt=True), 5),
        (formatdate(EPOCH + 5), 5),
        (formatdate(EPOCH - 5, usegmt=True), 0),
        (formatdate(EPOCH + 1e6, usegmt=True), 60),
    ],
)
def test_when_to_come_again_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, EPOCH) == seconds


# Many at once


@really
async def test_watches_take_no_connection_from_requests() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(workflow())
        response = await telling(line())(request)
        await asyncio.sleep(3600)
        return response

    async with (
        listening(answer) as url,
        connect(ClusterAccess(server=url)) as client,
        contextlib.AsyncExitStack() as open_ones,
    ):
        for _ in range(101):
            watch = client.watch(WORKFLOW, "1")
            await open_ones.enter_async_context(aclosing(watch))  # type: ignore[type-var]
            await anext(watch)
        await client.get(WORKFLOW, key("w"))


@virtually
async def test_requests_that_are_too_many_wait_for_their_turn() -> None:
    now = most = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1
        return web.json_response(workflow())

    async with answered(answer) as client:
        await asyncio.gather(*(client.get(WORKFLOW, key("w")) for _ in range(150)))
    assert most == 64


# Who we are


class Two:
    """A source that tells one token, and then another."""

    origin = "the file: users/me/exec"
    refresh_seconds = None

    def __init__(self, *tokens: str) -> None:
        self._left = list(tokens)

    def fetch(self) -> Identity:
        token = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return Identity(authorization=f"Bearer {token}")


def knowing(token: str) -> tuple[Handler, list[str]]:
    """Answer everything, but only to who has the token; keep who has asked."""
    heard: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        heard.append(request.headers["Authorization"].removeprefix("Bearer "))
        if heard[-1] != token:
            return web.json_response({"message": "Unauthorized"}, status=401)
        if "watch" in request.query:
            return await telling(line())(request)
        return web.json_response(workflow())

    return answer, heard


@really
async def test_a_token_that_is_refused_is_asked_for_anew_for_reads_writes_and_watches() -> None:
    for action in ACTIONS.values():
        handler, heard = knowing("new")
        async with answered(handler, source=Two("old", "new")) as client:
            await action(client)
            await client.get(WORKFLOW, key("w"))
        assert heard == ["old", "new", "new"]


@really
async def test_a_token_that_is_refused_for_good_is_told_with_where_it_is_from() -> None:
    ways: list[tuple[Callable[[], dict[str, Any]], list[str]]] = [
        (lambda: {"token": "old"}, ["old"]),
        (lambda: {"source": Two("old")}, ["old"]),
        (lambda: {"source": Two("old", "older")}, ["old", "older"]),
    ]
    for action, (way, expected) in itertools.product(ACTIONS.values(), ways):
        handler, heard = knowing("new")
        async with answered(handler, origin="the file: users/me", **way()) as client:
            with pytest.raises(Refused, match=r"^the file: users/me: Unauthorized"):
                await action(client)
        assert heard == expected


@really
async def test_a_program_lets_us_in(pki: Path, tmp_path: Path) -> None:
    async with stored(clock=SystemClock()) as store, served(store, pki) as access:
        version = "client.authentication.k8s.io/v1"
        told = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN}}
        program = tmp_path / "who"
        program.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
        program.chmod(0o755)
        path = tmp_path / "kubeconfig"
        kubeconfig.write(path, access)
        document = yaml.safe_load(path.read_text())
        document["users"][0]["user"] = {"exec": {"apiVersion": version, "command": "./who"}}
        path.write_text(yaml.safe_dump(document))
        async with connect(kubeconfig.load(path)) as client:
            made = await client.create(WORKFLOW, workflow())
            assert await client.get(WORKFLOW, key("w")) == made


@asynccontextmanager
async def seen_through_tls(pki: Path, seen: list[tuple[str, str]]) -> AsyncIterator[ClusterAccess]:
    """A server over HTTPS that keeps whom the certificate names, and which program asks."""

    async def answer(request: web.Request) -> web.StreamResponse:
        certificate = request.get_extra_info("peercert") or {"subject": ((("", "nobody"),),)}
        name = dict(pair for each in certificate["subject"] for pair in each)
        seen.append(([*name.values()][-1], request.headers["User-Agent"]))
        return web.json_response(workflow())

    context = tls.server_context(pki)
    context.verify_mode = ssl.CERT_OPTIONAL
    async with listening(answer, context) as url:
        yield ClusterAccess(server=url, authority=tls.authority(pki))


@really
async def test_a_certificate_lets_us_in_and_the_one_after_it_too(pki: Path) -> None:
    class Certificates:
        origin, refresh_seconds = "files", None
        names = itertools.chain(["one", "two"])

        def fetch(self) -> Identity:
            certificate, key = tls.issue(pki, next(self.names))
            return Identity(certificate=certificate, key=key)

    seen: list[tuple[str, str]] = []
    async with seen_through_tls(pki, seen) as access:
        certificate, private = tls.issue(pki, "agent")
        fixed = replace(access, certificate=certificate, key=private)
        async with connect(fixed, component="agent of rabbit-0") as client:
            await client.get(WORKFLOW, key("w"))
        async with connect(access) as client:
            await client.get(WORKFLOW, key("w"))
        renewed = replace(access, source=Certificates())
        async with connect(renewed) as client:
            await client.get(WORKFLOW, key("w"))
            held = await client._transport._credentials.current()
            await client._transport._credentials.renew(held)
            await client.get(WORKFLOW, key("w"))
    assert [name for name, _ in seen] == ["agent", "nobody", "one", "two"]
    assert seen[0][1] == f"warren/{__version__} (agent of rabbit-0)"


@really
async def test_the_name_that_a_server_must_have_may_be_given(pki: Path) -> None:
    async with seen_through_tls(pki, []) as access:
        async with connect(replace(access, server_name="localhost")) as client:
            await client.get(WORKFLOW, key("w"))
        async with connect(replace(access, server_name="example.org")) as client:
            with pytest.raises(Unavailable, match="certificate"):
                await client.get(WORKFLOW, key("w"))
        async with connect(replace(access, server_name="example.org", insecure=True)) as client:
            await client.get(WORKFLOW, key("w"))


# A server that is not there, or is another


@really
async def test_a_server_that_is_not_there_is_unavailable(pki: Path) -> None:
    tls.server_context(pki)
    url = f"https://{HOST}:{closed_port()}"
    access = ClusterAccess(server=url, authority=tls.authority(pki), token="x")
    async with connect(access, request_timeout=0.1) as client:
        with pytest.raises(Unavailable):
            await client.get(WORKFLOW, key("w"))
        with pytest.raises(Unavailable) as away:
            await taken(client.watch(WORKFLOW, "1"), 1)
    assert "Connect call failed" in str(away.value)
    assert "ssl" not in str(away.value)


@really
async def test_a_server_that_another_authority_vouches_for_is_not_trusted_nor_asked_again(
    pki: Path, tmp_path: Path
) -> None:
    tls.server_context(tmp_path)
    context, greeted = tls.server_context(pki), []
    context.sni_callback = lambda *arguments: greeted.append(arguments)

    async def answer(request: web.Request) -> web.StreamResponse:
        raise AssertionError("nothing is told to a stranger")

    async with listening(answer, context) as url:
        foreign = ClusterAccess(server=url, authority=tls.authority(tmp_path), token=TOKEN)
        async with connect(foreign) as client:
            with pytest.raises(Unavailable, match="certificate"):
                await client.list(WORKFLOW)
    assert len(greeted) == 1


# Watches


@pytest.mark.parametrize("rest", [b"", b'{"type": "MODIF', b"garbage\n"], ids=repr)
@virtually
async def test_a_watch_that_is_cut_off_is_unavailable_after_what_it_told(rest: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(line() + rest)
        assert request.transport is not None
        request.transport.close()
        return response

    async with answered(answer) as client:
        heard: list[WatchEvent] = []
        with pytest.raises(Unavailable):
            await read(client.watch(WORKFLOW, "1"), heard)
        assert [*told(heard)] == [("ADDED", "w")]


@virtually
async def test_a_watch_may_come_in_pieces_and_end() -> None:
    whole = line() + line("BOOKMARK", metadata={"resourceVersion": "9"}) + line("DELETED")
    for size in (1, 7, len(line()), len(whole)):
        pieces = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
        async with answered(telling(*pieces)) as client:
            heard: list[WatchEvent] = []
            await read(client.watch(WORKFLOW, "1"), heard)
        assert [event.type for event in heard] == ["ADDED", "BOOKMARK", "DELETED"]
        assert heard[0].object == {**workflow(), "apiVersion": WORKFLOW.api_version}


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type": "MODIF',
        b"garbage\n",
        b"\n",
        b"7\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": null}\n',
        b'{"type": "ADDED", "object": {}}\n',
        b'{"type": "SHOUTED", "object": {"metadata": {}}}\n',
        b'{"type": "ERROR", "object": null}\n',
        b'{"type": "ERROR", "object": {"code": "odd"}}\n',
    ],
    ids=repr,
)
@virtually
async def test_a_line_that_is_no_event_ends_a_watch(bad: bytes) -> None:
    async with answered(telling(line(), bad, line())) as client:
        heard: list[WatchEvent] = []
        with pytest.raises(Unavailable, match="what is no event"):
            await read(client.watch(WORKFLOW, "1"), heard)
        assert [*told(heard)] == [("ADDED", "w")]


@pytest.mark.parametrize(("code", "expected"), [(410, Expired), (500, Unavailable), (403, Refused)])
@virtually
async def test_an_error_may_come_in_the_middle_of_a_watch(
    code: int, expected: type[Exception]
) -> None:
    error = line("ERROR", code=code, message="so it is")
    async with answered(telling(line(), error)) as client:
        heard: list[WatchEvent] = []
        with pytest.raises(expected, match="so it is"):
            await read(client.watch(WORKFLOW, "1"), heard)
        assert len(heard) == 1


@virtually
async def test_a_line_without_an_end_is_not_kept() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b" " * 2**20)
        return response

    async with answered(answer) as client:
        with pytest.raises(Unavailable, match="a line of more than"):
            await read(client.watch(WORKFLOW, "1"), [])


@virtually
async def test_bookmarks_keep_a_watch_alive() -> None:
    """Kubernetes sends one a minute, and nothing else where nothing happens."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for version in range(5):
            await asyncio.sleep(75)
            await response.write(line("BOOKMARK", metadata={"resourceVersion": str(version)}))
        return response

    async with answered(answer) as client:
        heard: list[WatchEvent] = []
        await read(client.watch(WORKFLOW, "1"), heard)
        assert len(heard) == 5


@virtually
async def test_a_closed_watch_gives_its_connection_back() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = await telling(line())(request)
        await asyncio.sleep(3600)
        return response

    with tempfile.TemporaryDirectory() as directory:
        api = Api(directory, answer)
        await api.start()
        async with api.client(ClusterAccess(server="http://api"), Least()) as client:
            for _ in range(5):
                await taken(client.watch(WORKFLOW, "1"), 1)
            await asyncio.sleep(1)
            assert api.connections() == 0


@really
async def test_an_informer_outlives_a_server_and_learns_what_it_missed(pki: Path) -> None:
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


# A server that has not read its roles yet


@pytest.mark.parametrize("code", [403, 401])
@virtually
async def test_a_server_that_has_just_started_is_asked_until_it_knows_us(code: int) -> None:
    """It refuses lists at first, then a list and its watch once more, and then nothing."""
    asked: list[str] = []
    words = {
        403: 'workflows.dws is forbidden: User "w" cannot list resource "workflows"',
        401: "Unauthorized",
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        watches = request.query.get("watch") == "true"
        asked.append("watch" if watches else "list")
        lists = asked.count("list")
        if lists <= 5 or (watches and lists == 6):
            status = {"kind": "Status", "code": code, "message": words[code]}
            return web.json_response(status, status=code)
        metadata = {"resourceVersion": "7"}
        if not watches:
            return web.json_response({"metadata": metadata, "items": []})
        obj = workflow(metadata={"resourceVersion": "8"})
        return await telling(orjson.dumps({"type": "ADDED", "object": obj}) + b"\n")(request)

    async with answered(answer) as client:
        informer = Informer(client, WORKFLOW, jitter=lambda: 0.0)
        async with alongside(informer.run()):
            await asyncio.sleep(600)
            assert asked[:9] == [*["list"] * 6, "watch", "list", "watch"]
            assert informer.get(key("w")) is not None
