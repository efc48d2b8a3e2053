"""The key-value store against plain dictionaries, through any history and any restart."""

import copy
import errno
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import virtual
from tests.instance.parts import GUEST, OWNER, compacted, opened
from warren.instance.kvs import (
    PRIMARY,
    Kvs,
    Operation,
    append,
    create_namespace,
    graft,
    link,
    packs,
    put,
)
from warren.instance.kvs import operations as ops
from warren.instance.kvs.operations import unlink
from warren.instance.kvs.pastroot import PastRoot
from warren.instance.kvs.service import KvsService
from warren.journal import MemoryJournal
from warren.rfc import treeobj
from warren.rpc.bus import Bus
from warren.rpc.message import RpcError

Tree = dict[str, Any]
"""Values are bytes, links are (target, namespace), directories are dictionaries."""


class Refused(Exception):
    """What a strict transaction comes to, by its errnum."""


def parse_key(key: str) -> list[str]:
    return [name for name in key.split(".") if name]


@dataclass
class Oracle:
    """Every namespace as dictionaries in dictionaries."""

    spaces: dict[str, Tree] = field(default_factory=lambda: {PRIMARY: {}})

    def commit(self, transaction: Sequence[Operation], *, strict: bool) -> int:
        """Do all or nothing; return the errnum of what stands in the way, or 0."""
        before = copy.deepcopy(self.spaces)
        try:
            for operation in transaction:
                self._do(operation, strict)
        except Refused as refused:
            self.spaces = before
            return int(str(refused))
        return 0

    def _do(self, operation: Operation, strict: bool) -> None:
        name, key, value = operation.namespace, operation.key, operation.value
        if operation.action == "create":
            if name in self.spaces and strict:
                raise Refused(errno.EEXIST)
            self.spaces.setdefault(name, {})
            return
        if name not in self.spaces:
            if strict and operation.action != "remove":
                raise Refused(errno.ENOTSUP)
            return
        if operation.action == "remove":
            del self.spaces[name]
            return
        space = self.spaces[name]
        names = parse_key(key)
        if strict:
            names = redirected(space, names)
        old = at(space, names)
        match operation.action:
            case "put":
                lay(space, names, value)
            case "append" if strict and isinstance(old, dict):
                raise Refused(errno.EISDIR)
            case "append" if strict and isinstance(old, tuple):
                raise Refused(errno.EOPNOTSUPP)
            case "append":
                lay(space, names, (old if isinstance(old, bytes) else b"") + value)
            case "unlink":
                cut(space, names)
            case "link":
                lay(space, names, (".", value.decode()))
            case "symlink":
                lay(space, names, tuple(msgspec.msgpack.decode(value)))
            case "tree":
                lay(space, names, linked(msgspec.msgpack.decode(value)))
            case "graft" if value.decode() in self.spaces and value.decode() != name:
                grafted = self.spaces.pop(value.decode())
                cut(space, names)
                if grafted:
                    lay(space, names, grafted)

    def find(self, names: Sequence[str], name: str, left: int = 10) -> Any:
        """What a key has behind links, or the errnum that says why there is nothing."""
        found: Any = self.spaces.get(name)
        for depth, each in enumerate(names):
            found = found.get(each) if isinstance(found, dict) else None
            if isinstance(found, tuple):
                target, elsewhere = found
                further = [*parse_key(target), *names[depth + 1 :]]
                return self.find(further, elsewhere or name, left - 1) if left else errno.ELOOP
        return errno.ENOENT if found is None else found


def at(space: Tree, names: Sequence[str]) -> Any:
    found: Any = space
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def redirected(space: Tree, names: list[str]) -> list[str]:
    for _ in range(10):
        for depth in range(1, len(names)):
            found = at(space, names[:depth])
            if isinstance(found, tuple):
                if found[1]:
                    raise Refused(errno.EINVAL)
                names = [*parse_key(found[0]), *names[depth:]]
                break
        else:
            return names
    raise Refused(errno.ELOOP)


def lay(space: Tree, names: Sequence[str], node: Any) -> None:
    for name in names[:-1]:
        if not isinstance(space.get(name), dict):
            space[name] = {}
        space = space[name]
    space[names[-1]] = node


def cut(space: Tree, names: Sequence[str]) -> None:
    if at(space, names) is None:
        return
    for depth in range(len(names), 0, -1):
        place = at(space, names[: depth - 1])
        del place[names[depth - 1]]
        if place:
            return


def linked(found: Any) -> Any:
    """A tree as an operation has it, whose pairs are links."""
    if isinstance(found, dict):
        return {name: linked(each) for name, each in found.items()}
    return tuple(found) if isinstance(found, list) else found


SPACES = (PRIMARY, "one", "two")
KEYS = [".".join(names) for depth in (1, 2, 3) for names in itertools.product("ab", repeat=depth)]

keys = st.sampled_from(KEYS)
spaces = st.sampled_from(SPACES)
guests = st.sampled_from(SPACES[1:])
values = st.binary(max_size=3) | st.binary(min_size=60, max_size=60)
links = st.tuples(keys | st.just("."), st.sampled_from(("", *SPACES)))
trees = st.recursive(
    st.dictionaries(st.sampled_from("ab"), values | links, max_size=2),
    lambda below: st.dictionaries(st.sampled_from("ab"), values | below, max_size=2),
    max_leaves=4,
)


def symlink(key: str, link: tuple[str, str], space: str) -> ops.Operation:
    return ops.symlink(key, *link, space)


contents = st.one_of(
    st.builds(put, keys, values, spaces),
    st.builds(append, keys, values, spaces),
    st.builds(unlink, keys, spaces),
    st.builds(symlink, keys, links, spaces),
    st.builds(ops.tree, keys, trees, spaces),
)
actions = st.one_of(
    contents,
    contents,
    st.builds(link, keys, guests),
    st.builds(create_namespace, guests, st.just(GUEST)),
    st.builds(ops.remove_namespace, guests),
    st.builds(graft, keys, guests),
)
lenient = st.tuples(st.lists(actions, min_size=1, max_size=3), st.just(False))
strict = st.tuples(st.lists(contents, min_size=1, max_size=4), st.just(True))
transactions = lenient | strict
# What is done twice to no effect tells nothing of a snapshot that has it twice.
growing = transactions | st.tuples(
    st.lists(st.builds(append, keys, values), min_size=6, max_size=12), st.just(False)
)


def found(kvs: Kvs, key: str, space: str) -> Any:
    """What a lookup gives: a value, the names in a directory, or an errnum."""
    try:
        return kvs.lookup(key, space)
    except RpcError as error:
        return kvs.names(key, space) if error.errnum == errno.EISDIR else error.errnum


def agree(kvs: Kvs, oracle: Oracle) -> None:
    assert set(kvs.namespaces()) == set(oracle.spaces)
    for space in SPACES:
        for key in (".", *KEYS):
            expected = oracle.find(parse_key(key), space)
            shown = sorted(expected) if isinstance(expected, dict) else expected
            assert found(kvs, key, space) == shown, (key, space)


async def do(kvs: Kvs, oracle: Oracle, transaction: Sequence[Operation], strict: bool) -> None:
    expected = oracle.commit(transaction, strict=strict)
    if not strict:
        await kvs.commit(transaction)
        return
    try:
        await kvs.transact(transaction)
        refused = 0
    except RpcError as error:
        refused = error.errnum if "operation " in str(error) else -1
    assert refused == expected


each_size = pytest.mark.parametrize("pack", [packs.LARGEST_PACK, 150], ids=["roomy", "narrow"])
"""Packs of the size that they have, and packs in which little has room."""

anyhow: Callable[[Any], Any] = settings(deadline=None, max_examples=60)


@each_size
@given(history=st.lists(transactions, max_size=8), compact=st.booleans())
@anyhow
def test_a_kvs_says_what_a_dictionary_says_before_and_after_every_restart(
    pack: int, history: list[tuple[list[Operation], bool]], compact: bool
) -> None:
    async def main() -> None:
        journal, oracle = MemoryJournal(), Oracle()
        for transaction, strict in history:
            async with opened(kvs=Kvs(journal, OWNER, pack_bytes=pack)) as kvs:
                agree(kvs, oracle)
                await do(kvs, oracle, transaction, strict)
                agree(kvs, oracle)
                versions = [kvs.version(name) for name in kvs.namespaces()]
            if compact:
                journal = compacted(kvs)
            again = Kvs(journal, OWNER, pack_bytes=pack)
            assert [again.version(name) for name in kvs.namespaces()] == versions
        agree(Kvs(journal, OWNER), oracle)

    virtual.run(main())


@each_size
@given(
    history=st.lists(st.tuples(growing, st.integers(1, 2)), min_size=6, max_size=16),
    settled=st.integers(2, 8),
)
@anyhow
def test_a_snapshot_says_what_was_when_it_began_whatever_changes_meanwhile(
    pack: int, history: list[tuple[tuple[list[Operation], bool], int]], settled: int
) -> None:
    """Some transactions are followed by reading some more records of a snapshot."""

    async def main() -> None:
        journal, oracle = MemoryJournal(), Oracle()
        begun: Iterator[bytes] | None = None
        fewer: list[bytes] = []
        replaced = 0
        async with opened(kvs=Kvs(journal, OWNER, pack_bytes=pack)) as kvs:
            for number, ((transaction, strict), records) in enumerate(history):
                await do(kvs, oracle, transaction, strict)
                agree(kvs, oracle)
                if number < settled:
                    # So that there is something cold when the next one begins.
                    list(kvs._snapshot())
                    continue
                if begun is None:
                    begun, fewer, replaced = kvs._snapshot(), [], len(journal.records)
                taken = list(itertools.islice(begun, records))
                fewer += taken
                if len(taken) < records:
                    journal.records[:replaced] = fewer
                    begun = None
                agree(kvs, oracle)
            if begun is not None:
                journal.records[:replaced] = [*fewer, *begun]
            version = {name: kvs.version(name) for name in kvs.namespaces()}
        again = Kvs(journal, OWNER, pack_bytes=pack)
        agree(again, oracle)
        assert {name: again.version(name) for name in again.namespaces()} == version
        agree(Kvs(compacted(again), OWNER), oracle)

    virtual.run(main())


@given(st.lists(transactions, max_size=8), st.sampled_from(("sha1", "sha256")), st.booleans())
@anyhow
def test_a_root_that_was_given_out_says_what_was_then_and_makes_it_again(
    history: list[tuple[list[Operation], bool]], algorithm: treeobj.Algorithm, cold: bool
) -> None:
    async def main() -> None:
        oracle = Oracle()
        given_out: list[tuple[str, Tree]] = []
        kvs = Kvs(MemoryJournal(), OWNER, algorithm)
        bus = Bus(OWNER)
        bus.register("kvs", KvsService(kvs).methods())
        async with opened(kvs=kvs):
            for transaction, strict in history:
                await do(kvs, oracle, transaction, strict)
                if cold:
                    list(kvs._snapshot())
                    list(kvs._snapshot())
                answer = await bus.handle().rpc("kvs.getroot")
                given_out.append((answer["rootref"], copy.deepcopy(oracle.spaces[PRIMARY])))
            for ref, then in given_out:
                assert ref == made_ref(then, algorithm)
                assert told(PastRoot(kvs.blob), treeobj.dirref(ref)) == then
                ops = [{"key": "copy", "flags": 0, "dirent": treeobj.dirref(ref)}]
                await bus.handle().rpc("kvs.commit", {"ops": ops})
                found = kvs.find(["copy"]).node
                assert kvs.refs.ref_now(found) == ref

    virtual.run(main())


def made_ref(tree: Tree, algorithm: treeobj.Algorithm) -> str:
    return treeobj.blobref(treeobj.encode(made(tree, algorithm)), algorithm)


def made(tree: Tree, algorithm: treeobj.Algorithm) -> dict[str, Any]:
    """The tree object of a directory, made from nothing."""
    entries: dict[str, Any] = {}
    for name, node in tree.items():
        if isinstance(node, dict):
            entries[name] = treeobj.dirref(made_ref(node, algorithm))
        elif isinstance(node, tuple):
            entries[name] = treeobj.symlink(node[0], node[1] or None)
        elif len(treeobj.val(node)["data"]) > 72:
            entries[name] = treeobj.valref([treeobj.blobref(node, algorithm)])
        else:
            entries[name] = treeobj.val(node)
    return treeobj.directory(entries)


def told(past: PastRoot, obj: Any) -> Any:
    """What a client learns of a tree that goes down from its root, blob by blob."""
    if obj["type"] in ("dir", "dirref"):
        return {name: told(past, each) for name, each in past.entries(obj).items()}
    if obj["type"] == "symlink":
        return obj["data"]["target"], obj["data"].get("namespace", "")
    return past.value(obj)
