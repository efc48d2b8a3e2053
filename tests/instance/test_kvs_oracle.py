"""The key-value store against plain dictionaries, through any history and any restart."""

import errno
import itertools
from dataclasses import dataclass, field

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
    put,
    unlink,
)
from warren.journal import MemoryJournal
from warren.rpc.message import RpcError


@dataclass
class Oracle:
    """Every namespace as a flat dictionary from key to value; a link is a string."""

    spaces: dict[str, dict[str, bytes | str]] = field(default_factory=lambda: {PRIMARY: {}})

    def apply(self, operation: Operation) -> None:
        name, key, value = operation.namespace, operation.key, operation.value
        if operation.deed == "create":
            self.spaces.setdefault(name, {})
            return
        if name not in self.spaces:
            return
        space = self.spaces[name]
        match operation.deed:
            case "put":
                self._set(space, {key: value}, key)
            case "append":
                old = space.get(key, b"")
                self._set(space, {key: (old if isinstance(old, bytes) else b"") + value}, key)
            case "unlink":
                self._remove(space, key)
            case "link":
                self._set(space, {key: value.decode()}, key)
            case "graft" if value.decode() in self.spaces:
                grafted = self.spaces.pop(value.decode())
                self._remove(space, key)
                if grafted:
                    below = {f"{key}.{name}": found for name, found in grafted.items()}
                    self._set(space, below, key)

    def _set(self, space: dict[str, bytes | str], new: dict[str, bytes | str], key: str) -> None:
        self._remove(space, key)
        parents = key.split(".")[:-1]
        for depth in range(1, len(parents) + 1):
            space.pop(".".join(parents[:depth]), None)
        space.update(new)

    @staticmethod
    def _remove(space: dict[str, bytes | str], key: str) -> None:
        for other in [other for other in space if f"{other}.".startswith(f"{key}.")]:
            del space[other]

    def _followed(self, key: str, name: str) -> tuple[dict[str, bytes | str] | None, str]:
        """The namespace where a key is, behind all links, and its key there."""
        space = self.spaces.get(name, {})
        names = key.split(".") if key else []
        for depth in range(1, len(names) + 1):
            found = space.get(".".join(names[:depth]))
            if isinstance(found, str):
                return self._followed(".".join(names[depth:]), found)
        return self.spaces.get(name), key

    def find(self, key: str, name: str) -> bytes | int:
        """The value of a key, or the errnum that says why there is none."""
        space, rest = self._followed(key, name)
        if space is None:
            return errno.ENOENT
        found = space.get(rest)
        if isinstance(found, bytes):
            return found
        below = not rest or any(other.startswith(f"{rest}.") for other in space)
        return errno.EISDIR if below else errno.ENOENT

    def names(self, key: str, name: str) -> list[str]:
        space, rest = self._followed(key, name)
        prefix = f"{rest}." if rest else ""
        return sorted(
            {
                other[len(prefix) :].split(".")[0]
                for other in space or ()
                if other.startswith(prefix)
            }
        )


SPACES = (PRIMARY, "one", "two")
KEYS = [".".join(names) for depth in (1, 2, 3) for names in itertools.product("abc", repeat=depth)]

keys = st.sampled_from(KEYS)
spaces = st.sampled_from(SPACES)
values = st.binary(max_size=3)
guests = st.sampled_from(SPACES[1:])
operations = st.one_of(
    st.builds(put, keys, values, spaces),
    st.builds(append, keys, values, spaces),
    st.builds(unlink, keys),
    st.builds(link, keys, guests),
    st.builds(create_namespace, guests, st.just(GUEST)),
    st.builds(graft, keys, guests),
)
transactions = st.lists(operations, min_size=1, max_size=3)


def found(kvs: Kvs, key: str, space: str) -> bytes | int:
    try:
        return kvs.lookup(key, space)
    except RpcError as error:
        return error.errnum


def agree(kvs: Kvs, oracle: Oracle) -> None:
    for space in SPACES:
        assert (kvs.owner(space) is not None) == (space in oracle.spaces)
        for key in KEYS:
            assert found(kvs, key, space) == oracle.find(key, space), (key, space)
            assert kvs.names(key, space) == oracle.names(key, space), (key, space)


@given(st.lists(transactions, max_size=12), st.booleans())
@settings(deadline=None)
def test_a_kvs_says_what_a_dictionary_says_before_and_after_every_restart(
    history: list[list[Operation]], compact: bool
) -> None:
    async def main() -> None:
        journal, oracle = MemoryJournal(), Oracle()
        for transaction in history:
            async with opened(journal) as kvs:
                agree(kvs, oracle)
                await kvs.commit(transaction)
                for operation in transaction:
                    oracle.apply(operation)
                agree(kvs, oracle)
            if compact:
                journal = compacted(kvs)
        agree(Kvs(journal, OWNER), oracle)

    virtual.run(main())
