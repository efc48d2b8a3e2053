"""An API server whose disk is full: what it answers, to whom, and when it takes writes again."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.journal.journals import SmallJournal
from tests.kube.clusters import alongside
from warren.base.clock import SystemClock
from warren.kube.admission import User
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.access import tls
from warren.kube.server.access.authentication import Authenticator
from warren.kube.server.access.authorization import MASTERS
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.rest.app import ApiServer

ROOM = 2**20
MAPS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True)
class Served:
    """An API server, and a way to ask it as a person or as a part of the cluster."""

    embedded: EmbeddedApi
    url: str
    pki: Path

    async def ask(self, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        trusted = ClusterAccess(server="", authority=tls.authority(self.pki), token="").tls()
        headers = {"Authorization": f"Bearer {token}"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, self.url + path, json=body, headers=headers, ssl=trusted
            ) as answer,
        ):
            return answer.status, await answer.json()


@asynccontextmanager
async def served(journal: SmallJournal, pki: Path) -> AsyncIterator[Served]:
    embedded = EmbeddedApi(journal, SystemClock())
    listener = socket.create_server(("127.0.0.1", 0))
    users = {name: User(name, frozenset({MASTERS})) for name in ("person", "part")}
    server = ApiServer(
        embedded.store, SystemClock(), Authenticator(users), embedded.authorizer, {"part"}
    )
    async with alongside(embedded.run()), alongside(server.run(listener, tls.server_context(pki))):
        await embedded.create_defaults()
        yield Served(embedded, f"https://127.0.0.1:{listener.getsockname()[1]}", pki)


def named(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


WRITES = [
    ("POST", MAPS, named("two")),
    ("PATCH", f"{MAPS}/one", {"data": {"a": "b"}}),
    ("PUT", f"{MAPS}/one", named("one")),
]


def test_writes_are_refused_with_a_status_and_reads_and_deletions_go_on(pki: Path) -> None:
    async def story() -> None:
        journal = SmallJournal(room=2 * ROOM, wanted=ROOM)
        async with served(journal, pki) as api:
            assert (await api.ask("person", "POST", MAPS, named("one")))[0] == 201
            journal.room = 0
            # The first after that finds the disk full, and is taken in the room that was set aside.
            assert (await api.ask("person", "POST", MAPS, named("last")))[0] == 201

            for method, path, body in WRITES:
                code, status = await api.ask("person", method, path, body)
                assert code == 507
                assert status["kind"] == "Status"
                assert (status["reason"], status["message"]) == (
                    "InsufficientStorage",
                    "the disk is full",
                )
            assert (await api.ask("person", "GET", f"{MAPS}/one"))[0] == 200
            assert (await api.ask("person", "DELETE", f"{MAPS}/last"))[0] == 200
            # What a part of the cluster writes belongs to what is under way.
            assert (await api.ask("part", "POST", MAPS, named("part")))[0] == 201

            journal.room = 2 * ROOM
            while api.embedded.store.full_reason is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert (await api.ask("person", "POST", MAPS, named("again")))[0] == 201

    asyncio.run(asyncio.wait_for(story(), 120))


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_where_there_is_no_room_at_all_parts_of_the_cluster_are_to_come_again(
    pki: Path, method: str, path: str, body: Any
) -> None:
    async def story() -> None:
        journal = SmallJournal(room=ROOM)
        async with served(journal, pki) as api:
            await api.ask("person", "POST", MAPS, named("one"))
            journal.room = 0
            waiting = asyncio.ensure_future(api.ask("part", "POST", MAPS, named("waits")))
            while not api.embedded.store.stuck:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

            assert (await api.ask("part", method, path, body))[0] == 507
            journal.room = ROOM
            assert (await waiting)[0] == 201

    asyncio.run(asyncio.wait_for(story(), 120))
