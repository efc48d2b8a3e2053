"""`pods/NAME/log`: what containers have printed, over HTTPS and by kubectl."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.journal.running import really
from tests.kube.clusters import TOKEN, beside, embedded, served, wanting
from tests.kube.test_kubectl import KUBECTLS
from tests.rpc.services import eventually
from warren.base.clock import SystemClock
from warren.base.objects import Change, Key, Object, Remove
from warren.dws.kinds import POD
from warren.kube import http
from warren.kube.client import LogReader, NotFound, Refused, Unavailable
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.local import LocalClient
from warren.kube.server.logs import LogStream
from warren.kube.server.rest import podlogs
from warren.kube.server.store import Store

PODS = "/api/v1/namespaces/default/pods"


class Printed:
    """A `LogStream` in memory."""

    def __init__(self, pieces: list[bytes], lines: int | None) -> None:
        self._pieces = pieces
        self._at = 0
        self.closed = False
        if lines is not None:
            whole = b"".join(pieces).splitlines(keepends=True)
            self._pieces[:] = whole
            self._at = max(0, len(whole) - lines)

    async def read(self) -> bytes:
        assert not self.closed
        if self._at == len(self._pieces):
            return b""
        self._at += 1
        if self._pieces[self._at - 1] == b"broken":
            raise Unavailable("the disk is broken")
        return self._pieces[self._at - 1]

    def close(self) -> None:
        self.closed = True


class Machine:
    """`PodLogSource` in memory: what containers have printed, by pod and container."""

    def __init__(self) -> None:
        self.printed: dict[tuple[str, str], list[bytes]] = {}
        self.opened: list[Printed] = []

    def open(self, pod: Object, container: str, lines: int | None) -> LogStream:
        name = pod["metadata"]["name"]
        if (name, container) not in self.printed:
            raise NotFound(f"nothing is here of what {name} has printed")
        self.opened.append(Printed(self.printed[name, container], lines))
        return self.opened[-1]


class Caller:
    def __init__(self, session: aiohttp.ClientSession, url: str, store: Store) -> None:
        self.session = session
        self.url = url
        self.store = store
        self.machine = Machine()

    async def ask(self, query: str = "", name: str = "p", method: str = "GET") -> tuple[int, str]:
        url = f"{self.url}{PODS}/{name}/log?{query}"
        async with self.session.request(method, url) as response:
            return response.status, (await response.read()).decode()

    async def fails(self, query: str = "", name: str = "p") -> tuple[int, str, str]:
        code, answer = await self.ask(query, name)
        status = orjson.loads(answer)
        assert status["code"] == code
        return code, status["reason"], status["message"]

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[aiohttp.StreamReader]:
        async with asyncio.timeout(60):
            url = f"{self.url}{PODS}/p/log?follow=true"
            async with self.session.get(url) as response:
                assert response.status == 200
                yield response.content

    async def pod(self, *containers: str, init: tuple[str, ...] = (), node: str = "r") -> None:
        named = {"containers": [{"name": each} for each in containers]}
        if init:
            named["initContainers"] = [{"name": each} for each in init]
        spec = {**named, **({"nodeName": node} if node else {})}
        await self.store.create(POD, {"metadata": {"name": "p", "namespace": "default"},
                                      "spec": spec})  # fmt: skip

    async def status(self, phase: str, **states: Object) -> None:
        found = [{"name": name, "state": state} for name, state in states.items()]
        status = {"phase": phase, "containerStatuses": found}
        key = Key("default", "p")
        await self.store.patch(Change(kind=POD, key=key, patch={"status": status}, status=True))

    async def running(self, *pieces: bytes) -> list[bytes]:
        """Have one pod with one container that prints; return what it has printed."""
        await self.pod("app")
        await self.status("Running", app={"running": {}})
        self.machine.printed["p", "app"] = [*pieces]
        return self.machine.printed["p", "app"]


Story = Callable[..., Coroutine[Any, Any, None]]


def told_to_server(story: Story) -> Callable[..., None]:
    async def life(pki: Path, **others: Any) -> None:
        machine = Machine()
        async with (
            embedded(clock=SystemClock()) as store,
            served(store, pki, logs=machine) as access,
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {TOKEN}"},
                connector=aiohttp.TCPConnector(ssl=access.tls()),
            ) as session,
        ):
            caller = Caller(session, access.server, store)
            caller.machine = machine
            await story(caller, **others)
            # A client that has gone is noticed a moment later.
            await eventually(lambda: all(each.closed for each in machine.opened))

    return wanting(story, "pki")(really(life))


@told_to_server
async def test_what_a_container_has_printed_is_told(caller: Caller) -> None:
    await caller.running(b"one\n", b"two\n")
    assert await caller.ask() == (200, "one\ntwo\n")
    assert await caller.ask("container=app") == (200, "one\ntwo\n")


@told_to_server
async def test_a_client_bounds_what_it_is_told(caller: Caller) -> None:
    await caller.running(b"one\n", b"two\n")
    assert await caller.ask("tailLines=1") == (200, "two\n")
    assert await caller.ask("tailLines=0") == (200, "")
    assert await caller.ask("limitBytes=5") == (200, "one\nt")
    assert await caller.ask("limitBytes=4&follow=true") == (200, "one\n")
    assert (await caller.fails("limitBytes=0"))[:2] == (422, "Invalid")
    assert (await caller.fails("tailLines=-1"))[:2] == (400, "BadRequest")


@told_to_server
async def test_a_client_follows_until_the_container_has_ended(caller: Caller) -> None:
    printed = await caller.running(b"one\n")
    async with caller.follow() as told:
        assert await told.readline() == b"one\n"
        printed.append(b"two\n")
        assert await told.readline() == b"two\n"
        printed.append(b"last\n")
        await caller.status("Running", app={"terminated": {"exitCode": 0}})
        assert await told.read() == b"last\n"


@told_to_server
async def test_a_client_follows_until_the_pod_is_gone(caller: Caller) -> None:
    await caller.running(b"one\n")
    async with caller.follow() as told:
        assert await told.readline() == b"one\n"
        await caller.store.delete(Remove(kind=POD, key=Key("default", "p")))
        await caller.pod("app")  # its namesake prints elsewhere
        await caller.status("Running", app={"running": {}})
        assert await told.read() == b""


@told_to_server
async def test_a_log_is_left_when_its_follower_has_gone(caller: Caller) -> None:
    await caller.running(b"one\n")
    async with caller.follow() as told:
        assert await told.readline() == b"one\n"
    async with asyncio.timeout(60):
        while not caller.machine.opened[0].closed:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)


@told_to_server
async def test_only_so_many_clients_follow_at_one_time(caller: Caller) -> None:
    await caller.running(b"one\n")
    async with AsyncExitStack() as following:
        for _ in range(podlogs.MAX_FOLLOWERS):
            told = await following.enter_async_context(caller.follow())
            assert await told.readline() == b"one\n"
        code, reason, message = await caller.fails("follow=true")
        assert (code, reason) == (429, "TooManyRequests")
        assert message.startswith(f"{podlogs.MAX_FOLLOWERS} clients follow logs already")
        assert await caller.ask() == (200, "one\n")
        await caller.status("Running", app={"terminated": {"exitCode": 0}})
        assert await told.read() == b""
    assert await caller.ask("follow=true") == (200, "one\n")


@told_to_server
async def test_a_log_that_breaks_off_has_no_end_that_looks_like_one(caller: Caller) -> None:
    await caller.running(b"one\n", b"broken")
    with pytest.raises(aiohttp.ClientError):
        await caller.ask()
    caller.machine.printed["p", "app"][:] = [b"broken"]
    assert (await caller.fails())[:2] == (503, "ServiceUnavailable")


@told_to_server
async def test_the_container_is_named_where_there_are_several(caller: Caller) -> None:
    await caller.pod("app", "other", init=("first",))
    await caller.status("Running", app={"running": {}}, other={"running": {}})
    words = (
        "a container name must be specified for pod p, choose one of: [app other] "
        "or one of the init containers: [first]"
    )
    assert await caller.fails() == (400, "BadRequest", words)
    words = "container nosuch is not valid for pod p"
    assert await caller.fails("container=nosuch") == (400, "BadRequest", words)
    caller.machine.printed["p", "other"] = [b"it\n"]
    assert await caller.ask("container=other") == (200, "it\n")


@told_to_server
async def test_a_container_that_has_not_begun_has_no_log_yet(caller: Caller) -> None:
    await caller.pod("app", node="")
    words = "pod p does not have a host assigned"
    assert await caller.fails() == (400, "BadRequest", words)
    key = Key("default", "p")
    await caller.store.patch(Change(kind=POD, key=key, patch={"spec": {"nodeName": "r"}}))
    words = 'container "app" in pod "p" is waiting to start: '
    assert await caller.fails() == (400, "BadRequest", f"{words}ContainerCreating")
    await caller.status("Pending", app={"waiting": {"reason": "ErrImagePull"}})
    assert await caller.fails("follow=true") == (400, "BadRequest", f"{words}ErrImagePull")


@told_to_server
async def test_what_cannot_be_had_of_a_log_is_refused_and_not_left_out(caller: Caller) -> None:
    await caller.running(b"one\n")
    for query in ("sinceSeconds=5", "sinceTime=2026-01-01T00:00:00Z", "timestamps=true"):
        code, reason, message = await caller.fails(query)
        assert (code, reason) == (400, "BadRequest")
        assert "when a line was printed is not kept here" in message
    assert (await caller.fails("stream=Stderr"))[0] == 400
    words = 'previous terminated container "app" in pod "p" not found'
    assert await caller.fails("previous=true") == (400, "BadRequest", words)
    assert (await caller.fails(name="nosuch"))[:2] == (404, "NotFound")
    caller.machine.printed.clear()
    assert (await caller.fails())[:2] == (404, "NotFound")
    assert (await caller.ask(method="PATCH"))[0] == 405
    async with caller.session.get(f"{caller.url}/api/v1/namespaces/default/secrets/s/log") as found:
        assert found.status == 404


@told_to_server
async def test_logs_are_found_by_discovery(caller: Caller) -> None:
    async with caller.session.get(f"{caller.url}/api/v1") as response:
        found = orjson.loads(await response.read())["resources"]
    assert [each["verbs"] for each in found if each["name"] == "pods/log"] == [["get"]]


# Our own clients


@pytest.mark.parametrize("over", ["local", "https"])
def test_our_clients_read_the_last_lines_of_a_container(over: str, pki: Path) -> None:
    @asynccontextmanager
    async def client(caller: Caller, access: ClusterAccess) -> AsyncIterator[LogReader]:
        if over == "local":
            yield LocalClient(caller.store, caller.machine)
        else:
            async with http.connect(access) as found:
                yield found

    async def life() -> None:
        async with (
            embedded(clock=SystemClock()) as store,
            served(store, pki, logs=(machine := Machine())) as access,
            aiohttp.ClientSession() as session,
        ):
            caller = Caller(session, access.server, store)
            caller.machine = machine
            key = Key("default", "p")
            async with client(caller, access) as reader:

                async def read(container: str, lines: int) -> bytes:
                    return b"".join([each async for each in reader.log(key, container, lines)])

                with pytest.raises(NotFound):
                    await read("app", 5)
                await caller.pod("app")
                with pytest.raises(Refused, match="is waiting to start"):
                    await read("app", 5)
                await caller.status("Running", app={"running": {}})
                with pytest.raises(Refused, match="container other is not valid for pod p"):
                    await read("other", 5)
                with pytest.raises(NotFound, match="nothing is here"):
                    await read("app", 5)
                machine.printed["p", "app"] = [b"one\n", b"two\n", b"three\n"]
                assert await read("app", 2) == b"two\nthree\n"
                assert await read("app", 9) == b"one\ntwo\nthree\n"
                machine.printed["p", "app"] = [b"broken"]
                with pytest.raises(Unavailable):
                    await read("app", 9)
            # A client that has gone is noticed a moment later.
            await eventually(lambda: all(each.closed for each in machine.opened))

    really(life)()


@pytest.mark.parametrize("program", KUBECTLS)
def test_a_user_reads_and_follows_logs_with_kubectl(
    program: str, pki: Path, tmp_path: Path
) -> None:
    machine = Machine()
    with beside(pki, tmp_path, logs=machine) as config:

        def started(*words: str) -> "subprocess.Popen[str]":
            return subprocess.Popen(
                [program, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": os.environ["PATH"]},
            )

        def run(*words: str) -> str:
            return started(*words).communicate(timeout=120)[0]

        containers = [{"name": "app", "image": "i"}, {"name": "other", "image": "i"}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"of": "it"}},
            "spec": {"nodeName": "r", "containers": containers},
        }
        (tmp_path / "pod.json").write_bytes(orjson.dumps(pod))
        run("create", "-f", str(tmp_path / "pod.json"))
        assert "is waiting to start: ContainerCreating" in run("logs", "p")

        def tell(state: Object) -> None:
            states = [{"name": each["name"], "state": state} for each in containers]
            status = {"status": {"phase": "Running", "containerStatuses": states}}
            run("patch", "pod", "p", "--subresource=status", "-p", orjson.dumps(status).decode())

        tell({"running": {}})
        machine.printed = {("p", "app"): [b"one\n", b"two\n"], ("p", "other"): [b"it\n"]}
        said = run("logs", "p")
        assert said.startswith("Defaulted container")
        assert said.endswith("one\ntwo\n")
        assert run("logs", "p", "-c", "other") == "it\n"
        assert run("logs", "p", "-c", "app", "--tail=1") == "two\n"
        assert "[pod/p/other] it\n" in run("logs", "-l", "of=it", "--all-containers", "--prefix")
        assert "when a line was printed is not kept" in run("logs", "p", "-c", "app", "--since=5s")
        following = started("logs", "-f", "p", "-c", "other")
        assert following.stdout is not None
        assert following.stdout.readline() == "it\n"
        machine.printed["p", "other"].append(b"more\n")
        assert following.stdout.readline() == "more\n"
        tell({"terminated": {"exitCode": 0}})
        assert following.communicate(timeout=120)[0] == ""
        assert following.returncode == 0
