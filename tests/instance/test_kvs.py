"""The key-value store: keys, transactions, namespaces, writers."""

import asyncio
import errno
from collections.abc import Callable

import pytest

from tests.instance.parts import (
    GUEST,
    OWNER,
    SlowDisk,
    compacted,
    living,
    opened,
    settle,
    virtually,
)
from warren.instance.kvs import (
    PRIMARY,
    Kvs,
    Operation,
    append,
    create_namespace,
    graft,
    link,
    put,
    unlink,
)
from warren.journal import MemoryJournal
from warren.rpc.message import RpcError


def errnum(action: Callable[[], object]) -> int:
    with pytest.raises(RpcError) as caught:
        action()
    return caught.value.errnum


# Keys and values


@virtually
async def test_what_is_put_is_found() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a.b", b"\0any\xffbytes")])

        assert kvs.lookup("a.b") == b"\0any\xffbytes"
        assert kvs.get("a.b") == b"\0any\xffbytes"


@virtually
async def test_what_is_not_there_and_what_is_no_value_are_told_apart() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a.b", b"x")])

        assert errnum(lambda: kvs.lookup("b")) == errno.ENOENT
        assert errnum(lambda: kvs.lookup("a.c")) == errno.ENOENT
        assert errnum(lambda: kvs.lookup("a.b.c")) == errno.ENOENT
        assert errnum(lambda: kvs.lookup("a")) == errno.EISDIR
        assert errnum(lambda: kvs.lookup(".")) == errno.EISDIR
        assert errnum(lambda: kvs.lookup("a", "nowhere")) == errno.ENOENT
        assert kvs.get("a") is kvs.get("b") is None


@virtually
async def test_what_is_appended_comes_after_what_was_there() -> None:
    async with opened() as kvs:
        await kvs.commit([append("log", b"one ")])
        await kvs.commit([append("log", b"two "), append("log", b"three")])

        assert kvs.lookup("log") == b"one two three"


@virtually
async def test_what_was_read_stays_as_it_was_when_more_is_appended() -> None:
    async with opened() as kvs:
        seen = []
        for chunk in (b"one ", b"two ", b"three"):
            await kvs.commit([append("log", chunk)])
            seen.append((kvs.lookup("log"), kvs.get("log")))
        assert seen[0] == (b"one ", b"one ")
        assert seen[1] == (b"one two ", b"one two ")

        await kvs.commit([put("log", b"anew")])
        assert kvs.lookup("log") == b"anew"
        assert all(type(value) is bytes for pair in seen for value in pair)


@virtually
async def test_a_value_that_is_appended_to_takes_the_place_of_a_directory_or_a_link() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a.b", b"x"), link("c", "guest")])
        await kvs.commit([append("a", b"1"), append("a", b"2"), append("c", b"3")])

        assert kvs.lookup("a") == b"12"
        assert kvs.lookup("c") == b"3"


@virtually
async def test_a_directory_is_gone_with_the_last_that_was_in_it() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a.b.c", b""), put("a.b.d", b""), put("e", b"")])
        await kvs.commit([unlink("a.b.c")])
        assert kvs.names("a.b") == ["d"]

        await kvs.commit([unlink("a.b.d")])
        assert kvs.names(".") == ["e"]


@virtually
async def test_a_directory_is_removed_with_all_that_is_below_it() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a.b.c", b""), put("a.d", b""), put("ab", b"")])
        await kvs.commit([unlink("a")])

        assert kvs.names(".") == ["ab"]


@virtually
async def test_removing_what_is_not_there_is_no_trouble() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a.b", b"x")])
        await kvs.commit([unlink("a.c"), unlink("a.b.c"), unlink("d.e")])

        assert kvs.lookup("a.b") == b"x"


# Transactions


@virtually
async def test_nothing_is_seen_before_it_is_durable() -> None:
    disk = SlowDisk()
    async with opened(disk) as kvs:
        done = kvs.commit([put("a", b"x")])
        await settle()
        assert kvs.get("a") is None
        assert not done.done()

        disk.free.set()
        await done
        assert kvs.get("a") == b"x"
        assert len(disk.records) == 1


@virtually
async def test_giving_up_the_wait_does_not_unsay_a_commit() -> None:
    disk = SlowDisk()
    async with opened(disk) as kvs:
        kvs.commit([put("a", b"x")]).cancel()
        disk.free.set()
        await kvs.commit([put("b", b"y")])

        assert kvs.get("a") == b"x"


@virtually
async def test_the_steps_of_a_transaction_come_in_their_order() -> None:
    async with opened() as kvs:
        await kvs.commit([put("a", b"1"), unlink("a"), append("a", b"2"), append("a", b"3")])

        assert kvs.lookup("a") == b"23"


# Namespaces and links


@virtually
async def test_a_link_leads_into_another_namespace() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("guest", GUEST), put("x.y", b"in", "guest")])
        await kvs.commit([link("job.guest", "guest")])

        assert kvs.lookup("job.guest.x.y") == b"in"
        assert kvs.names("job.guest") == ["x"]
        assert errnum(lambda: kvs.lookup("x.y")) == errno.ENOENT


@virtually
async def test_a_link_to_a_namespace_that_is_not_there_leads_nowhere() -> None:
    async with opened() as kvs:
        await kvs.commit([link("a", "nowhere")])

        assert errnum(lambda: kvs.lookup("a.b")) == errno.ENOENT
        assert kvs.names("a") == []


@virtually
async def test_a_namespace_keeps_its_owner_and_its_keys_when_it_is_made_again() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("guest", GUEST), put("a", b"x", "guest")])
        await kvs.commit([create_namespace("guest", OWNER)])

        assert kvs.owner("guest") == GUEST
        assert kvs.lookup("a", "guest") == b"x"
        assert kvs.owner("nowhere") is None


@virtually
async def test_a_graft_puts_a_namespace_in_the_place_of_its_link() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("guest", GUEST), link("a", "guest")])
        await kvs.commit([put("x", b"y", "guest")])
        await kvs.commit([graft("a", "guest")])

        assert kvs.lookup("a.x") == b"y"
        assert kvs.owner("guest") is None


@virtually
async def test_a_graft_may_be_repeated() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("guest", GUEST), put("x", b"y", "guest")])
        await kvs.commit([graft("a", "guest")])
        await kvs.commit([graft("a", "guest")])

        assert kvs.lookup("a.x") == b"y"


@virtually
async def test_an_empty_namespace_leaves_no_directory_where_it_is_grafted() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("guest", GUEST), link("a.b", "guest")])
        await kvs.commit([graft("a.b", "guest")])

        assert kvs.names(".") == []


@virtually
async def test_what_is_written_to_a_namespace_that_is_gone_is_lost_without_harm() -> None:
    async with opened() as kvs:
        await kvs.commit([append("log", b"late", "guest")], writer="shell-0", sequence=7)

        assert kvs.owner("guest") is None


# Who is woken


@pytest.mark.parametrize(
    ("operation", "woken"),
    [
        (put("a.b", b"x"), {"a.b", "a.b.c"}),
        (append("a.b.c", b"x"), {"a.b.c"}),
        (put("a.b.c.d", b"x"), {"a.b.c"}),
        (put("a.b.d", b"x"), set()),
        (unlink("a.b"), {"a.b", "a.b.c"}),
        (link("a.b", "guest"), {"a.b", "a.b.c"}),
        (graft("a.b", "guest"), {"a.b", "a.b.c", "guest"}),
        (unlink("a"), {"a.b", "a.b.c", "a.bc"}),
        (unlink("d.e"), set()),
    ],
)
@virtually
async def test_only_those_are_woken_who_wait_for_what_has_changed(
    operation: Operation, woken: set[str]
) -> None:
    """A follower asks whether it is at its end whenever it is woken."""
    asked: list[str] = []

    def final(name: str) -> bool:
        asked.append(name)
        return False

    async def follow(kvs: Kvs, name: str, key: str, namespace: str) -> None:
        async for _ in kvs.follow(key, namespace, is_final=lambda: final(name), also_watch="also"):
            asked.append(name)

    async with opened() as kvs, living() as group:
        await kvs.commit([put("a.b.c", b""), put("a.bc", b""), create_namespace("guest", GUEST)])
        keys = [(key, key, PRIMARY) for key in ("a.b", "a.b.c", "a.bc", "b")]
        followers = [
            group.create_task(follow(kvs, *place)) for place in (*keys, ("guest", "x", "guest"))
        ]
        await settle()
        asked.clear()
        await kvs.commit([operation])
        await settle()

        assert set(asked) == woken
        for follower in followers:
            follower.cancel()
        await asyncio.wait(followers)
        assert len(kvs._watches) == 0


@virtually
async def test_a_follower_goes_along_with_its_key_and_leaves_nothing_behind() -> None:
    async with opened() as kvs, living() as group:
        seen: list[bytes] = []

        async def follow() -> None:
            async for chunk in kvs.follow("job.guest.log", also_watch="job.eventlog"):
                seen.append(chunk)

        follower = group.create_task(follow())
        await settle()
        watched = set(kvs._watches._namespaces)
        await kvs.commit([create_namespace("guest", GUEST), link("job.guest", "guest")])
        await settle()
        assert set(kvs._watches._namespaces) == {*watched, "guest"}
        await kvs.commit([append("log", b"one", "guest")])
        await settle()
        await kvs.commit([unlink("job.guest")])
        await settle()
        assert set(kvs._watches._namespaces) == watched
        await kvs.commit([append("job.guest.log", b"one, two")])
        await settle()

        assert seen == [b"one", b", two"]
        follower.cancel()
        await asyncio.wait([follower])
        assert len(kvs._watches) == 0


# Numbered writers


@virtually
async def test_a_writer_that_repeats_itself_is_heard_once() -> None:
    async with opened() as kvs:
        for sequence in (1, 1, 2, 1, 2, 3):
            await kvs.commit([append("log", b"%d" % sequence)], "shell-0", sequence)

        assert kvs.lookup("log") == b"123"


@virtually
async def test_writers_and_namespaces_count_for_themselves() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("guest", GUEST)])
        for writer in ("shell-0", "shell-1"):
            for namespace in (PRIMARY, "guest"):
                await kvs.commit([append("log", b"x", namespace)], writer, 1)

        assert kvs.lookup("log") == kvs.lookup("log", "guest") == b"xx"


@pytest.mark.parametrize("compact", [False, True])
@virtually
async def test_a_writer_that_repeats_itself_after_a_restart_is_heard_once(compact: bool) -> None:
    journal = MemoryJournal()
    async with opened(journal) as kvs:
        await kvs.commit([create_namespace("guest", GUEST)])
        await kvs.commit([append("log", b"one ", "guest")], "shell-0", 1)

    async with opened(compacted(kvs) if compact else journal) as kvs:
        await kvs.commit([append("log", b"one ", "guest")], "shell-0", 1)
        await kvs.commit([append("log", b"two", "guest")], "shell-0", 2)

        assert kvs.lookup("log", "guest") == b"one two"
        assert kvs.owner("guest") == GUEST
