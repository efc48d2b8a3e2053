"""What may be asked of the `kvs` service, and by whom."""

import asyncio
import base64
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import virtual
from tests.harness.extent import extent
from tests.instance.parts import GUEST, OWNER, living, opened, refused, settle, virtually
from warren.instance.content import Content
from warren.instance.kvs import Kvs, append, create_namespace, link, put
from warren.instance.kvs.operations import symlink
from warren.instance.kvs.service import KvsService
from warren.journal import MemoryJournal
from warren.rfc import fluid, treeobj
from warren.rpc.bus import Bus
from warren.rpc.message import Handle, RpcError

STRANGER = GUEST + 1
JOB = 6731191091817518

Ask = Callable[[int], Handle]


@asynccontextmanager
async def serving(
    journal: MemoryJournal | None = None, kvs: Kvs | None = None
) -> AsyncIterator[tuple[Kvs, Ask]]:
    """A KVS with a namespace of the guest's, and a way for all users to ask it."""
    async with opened(journal, kvs) as kvs:
        await kvs.commit([create_namespace("job-1", GUEST), put("a", b"mine", "job-1")])
        await kvs.commit([put("a", b"the owner's")])
        bus = Bus(OWNER)
        bus.register("kvs", KvsService(kvs).methods())
        bus.register("content", Content(kvs).methods())
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


@virtually
async def test_a_guest_writes_only_so_much_and_the_owner_whatever_he_likes() -> None:
    async with opened() as kvs:
        await kvs.commit([create_namespace("job-1", GUEST)])
        bus = Bus(OWNER)
        bus.register("kvs", KvsService(kvs, 1000).methods())
        written = {"namespace": "job-1", "ops": [operation("b", b"x" * 600)]}
        await bus.handle(GUEST).rpc("kvs.commit", written)

        # Also where it takes the place of what was there: the journal has both.
        again = bus.handle(GUEST).rpc("kvs.commit", written)
        assert await refused(again) == errno.ENOSPC
        await bus.handle(OWNER).rpc("kvs.commit", written)


@pytest.mark.parametrize("namespace", ["primary", "job-1"])
@virtually
async def test_a_guest_reaches_nothing_else(namespace: str) -> None:
    """Statement 003.12: the primary namespace is accessible by the instance owner alone."""
    async with serving() as (kvs, user):
        request = {"namespace": namespace, "key": "a", "ops": [operation("a", b"mine now")]}
        before = kvs.lookup("a", namespace)

        for topic in ("kvs.lookup", "kvs.commit"):
            assert await refused(user(STRANGER).rpc(topic, request)) == errno.EPERM
        assert kvs.lookup("a", namespace) == before


@virtually
async def test_a_guest_does_not_reach_its_keys_by_way_of_the_primary_namespace() -> None:
    """Statement 003.20: guests have no direct access to the primary namespace."""
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
        for topic in ("lookup", "commit", "getroot"):
            assert await refused(ask(f"kvs.{topic}", nowhere)) == errno.ENOTSUP


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


def blobbed(blob: bytes) -> dict[str, str]:
    return {"data": base64.b64encode(blob).decode()}


def step(key: Any, dirent: Any, flags: int = 0) -> dict[str, Any]:
    return {"key": key, "flags": flags, "dirent": dirent}


@virtually
async def test_any_tree_object_is_committed_and_comes_back() -> None:
    async with serving() as (kvs, user):
        ask = user(OWNER).rpc
        blob = b"long" * 100
        stored = await ask("content.store", {"data": base64.b64encode(blob).decode()})
        below = treeobj.directory({"v": treeobj.val(b"x"), "r": treeobj.valref([stored["ref"]])})
        kept = await ask(
            "content.store", {"data": base64.b64encode(treeobj.encode(below)).decode()}
        )
        steps = [
            step("val", treeobj.val(b"1")),
            step("valref", treeobj.valref([stored["ref"]])),
            step("dir", treeobj.directory({"a": below, "l": treeobj.symlink("val")})),
            step("dirref", treeobj.dirref(kept["ref"])),
            step("link", treeobj.symlink("dir.a")),
            step("away", treeobj.symlink(".", "job-1")),
        ]
        await ask("kvs.commit", {"ops": steps})

        assert kvs.lookup("valref") == blob
        assert kvs.lookup("dir.a.r") == kvs.lookup("dirref.r") == kvs.lookup("link.r") == blob
        assert kvs.lookup("dir.l") == b"1"
        assert kvs.lookup("away.a") == b"mine"
        for key in ("val", "valref", "link", "away"):
            shown = await ask("kvs.lookup", {"key": key, "flags": 16})
            assert shown["val"] == next(each["dirent"] for each in steps if each["key"] == key)
        again = await ask("kvs.lookup", {"key": "dirref", "flags": 16})
        assert again["val"] == treeobj.dirref(kept["ref"])


@pytest.mark.parametrize(
    ("steps", "why", "where"),
    [
        ([step("a.b", treeobj.val(b"")), step(".", treeobj.val(b""))], errno.EINVAL, 1),
        ([step("", None)], errno.EINVAL, 0),
        ([step("b", treeobj.val(b"")), step("d", treeobj.val(b"x"), 32)], errno.EISDIR, 1),
        ([step("l", treeobj.val(b"x"), 32)], errno.EOPNOTSUPP, 0),
        ([step("d", treeobj.symlink("x"), 32)], errno.EINVAL, 0),
        ([step("away.x", treeobj.val(b"x"))], errno.EINVAL, 0),
        ([step("round.x", treeobj.val(b"x"))], errno.ELOOP, 0),
        ([step("x", treeobj.valref(["sha1-" + "0" * 40]))], errno.ENOENT, 0),
        ([step("x", {"ver": 2, "type": "val", "data": ""})], errno.EINVAL, 0),
        ([step("x", treeobj.val(b""), 64)], errno.EPROTO, 0),
        ([step("x", {"ver": 1, "type": "hdir",
                     "data": {"size": 1, "func": "f", "bucket": []}})], errno.EINVAL, 0),
        ([step(".".join("x" * 65), treeobj.val(b""))], errno.EINVAL, 0),
    ],
)  # fmt: skip
@virtually
async def test_a_refused_commit_names_the_step_and_changes_nothing(
    steps: list[Any], why: int, where: int
) -> None:
    async with serving() as (kvs, user):
        await kvs.commit([put("d.e", b"x"), symlink("l", "d.e"), link("away", "job-1")])
        await kvs.commit([symlink("round", "round")])
        before = await user(OWNER).rpc("kvs.getroot")
        with pytest.raises(RpcError, match=f"operation {where}") as refused:
            await user(OWNER).rpc("kvs.commit", {"ops": steps})

        assert refused.value.errnum == why
        assert await user(OWNER).rpc("kvs.getroot") == before


@virtually
async def test_a_blob_that_is_no_directory_is_not_committed_as_one() -> None:
    async with serving() as (_, user):
        ask = user(OWNER).rpc
        stored = await ask("content.store", {"data": ""})

        refusal = refused(ask("kvs.commit", {"ops": [step("x", treeobj.dirref(stored["ref"]))]}))
        assert await refusal == errno.ENOTDIR


@virtually
async def test_a_commit_tells_the_version_and_the_root_unless_that_is_not_wanted() -> None:
    async with serving() as (kvs, user):
        ask = user(OWNER).rpc
        unwanted = {"ops": [operation("b", b"1")], "rootref": False}
        one = await ask("kvs.commit", unwanted)
        two = await ask("kvs.commit", {"ops": [operation("b", b"2")]})

        assert one == {"rootseq": two["rootseq"] - 1}
        assert await ask("kvs.wait-version", {"rootseq": two["rootseq"]}) == two
        assert two["rootref"] == (await ask("kvs.getroot"))["rootref"]
        assert kvs.root("primary").digest is not None


@virtually
async def test_a_root_that_was_given_out_is_read_as_it_was() -> None:
    async with serving() as (kvs, user):
        ask = user(OWNER).rpc
        await kvs.commit([put("d.long", b"long" * 99), put("d.e", b"1"), symlink("l", "d.e")])
        root = (await ask("kvs.getroot"))["rootref"]
        await kvs.commit([put("d.e", b"2"), put("d.f", b""), append("d.long", b"er")])
        rootdir = treeobj.dirref(root)

        async def then(key: str, flags: int = 0) -> Any:
            request = {"key": key, "flags": flags, "rootdir": rootdir}
            return (await ask("kvs.lookup", request))["val"]

        assert treeobj.read_val(await then("l")) == b"1"
        assert treeobj.read_val(await then("d.long")) == b"long" * 99
        assert list((await then("d", 1))["data"]) == ["e", "long"]
        assert await then("l", 2) == treeobj.symlink("d.e")
        assert await refused(then("d.f")) == errno.ENOENT
        assert await refused(then("d")) == errno.EISDIR
        assert await refused(then("l.x")) == errno.ENOENT
        assert await refused(then("d.e", 2)) == errno.EINVAL
        unknown = {"key": "a", "rootdir": treeobj.dirref("sha1-" + "0" * 40)}
        assert await refused(ask("kvs.lookup", unknown)) == errno.ENOENT
        mine = {"namespace": "job-1", "key": "a", "rootdir": rootdir}
        assert await refused(user(GUEST).rpc("kvs.lookup", mine)) == errno.EPERM


@virtually
async def test_a_lookup_has_the_shapes_and_the_refusals_of_the_field() -> None:
    async with serving() as (kvs, user):
        ask = user(OWNER).rpc
        await kvs.commit([put("d.e", b"1"), symlink("l", "d"), symlink("round", "round.x")])

        async def shown(key: str, flags: int = 0) -> Any:
            return (await ask("kvs.lookup", {"key": key, "flags": flags}))["val"]

        assert await shown("d", 1) == await shown("l", 1) == await shown("d.", 1)
        assert await shown(".", 1) == await shown("", 1)
        assert await shown("d", 1) == treeobj.directory({"e": treeobj.val(b"1")})
        assert await shown("l", 2) == await shown("l", 16) == treeobj.symlink("d")
        assert await shown("l.", 16) == await shown("d", 16) == await shown("d", 17)
        assert treeobj.read_val(await shown("..l..e")) == b"1"
        refusals = {
            ("d", 0): errno.EISDIR, ("l", 0): errno.EISDIR, ("d.e", 1): errno.ENOTDIR,
            ("d.e.f", 0): errno.ENOENT, ("d.e.", 0): errno.ENOTDIR, ("d.e", 2): errno.EINVAL,
            ("x", 0): errno.ENOENT, ("round", 0): errno.ELOOP, ("d", 3): errno.EINVAL,
            ("d", 4): errno.EINVAL,
        }  # fmt: skip
        for (key, flags), why in refusals.items():
            assert await refused(shown(key, flags)) == why, (key, flags)
        listed = await ask("kvs.list", {"key": "."})
        assert listed["entries"] == {"a": "val", "d": "dir", "l": "symlink", "round": "symlink"}


@virtually
async def test_a_link_takes_no_guest_to_what_it_does_not_own() -> None:
    async with serving() as (kvs, user):
        steps = [step("l", treeobj.symlink("a", "primary")), step("m", treeobj.symlink("l.x"))]
        for each in (*steps, step("d", treeobj.directory({"l": treeobj.symlink("a")}))):
            linking = user(GUEST).rpc("kvs.commit", {"namespace": "job-1", "ops": [each]})
            assert await refused(linking) == errno.EPERM
        await user(OWNER).rpc("kvs.commit", {"namespace": "job-1", "ops": steps})
        await kvs.commit([create_namespace("job-2", STRANGER), put("a", b"", "job-2")])

        for key in ("l", "m"):
            mine = {"namespace": "job-1", "key": key}
            assert await refused(user(GUEST).rpc("kvs.lookup", mine)) == errno.EPERM


@pytest.mark.parametrize("spelled", [str(JOB), fluid.f58(JOB), fluid.f58plain(JOB), hex(JOB)])
@pytest.mark.parametrize("group", ["job", "jobs"])
@virtually
async def test_a_job_is_found_by_any_spelling_of_its_id(group: str, spelled: str) -> None:
    """Statement 003.13: a job is found at jobs.<jobid> and at job.<jobid>."""
    async with serving() as (kvs, user):
        ask = user(OWNER).rpc
        await kvs.commit([put(f"{fluid.kvs(JOB)}.R", b"r")])

        found = await ask("kvs.lookup", {"key": f"{group}.{spelled}.R"})
        assert treeobj.read_val(found["val"]) == b"r"
        listed = await ask("kvs.list", {"key": f"{group}.{spelled}"})
        assert listed == {"entries": {"R": "val"}}
        await ask("kvs.commit", {"ops": [operation(f"{group}.{spelled}.R", b"real")]})
        assert kvs.lookup(f"{fluid.kvs(JOB)}.R") == b"r"
        found = await ask("kvs.lookup", {"key": f"{group}.{spelled}.R"})
        assert treeobj.read_val(found["val"]) == b"real"


# Namespaces


@virtually
async def test_the_owner_makes_and_removes_namespaces() -> None:
    async with serving() as (kvs, user):
        ask = user(OWNER).rpc
        root = (await ask("kvs.getroot"))["rootref"]
        await ask("kvs.namespace-create", {"namespace": "new", "owner": STRANGER})
        await ask("kvs.namespace-create", {"namespace": "copy", "rootref": root, "flags": 0})

        assert kvs.owner("new") == STRANGER
        assert (kvs.owner("copy"), kvs.lookup("a", "copy")) == (OWNER, b"the owner's")
        twice = ask("kvs.namespace-create", {"namespace": "new", "owner": OWNER})
        assert await refused(twice) == errno.EEXIST
        assert kvs.owner("new") == STRANGER
        for name in ("new", "new"):
            await ask("kvs.namespace-remove", {"namespace": name})
        assert kvs.owner("new") is None
        assert await refused(ask("kvs.namespace-remove", {"namespace": "primary"})) == errno.ENOTSUP


@virtually
async def test_users_are_told_of_namespaces_that_they_may_reach() -> None:
    async with serving() as (_, user):
        told = {
            userid: {
                each["namespace"]: each["owner"]
                for each in (await user(userid).rpc("kvs.namespace-list"))["namespaces"]
            }
            for userid in (OWNER, GUEST, STRANGER)
        }

        assert told == {
            OWNER: {"primary": OWNER, "job-1": GUEST}, GUEST: {"job-1": GUEST}, STRANGER: {},
        }  # fmt: skip
        for topic in ("kvs.namespace-create", "kvs.namespace-remove", "content.load"):
            assert await refused(user(GUEST).rpc(topic, {"namespace": "job-1"})) == errno.EPERM


@virtually
async def test_who_waits_for_a_version_hears_when_it_is_there_or_never_will_be() -> None:
    async with serving() as (kvs, user), living() as group:
        await kvs.commit([create_namespace("new", GUEST)])
        mine = {"namespace": "new", "rootseq": 2}
        waiting = [
            group.create_task(user(GUEST).rpc("kvs.wait-version", {**mine, "rootseq": wanted}))
            for wanted in (1, 2)
        ]
        never = group.create_task(
            refused(user(GUEST).rpc("kvs.wait-version", {**mine, "rootseq": 9}))
        )
        for committed in range(3):
            await settle()
            assert [each.done() for each in waiting] == [committed >= 1, committed >= 2]
            await kvs.commit([put("x", b"%d" % committed, "new")])
        await user(OWNER).rpc("kvs.namespace-remove", {"namespace": "new"})

        assert await never == errno.ENOTSUP
        assert len(kvs._watches) == 0


# Blobs


@virtually
async def test_blobs_go_by_their_digests() -> None:
    async with serving() as (_, user):
        ask = user(OWNER).rpc
        stored = await ask("content.store", blobbed(b"foo\n"))

        assert stored == {"ref": "sha1-f1d2d2f924e986ac86fdf7b36c94bcdf32beec15"}
        assert await ask("content.load", stored) == {"data": "Zm9vCg=="}
        assert await ask("content.validate", stored) == {}
        unknown = {"ref": "sha1-" + "0" * 40}
        assert await refused(ask("content.load", unknown)) == errno.ENOENT
        assert await refused(ask("content.validate", unknown)) == errno.ENOENT
        assert await refused(ask("content.load", {"ref": "foo"})) == errno.EPROTO
        assert await refused(ask("content.store", {"data": "?"})) == errno.EPROTO
        assert await refused(ask("content.flush")) == errno.ENOSYS
        assert await refused(ask("content.store", blobbed(bytes(2**20 + 1)))) == errno.EFBIG


@virtually
async def test_the_latest_blobs_are_kept_and_what_was_committed_stays() -> None:
    async with serving(kvs=Kvs(MemoryJournal(), OWNER, cache_bytes=1000)) as (kvs, user):
        ask = user(OWNER).rpc
        first = await ask("content.store", blobbed(b"first" * 50))
        kept = [step("kept", treeobj.valref([first["ref"]]))]
        await ask("kvs.commit", {"ops": kept, "rootref": False})
        for number in range(10):
            await ask("content.store", blobbed(bytes([number]) * 200))

        assert await refused(ask("content.load", first)) == errno.ENOENT
        assert kvs.lookup("kept") == b"first" * 50
        assert kvs.refs._client_blobs._size <= 1000
        shown = await ask("kvs.lookup", {"key": "kept", "flags": 16})
        assert shown["val"] == treeobj.valref([first["ref"]])
        assert await ask("content.validate", first) == {}


@virtually
async def test_blobs_are_named_by_the_hash_of_the_configuration() -> None:
    kvs = Kvs(MemoryJournal(), OWNER, "sha256")
    bus = Bus(OWNER)
    bus.register("content", Content(kvs).methods())

    assert (await bus.handle().rpc("content.store", {"data": ""}))["ref"].startswith("sha256-")


# What no client would send


OBJECTS = [treeobj.val(b"x"), treeobj.symlink("a"), treeobj.dirref("sha1-" + "0" * 40)]
json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.text(max_size=4)
    | st.sampled_from(OBJECTS),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(
        st.sampled_from(["key", "flags", "dirent", "ver", "type", "data", "target", "x"]), below,
        max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip
payloads = st.dictionaries(
    st.sampled_from(
        ["namespace", "key", "flags", "ops", "writer", "sequence", "rootref", "rootdir", "owner",
         "rootseq", "data", "ref"]
    ),
    json | st.lists(st.fixed_dictionaries({"key": json, "dirent": json, "flags": json})),
)  # fmt: skip


@given(st.lists(payloads, max_size=5))
@settings(deadline=None, max_examples=extent("WARREN_EXAMPLES", usual=20, everything=60))
def test_whatever_is_asked_is_answered_or_refused_and_can_be_replayed(asked: list[Any]) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with serving(journal) as (kvs, user):
            for payload in asked:
                for topic in TOPICS:
                    with suppress(RpcError, TimeoutError):
                        await asyncio.wait_for(user(OWNER).rpc(topic, payload), 1)
            again = Kvs(journal, OWNER)
            for name in kvs.namespaces():
                now = kvs.refs.ref_now(kvs.root(name))
                assert again.refs.ref_now(again.root(name)) == now

    virtual.run(main())


TOPICS = [f"kvs.{method}" for method in KvsService(Kvs(MemoryJournal(), OWNER)).methods()] + [
    f"content.{method}" for method in Content(Kvs(MemoryJournal(), OWNER)).methods()
]

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

        assert await refused(user(OWNER).rpc("kvs.commit", request)) in (errno.EPROTO, errno.EINVAL)
        assert kvs.get("b") is None
        assert journal.records == before
    Kvs(journal, OWNER)


@pytest.mark.parametrize(
    "malformed",
    [
        {"ops": 5},
        {"ops": {"key": "b"}},
        {"writer": "w", "sequence": "one"},
        {"writer": "w", "sequence": 2**63},
    ],
)
@virtually
async def test_a_malformed_commit_is_refused(malformed: dict[str, Any]) -> None:
    async with serving() as (kvs, user):
        request = {"ops": [operation("b", b"x")], **malformed}

        assert await refused(user(OWNER).rpc("kvs.commit", request)) == errno.EPROTO
        assert kvs.get("b") is None


@virtually
async def test_one_commit_of_a_guests_makes_no_more_entries_than_all_others_can_wait_for() -> None:
    """Also by few keys that are deep, or by one directory."""
    deep = [operation(f"{each}{'.a' * 62}", b"") for each in range(200)]
    leaf = treeobj.directory({"a": treeobj.val(b"")})
    wide = treeobj.directory({str(each): leaf for each in range(5000)})
    async with serving() as (kvs, user):
        for ops in (deep, [{"key": "b", "flags": 0, "dirent": wide}]):
            request = {"namespace": "job-1", "ops": ops}
            assert await refused(user(GUEST).rpc("kvs.commit", request)) == errno.EMSGSIZE
            assert kvs.get("a", "job-1") == b"mine"
            assert kvs.version("job-1") == 1
        await user(OWNER).rpc("kvs.commit", {"namespace": "job-1", "ops": deep})
