"""The HTTP face of copies that running jobs ask for, over a socket: methods, words and bounds."""

import asyncio
import base64
import http.client
import json
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.controllers.alone import Api
from tests.controllers.test_offload import HEADER, end, fill
from tests.dws.test_offload import BODY
from tests.kube.clusters import alongside, stored
from warren.controllers.offload import Offload
from warren.daemons import offload
from warren.daemons.offloadserver import OffloadServer
from warren.daemons.statedir import StateDir
from warren.dws import kinds
from warren.kube import serving
from warren.kube.client import Refused, Unavailable
from warren.kube.server.access import tls

OWN = {"Authorization": HEADER, "Accepts-version": "1.0"}
SENT = json.dumps(BODY)

Answer = tuple[int, str]


class Client:
    """An application, which asks in a thread."""

    def __init__(self, port: int, api: Api) -> None:
        self.port = port
        self.api = api

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return await asyncio.to_thread(self._asked, method, path, body, {**OWN, **headers})

    def _asked(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    async def copy(self) -> str:
        status, text = await self.ask("POST", "/trial", SENT)
        assert status == 200
        found = re.fullmatch(r"name=(r0--nnf-copy-offload-node-[0-9a-f-]+)\n", text)
        assert found is not None
        return found[1]


def served(story: Callable[[Client], Awaitable[None]], seconds: float = 30.0) -> None:
    """Tell a story of an application and the service, on a socket of loopback."""

    async def main() -> None:
        async with stored() as store:
            api = Api(store, ())
            await fill(api)
            server = OffloadServer(Offload(api, api.informers), seconds)
            listener = socket.create_server(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            async with (
                alongside(api.informers.run()),
                alongside(serving.serve(server.app(), listener)),
            ):
                await story(Client(port, api))

    asyncio.run(main())


def test_every_request_of_the_library_is_answered_as_it_expects() -> None:
    async def story(client: Client) -> None:
        assert await client.ask("GET", "/hello") == (200, "hello back at ya\n")
        assert await client.ask("GET", "/list") == (200, "")
        name = await client.copy()
        assert await client.ask("GET", "/list") == (200, f"{name}\n")
        pending = '{"state":"pending","status":"unknown status"}\n'
        assert await client.ask("GET", f"/status/{name}?maxWaitSecs=0") == (200, pending)
        busy = (409, "unable to shutdown server: requests in progress\n")
        assert await client.ask("POST", "/shutdown", '{"message": "shutdown"}') == busy
        assert await client.ask("DELETE", f"/cancel/{name}") == (200, "")
        await end(client.api, name, "Cancelled")
        status, text = await client.ask("GET", f"/status/{name}?maxWaitSecs=-1")
        told = json.loads(text)
        assert (status, told["state"], told["status"]) == (200, "completed", "cancelled")
        assert await client.ask("DELETE", f"/cancel/{name}") == (200, "")
        assert await client.ask("POST", "/shutdown") == (200, "nothing is left to be done\n")
        assert await client.ask("GET", "/hello") == (200, "hello back at ya\n")

    served(story)


NAME = "r0--nnf-copy-offload-node-0"


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("POST", "/hello", (501, "method not supported\n")),
        ("GET", "/trial", (501, "method not supported\n")),
        ("PUT", "/trial", (501, "method not supported\n")),
        ("POST", "/list", (501, "method not supported\n")),
        ("POST", f"/status/{NAME}", (501, "method not supported\n")),
        ("GET", f"/cancel/{NAME}", (501, "method not supported\n")),
        ("GET", "/shutdown", (501, "method not supported\n")),
        ("GET", "/", (404, "404 page not found\n")),
        ("GET", "/hello/more", (404, "404 page not found\n")),
        ("GET", f"/status/{NAME}?maxWaitSecs=0", (404, "request not found\n")),
        ("GET", "/status/?maxWaitSecs=0", (404, "request not found\n")),
        ("GET", "/status/..%2f..%2fx?maxWaitSecs=0", (404, "request not found\n")),
        ("DELETE", f"/cancel/{NAME}", (404, "unable to cancel request: request not found\n")),
        ("GET", f"/status/{NAME}", (400, "unable to parse maxWaitSecs: '' is no number\n")),
        ("GET", f"/status/{NAME}?maxWaitSecs=1.5",
         (400, "unable to parse maxWaitSecs: '1.5' is no number\n")),
        ("GET", f"/status/{NAME}?maxWaitSecs=--1",
         (400, "unable to parse maxWaitSecs: '--1' is no number\n")),
        ("GET", f"/status/{NAME}?maxWaitSecs=1&extra=1",
         (400, "unexpected query parameters: extra\n")),
    ],
)  # fmt: skip
def test_what_is_no_such_request_is_told_so(method: str, path: str, answer: Answer) -> None:
    async def story(client: Client) -> None:
        assert await client.ask(method, path) == answer

    served(story)


@pytest.mark.parametrize(
    ("path", "authorization", "closes"),
    [("/hello", HEADER, False), ("/hello", "", True), ("/x", "", True), ("/trial", "", True)],
)
def test_only_who_has_a_token_keeps_a_connection(
    path: str, authorization: str, closes: bool
) -> None:
    async def story(client: Client) -> None:
        def asked() -> bool:
            with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)) as own:
                own.request("GET", path, headers={**OWN, "Authorization": authorization})
                return own.getresponse().will_close

        assert await asyncio.to_thread(asked) is closes

    served(story)


def test_a_number_of_seconds_is_no_more_than_it_takes() -> None:
    async def story(client: Client) -> None:
        name = await client.copy()
        waiting = asyncio.ensure_future(
            client.ask("GET", f"/status/{name}?maxWaitSecs={'9' * 4000}")
        )
        await asyncio.sleep(0.2)
        await end(client.api, name)
        assert (await waiting)[0] == 200

    served(story)


def test_requests_without_a_token_or_of_another_version_are_refused() -> None:
    async def story(client: Client) -> None:
        unauthorized = (401, "unauthorized\n")
        for path in ("/hello", "/list", f"/status/{NAME}?maxWaitSecs=0"):
            assert await client.ask("GET", path, Authorization="") == unauthorized
            assert await client.ask("GET", path, Authorization=HEADER[:-1]) == unauthorized
        assert await client.ask("POST", "/trial", SENT, Authorization="x") == unauthorized
        assert await client.ask("DELETE", f"/cancel/{NAME}", Authorization="x") == unauthorized
        deep = base64.urlsafe_b64encode(b'{"x":' + b"[" * 1400).rstrip(b"=").decode()
        assert (
            await client.ask("GET", "/list", Authorization=f"Bearer {deep}.e30.AA") == unauthorized
        )
        for version in ("", "2.0", "1.0, 2.0"):
            other = await client.ask("GET", "/hello", **{"Accepts-version": version})
            assert other == (406, "Valid versions: 1.0\n")
        assert client.api.keys(kinds.NNF_DATA_MOVEMENT) == []

    served(story)


def test_a_bad_request_writes_nothing_and_is_told_why() -> None:
    async def story(client: Client) -> None:
        missing = await client.ask("POST", "/trial", '{"unknown": 1}')
        assert missing == (400, "compute name must be supplied\n")
        status, words = await client.ask(
            "POST", "/trial", json.dumps({**BODY, "sourcePath": "/etc/shadow"})
        )
        assert status == 403
        assert words.startswith("'/etc/shadow' is neither in storage")
        for bad in ('{"x":' + "[" * 10000, json.dumps({**BODY, "slots": 10**23})):
            status, _ = await client.ask("POST", "/trial", bad)
            assert status == 400
        large = await client.ask("POST", "/trial", SENT + " " * 16384)
        assert large == (413, "a request has 16384 bytes at most\n")
        assert client.api.keys(kinds.NNF_DATA_MOVEMENT) == []

    served(story)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def story(client: Client) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        head = "".join(f"{name}: {value}\r\n" for name, value in OWN.items())
        writer.write(
            f"POST /trial HTTP/1.1\r\nHost: x\r\n{head}Content-Length: 9\r\n\r\n{{".encode()
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()

    served(story, seconds=0.05)


def test_what_the_api_refuses_or_does_not_answer_is_told_in_words() -> None:
    async def story(client: Client) -> None:
        client.api.refusals["create", kinds.NNF_DATA_MOVEMENT] = Unavailable("it is away")
        away = (503, "the cluster cannot answer now: it is away\n")
        assert await client.ask("POST", "/trial", SENT) == away
        client.api.refusals["create", kinds.NNF_DATA_MOVEMENT] = Refused("a policy forbids it")
        assert await client.ask("POST", "/trial", SENT) == (500, "a policy forbids it\n")
        client.api.refusals["get", kinds.WORKFLOW] = Unavailable("it is away")
        assert await client.ask("GET", "/hello") == away
        await client.copy()

    served(story)


def test_on_one_machine_it_shows_a_certificate_and_keeps_its_port(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    state.prepare()
    tls.server_context(state.pki)
    first = offload.open_endpoint(state)
    with closing(first.listener):
        assert state.offload_certificate_file.stat().st_mode & 0o777 == 0o644
        assert first.service.certificate == str(state.offload_certificate_file)
        context = ssl.create_default_context(cafile=first.service.certificate)
        context.minimum_version = ssl.TLSVersion.TLSv1_3

        def shaken() -> str | None:
            address = (first.service.host, first.service.port)
            with (
                socket.create_connection(address, timeout=60) as plain,
                context.wrap_socket(plain, server_hostname=first.service.host) as secured,
            ):
                return secured.version()

        async def main() -> str | None:
            async with alongside(serving.serve(web.Application(), first.listener, first.tls)):
                return await asyncio.to_thread(shaken)

        assert asyncio.run(main()) == "TLSv1.3"
    again = offload.open_endpoint(state)
    with closing(again.listener):
        assert again.service == first.service
        with closing(offload.open_endpoint(state).listener) as other:  # it is taken by now
            assert other.getsockname()[1] != again.service.port


def test_a_node_without_a_mount_namespace_has_its_paths_understood(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    state.prepare()
    tls.server_context(state.pki)
    endpoint = offload.open_endpoint(state)
    with closing(endpoint.listener):
        own = f"{state.nodes}/compute-00/root{state.mounts}/uid-0/a"
        assert endpoint.api_path("compute-00", own) == f"{state.mounts}/uid-0/a"
        assert endpoint.api_path("compute-01", own) == own
        assert endpoint.api_path("compute-00", "/lus/a") == "/lus/a"
