"""What may be asked of the `kvs` service, and by whom."""

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.instance.parts import GUEST, OWNER, opened, refused, virtually
from warren.instance.kvs import Kvs, create_namespace, put
from warren.journal import MemoryJournal
from warren.rfc import treeobj
from warren.rpc.bus import Bus
from warren.rpc.message import Handle

STRANGER = GUEST + 1

Ask = Callable[[int], Handle]


@asynccontextmanager
async def serving(journal: MemoryJournal | None = None) -> AsyncIterator[tuple[Kvs, Ask]]:
    """A KVS with a namespace of the guest's, and a way for everybody to ask it."""
    async with opened(journal) as kvs:
        await kvs.commit([create_namespace("job-1", GUEST), put("a", b"mine", "job-1")])
        await kvs.commit([put("a", b"the owner's")])
        bus = Bus(OWNER)
        bus.register("kvs", kvs.methods())
        yield kvs, bus.handle


def operation(key: Any, value: bytes | None, flags: int = 0) -> dict[str, Any]:
    return {"key": key, "flags": flags, "dirent": None if value is None else treeobj.val(value)}


@virtually
async def test_values_travel_as_tree_objects() -> None:
    async with serving() as (_, user):
        answer = await user(OWNER).rpc("kvs.lookup", {"key": "a"})

        assert treeobj.read_val(answer["val"]) == b"the owner's"


@virtually
async def test_a_commit_puts_appends_and_removes() -> None:
    async with serving() as (kvs, user):
        ops = [operation("b", b"1"), operation("b", b"2", 32), operation("a", None)]
        await user(OWNER).rpc("kvs.commit", {"ops": ops})

        assert kvs.lookup("b") == b"12"
        assert kvs.get("a") is None


@virtually
async def test_a_guest_reads_and_writes_its_own_namespace() -> None:
    async with serving() as (kvs, user):
        await user(GUEST).rpc(
            "kvs.commit",
            {"namespace": "job-1", "ops": [operation("b", b"x"), operation("a", None)]},
        )

        assert kvs.lookup("b", "job-1") == b"x"
        assert kvs.get("a", "job-1") is None
        assert kvs.lookup("a") == b"the owner's"


@pytest.mark.parametrize("namespace", ["primary", "job-1"])
@virtually
async def test_a_guest_reaches_nothing_else(namespace: str) -> None:
    async with serving() as (kvs, user):
        request = {"namespace": namespace, "key": "a", "ops": [operation("a", b"mine now")]}
        before = kvs.lookup("a", namespace)

        for topic in ("kvs.lookup", "kvs.commit"):
            assert await refused(user(STRANGER).rpc(topic, request)) == errno.EPERM
        assert kvs.lookup("a", namespace) == before


@virtually
async def test_a_guest_does_not_reach_its_keys_by_way_of_the_primary_namespace() -> None:
    async with serving() as (_, user):
        assert await refused(user(GUEST).rpc("kvs.lookup", {"key": "a"})) == errno.EPERM


@virtually
async def test_the_owner_reaches_every_namespace() -> None:
    async with serving() as (_, user):
        answer = await user(OWNER).rpc("kvs.lookup", {"namespace": "job-1", "key": "a"})

        assert treeobj.read_val(answer["val"]) == b"mine"


@virtually
async def test_what_is_not_there_is_refused() -> None:
    async with serving() as (_, user):
        ask = user(OWNER).rpc
        assert await refused(ask("kvs.lookup", {"key": "b"})) == errno.ENOENT
        assert await refused(ask("kvs.lookup", {})) == errno.EISDIR
        nowhere = {"namespace": "job-2", "key": "a", "ops": [operation("a", b"x")]}
        assert await refused(ask("kvs.lookup", nowhere)) == errno.ENOENT
        assert await refused(ask("kvs.commit", nowhere)) == errno.ENOENT


@virtually
async def test_a_writer_that_asks_again_is_heard_once() -> None:
    async with serving() as (kvs, user):
        request = {
            "namespace": "job-1",
            "ops": [operation("log", b"one", 32)],
            "writer": "shell-0",
            "sequence": 1,
        }
        for _ in range(3):
            await user(GUEST).rpc("kvs.commit", request)

        assert kvs.lookup("log", "job-1") == b"one"


MALFORMED = [
    {},
    {"key": "b"},
    {"key": "b", "dirent": {"ver": 1, "type": "symlink", "data": {}}},
    {"key": "b", "dirent": {"ver": 1, "type": "val", "data": "not base64"}},
    {"key": "b", "dirent": "x"},
    {"key": 5, "dirent": None},
    {"key": None, "dirent": treeobj.val(b"x")},
    {"key": "b", "dirent": treeobj.val(b"x"), "flags": "append"},
    "b",
    None,
]


@pytest.mark.parametrize("malformed", MALFORMED, ids=repr)
@virtually
async def test_a_malformed_step_is_refused_with_the_whole_commit(malformed: Any) -> None:
    journal = MemoryJournal()
    async with serving(journal) as (kvs, user):
        request = {"ops": [operation("b", b"x"), malformed]}
        before = list(journal.records)

        assert await refused(user(OWNER).rpc("kvs.commit", request)) == errno.EPROTO
        assert kvs.get("b") is None
        assert journal.records == before
    Kvs(journal, OWNER)


@pytest.mark.parametrize(
    "malformed", [{"ops": 5}, {"ops": {"key": "b"}}, {"writer": "w", "sequence": "one"}]
)
@virtually
async def test_a_malformed_commit_is_refused(malformed: dict[str, Any]) -> None:
    async with serving() as (kvs, user):
        request = {"ops": [operation("b", b"x")], **malformed}

        assert await refused(user(OWNER).rpc("kvs.commit", request)) == errno.EPROTO
        assert kvs.get("b") is None
