"""Which compute nodes are wired to which rabbit, as a file that flux-coral2 writes and reads.

`flux rabbitmapping` writes it (coral2-spec section 17), and `rabbit.mapping` names it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from warren.base.errors import UserMistake
from warren.rfc import hostlist


class Rabbit(msgspec.Struct, frozen=True):
    hostlist: str
    capacity: int = 0
    """Bytes."""


class RabbitMapping(msgspec.Struct, frozen=True):
    """The content of such a file."""

    computes: Mapping[str, str]
    """The rabbit of each compute node."""
    rabbits: Mapping[str, Rabbit]

    def computes_of(self, rabbits: Iterable[str]) -> list[str]:
        """Return the compute nodes of some rabbits. Raises UserMistake for an unknown one."""
        found: list[str] = []
        for rabbit in rabbits:
            if rabbit not in self.rabbits:
                raise UserMistake(f"Could not find rabbit {rabbit}: {self._there('rabbits')}.")
            found += hostlist.decode(self.rabbits[rabbit].hostlist)
        return list(dict.fromkeys(found))

    def rabbits_of(self, computes: Iterable[str]) -> list[str]:
        """Return the rabbits of some compute nodes. Raises UserMistake for an unknown one."""
        found: list[str] = []
        for compute in computes:
            if compute not in self.computes:
                raise UserMistake(f"Could not find compute {compute}: {self._there('computes')}.")
            found.append(self.computes[compute])
        return list(dict.fromkeys(found))

    def _there(self, what: str) -> str:
        names: Mapping[str, Any] = getattr(self, what)
        return f"the mapping has {hostlist.encode(names) or 'none'}"


def parse(text: bytes, name: str) -> RabbitMapping:
    """Read a file's content. Raises UserMistake with `name` and the path of what is wrong."""
    try:
        return msgspec.json.decode(text, type=RabbitMapping)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserMistake(f"{name} is no rabbit mapping: {error}: write it anew.") from error
