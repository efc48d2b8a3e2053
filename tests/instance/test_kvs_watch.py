"""What a watcher of a key is told, and with which word it ends."""

import asyncio
import errno
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from tests.instance.parts import GUEST, OWNER, living, opened, refused, settle, virtually
from warren.instance.kvs import (
    Kvs,
    Operation,
    append,
    create_namespace,
    graft,
    link,
    put,
    unlink,
)
from warren.instance.kvs.operations import remove_namespace
from warren.instance.kvs.watchservice import KvsWatch
from warren.rfc import fluid, treeobj
from warren.rfc.kvsflags import (
    READDIR,
    STREAM,
    TREEOBJ,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_INITIAL_SENTINEL,
    WATCH_UNIQ,
)
from warren.rpc.bus import Bus
from warren.rpc.message import RpcError

JOB = 6731191091817518


class Watcher:
    """Watches a key, and remembers what it is told; `ended` is its errnum, 0 for a good end."""

    def __init__(self, bus: Bus, group: asyncio.TaskGroup, key: str, flags: int, **more: Any):
        user = more.pop("user", OWNER)
        self._answers = bus.handle(user).stream(
            "kvs-watch.lookup", {"key": key, "flags": flags, **more}
        )
        self.told: list[Any] = []
        self.ended: int | None = None
        self._task = group.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async with aclosing(self._answers) as answers:  # type: ignore[type-var]
                async for answer in answers:
                    shown = answer["val"]
                    value = isinstance(shown, dict) and shown["type"] == "val"
                    self.told.append(treeobj.read_val(shown) if value else shown)
            self.ended = 0
        except RpcError as error:
            self.ended = error.errnum

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@asynccontextmanager
async def watching(**sizes: int) -> AsyncIterator[tuple[Kvs, Bus, asyncio.TaskGroup]]:
    """A KVS that is watched; afterwards nothing is waited for any more."""
    async with opened() as kvs:
        bus = Bus(OWNER)
        bus.register("kvs-watch", KvsWatch(kvs, **sizes).methods())
        async with living() as group:
            yield kvs, bus, group
            for task in list(group._tasks):
                task.cancel()
        assert len(kvs._watches) == 0


async def changed(kvs: Kvs, *transactions: Sequence[Operation]) -> None:
    for transaction in transactions:
        await kvs.commit(transaction)
        await settle()


@virtually
async def test_a_key_is_told_of_once_or_whenever_it_is_written() -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [put("a", b"1")])
        once, always = (Watcher(bus, group, "a", flags) for flags in (0, WATCH))
        await settle()
        await changed(kvs, [put("a", b"2")], [put("b", b"x")], [put("a", b"2")])

        assert (once.told, once.ended) == ([b"1"], 0)
        assert (always.told, always.ended) == ([b"1", b"2", b"2"], None)


@virtually
async def test_a_watch_holds_nothing_of_what_it_has_told() -> None:
    """A user has thousands of watches, and a value has megabytes."""
    value = bytes(2**21)
    async with watching() as (kvs, bus, group):
        await changed(kvs, [put("a", value)])
        told: list[int] = []

        async def watch() -> None:
            async for answer in bus.handle().stream(
                "kvs-watch.lookup", {"key": "a", "flags": WATCH}
            ):
                told.append(len(treeobj.read_val(answer["val"])))
                del answer

        tracemalloc.start()
        try:
            for _ in range(8):
                group.create_task(watch())
            await settle()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert told == [len(value)] * 8
        assert held < 2 * len(value)


@pytest.mark.parametrize("how", [WATCH_FULL, WATCH_UNIQ])
@virtually
async def test_what_is_the_same_is_not_told_twice_to_who_compares(how: int) -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [put("a.b", b"1")])
        watcher = Watcher(bus, group, "a.b", WATCH | how)
        await settle()
        await changed(kvs, [put("a.b", b"1")], [put("a.b", b"2")], [unlink("a"), put("a.b", b"2")])
        assert watcher.told == [b"1", b"2"]

        await changed(kvs, [unlink("a"), put("a.b", b"3")])
        assert watcher.told == [b"1", b"2", b"3"]


@virtually
async def test_a_key_that_is_not_there_is_refused_or_waited_for() -> None:
    async with watching() as (kvs, bus, group):
        refusing, waiting, watched = (
            Watcher(bus, group, "a.b", flags) for flags in (WATCH, WAITCREATE, WATCH | WAITCREATE)
        )
        await settle()
        assert refusing.ended == errno.ENOENT
        await changed(kvs, [put("a.c", b"")], [put("a.b", b"1")], [put("a.b", b"2")])
        assert (waiting.told, waiting.ended) == ([b"1"], 0)
        assert (watched.told, watched.ended) == ([b"1", b"2"], None)

        await changed(kvs, [unlink("a.b")])
        assert watched.ended == errno.ENOENT


@virtually
async def test_who_watches_appends_is_told_what_was_appended() -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [append("log", b"one ")])
        watcher = Watcher(bus, group, "log", WATCH | WATCH_APPEND | WATCH_INITIAL_SENTINEL)
        await settle()
        await changed(kvs, [append("log", b"two ")], [append("log", b"3"), append("log", b"4")])
        assert watcher.told == [b"one ", None, b"two ", b"34"]

        await changed(kvs, [put("log", b"short")])
        assert watcher.ended == errno.EINVAL


@virtually
async def test_a_long_value_comes_in_parts() -> None:
    async with watching(largest_answer=6, part_bytes=4) as (kvs, bus, group):
        await changed(kvs, [put("a", b"123456789"), put("empty", b"")])
        whole, parts, empty = (
            Watcher(bus, group, key, flags)
            for key, flags in (("a", 0), ("a", STREAM), ("empty", STREAM))
        )
        always = Watcher(bus, group, "a", STREAM | WATCH)
        await settle()
        assert whole.ended == errno.EFBIG
        assert (parts.told, parts.ended) == ([b"1234", b"5678", b"9"], 0)
        assert (empty.told, empty.ended) == ([b""], 0)
        await changed(kvs, [put("a", b"12345")])
        assert always.told == [b"1234", b"5678", b"9", b"1234", b"5"]


@virtually
async def test_a_slow_reader_sees_the_last_and_every_byte_that_was_appended() -> None:
    async with watching() as (kvs, bus, _):
        ask = bus.handle().stream
        await changed(kvs, [put("a", b"0"), append("log", b"0")])
        values = ask("kvs-watch.lookup", {"key": "a", "flags": WATCH})
        logs = ask("kvs-watch.lookup", {"key": "log", "flags": WATCH | WATCH_APPEND})
        for answers in (values, logs):
            await anext(answers)
        for number in range(1, 10):
            await kvs.commit([put("a", b"%d" % number), append("log", b"%d" % number)])

        assert treeobj.read_val((await anext(values))["val"]) == b"9"
        assert treeobj.read_val((await anext(logs))["val"]) == b"123456789"
        for answers in (values, logs):
            await answers.aclose()  # type: ignore[attr-defined]


@virtually
async def test_a_directory_is_told_of_when_anything_below_it_changes() -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [put("a.b.c", b"1")])
        names = Watcher(bus, group, "a", READDIR | WATCH)
        roots = Watcher(bus, group, "a", TREEOBJ | WATCH | WATCH_UNIQ)
        await settle()
        await changed(kvs, [put("a.b.c", b"2")], [put("x", b"")], [put("a.d", b"")])

        assert [sorted(each["data"]) for each in names.told] == [["b"], ["b"], ["b", "d"]]
        assert len({each["data"][0] for each in roots.told}) == len(roots.told) == 3
        await changed(kvs, [unlink("a")])
        assert names.ended == roots.ended == errno.ENOENT


@virtually
async def test_a_watch_goes_along_with_links() -> None:
    async with watching() as (kvs, bus, group):
        watcher = Watcher(
            bus, group, f"jobs.{fluid.f58(JOB)}.guest.log", WATCH | WATCH_APPEND | WAITCREATE
        )
        key = f"{fluid.kvs(JOB)}.guest"
        await settle()
        await changed(
            kvs,
            [create_namespace("guest", GUEST), append("log", b"one", "guest")],
            [link(key, "guest")],
            [append("log", b"two", "guest")],
            [graft(key, "guest")],
            [append(f"{key}.log", b"three")],
        )
        assert (watcher.told, watcher.ended) == ([b"one", b"two", b"three"], None)


@virtually
async def test_a_namespace_that_goes_away_is_the_end() -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [create_namespace("one", GUEST), put("a", b"", "one")])
        watched = Watcher(bus, group, "a", WATCH, namespace="one", user=GUEST)
        waiting = Watcher(bus, group, "b", WAITCREATE, namespace="one", user=GUEST)
        await settle()
        await changed(kvs, [remove_namespace("one")])

        assert watched.ended == waiting.ended == errno.ENOTSUP


@virtually
async def test_only_the_owner_waits_for_a_namespace() -> None:
    async with watching() as (kvs, bus, group):
        owners, guests = (
            Watcher(bus, group, "a", WAITCREATE, namespace="one", user=user)
            for user in (OWNER, GUEST)
        )
        await settle()
        assert guests.ended == errno.ENOTSUP
        await changed(kvs, [create_namespace("one", GUEST)], [put("a", b"x", "one")])
        assert (owners.told, owners.ended) == ([b"x"], 0)


@virtually
async def test_a_guest_watches_what_it_owns() -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [create_namespace("one", GUEST + 1), put("a", b"x")])
        for namespace in ("primary", "one"):
            watcher = Watcher(bus, group, "a", WAITCREATE, namespace=namespace, user=GUEST)
            await settle()
            assert watcher.ended == errno.EPERM


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (WATCH_UNIQ, errno.EINVAL),
        (WATCH_APPEND, errno.EINVAL),
        (WATCH | WATCH_APPEND | READDIR, errno.EINVAL),
        (2048, errno.EINVAL),
        ("4", errno.EPROTO),
    ],
)
@virtually
async def test_flags_that_do_not_go_together_are_refused(flags: Any, why: int) -> None:
    async with watching() as (kvs, bus, _):
        await changed(kvs, [put("a", b"")])
        answers = bus.handle().stream("kvs-watch.lookup", {"key": "a", "flags": flags})
        assert await refused(anext(answers)) == why


@virtually
async def test_who_leaves_is_forgotten() -> None:
    async with watching() as (kvs, bus, group):
        await changed(kvs, [put("a", b"")])
        watcher = Watcher(bus, group, "a", WATCH)
        await settle()
        assert len(kvs._watches) == 1
        await watcher.leave()

        assert len(kvs._watches) == 0
